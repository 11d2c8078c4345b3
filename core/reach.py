"""Hosts of which nothing comes: those that no longer answer their launcher, and those whose agents are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distmon.core.places import is_loopback, place_of, places_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from distmon.core.state import NodeState, RankState, SessionState

SILENT_S = 5.0
"""Of an agent; of a slow one, three of its intervals."""
CATCHES_UP_S = 8.0
"""A node that is heard again tells what happened meanwhile within this time."""


def silent_nodes(state: SessionState) -> list[NodeState]:
    """Nodes with an agent of which nothing has come for longer than usual, and that have not said goodbye."""
    return [node for node in state.nodes.values() if node.left_at is None and 0 < node.last_heard < state.now - _patience(node)]


def hosts_out_of_reach(state: SessionState, ranks: Collection[RankState]) -> dict[str, float]:
    """Those of `ranks`, by the name that their launcher has for them -> their last word.

    The launcher's own machine is always within its reach: there only the agent can be silent.
    """
    found = {past.host: past.since for past in state.host_silences if past.until is None}
    silent = {place: node.last_heard for node in silent_nodes(state) for place in places_of(node)}
    if not found and not silent:
        return {}
    for rank in ranks:
        if (heard := silent.get(place_of(rank))) is not None:
            found.setdefault(rank.host, heard)
    hosts = {rank.host for rank in ranks if not is_loopback(rank.host)}
    return {host: since for host, since in sorted(found.items()) if host in hosts}


def unheard(state: SessionState, numbers: Collection[int]) -> bool:
    """Whether no agent of these ranks is heard: nobody knows of their steps then."""
    silent = {place for node in silent_nodes(state) for place in places_of(node)}
    return bool(silent) and all(place_of(state.ranks[number]) in silent for number in numbers if number in state.ranks)


def ranks_out_of_reach(state: SessionState, numbers: set[int]) -> set[int]:
    """Those of `numbers` that are on a host out of reach, or on one that has not yet told what happened while it was."""
    ranks = [rank for number in numbers if (rank := state.ranks.get(number)) is not None]
    hosts = hosts_out_of_reach(state, ranks)
    late = [node for node in state.nodes.values() if state.now - node.heard_since < CATCHES_UP_S]
    places = {place for node in late for place in places_of(node)}
    return {rank.rank for rank in ranks if rank.host in hosts or place_of(rank) in places}


def _patience(node: NodeState) -> float:
    """SILENT_S, or three of its intervals."""
    return max(SILENT_S, 3 * node.sample.interval_s if node.sample is not None else 0.0)
