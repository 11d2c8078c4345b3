"""Hosts of which nothing comes: those that no longer answer their launcher, and those whose agents are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.core.state import NodeState, SessionState

SILENT_S = 5.0
"""Of an agent; of a slow one, three of its intervals."""
CATCHES_UP_S = 8.0
"""A node that is heard again tells what happened meanwhile within this time."""


def silent_nodes(state: SessionState) -> list[NodeState]:
    """Nodes with an agent of which nothing has come for longer than usual, and that have not said goodbye."""
    return [node for node in state.nodes.values() if node.left_at is None and 0 < node.last_heard < state.now - _patience(node)]


def hosts_out_of_reach(state: SessionState) -> dict[str, float]:
    """Host -> its last word."""
    found = {past.host: past.since for past in state.host_silences if past.until is None}
    for node in silent_nodes(state):
        found.setdefault(node.host, node.last_heard)
    return found


def ranks_out_of_reach(state: SessionState, ranks: set[int]) -> set[int]:
    """Those of `ranks` that are on a host out of reach, or on one that has not yet told what happened while it was."""
    late = {node.host for node in state.nodes.values() if state.now - node.heard_since < CATCHES_UP_S}
    hosts = hosts_out_of_reach(state).keys() | late
    return {rank for rank in ranks if (known := state.ranks.get(rank)) is not None and known.host in hosts}


def _patience(node: NodeState) -> float:
    """SILENT_S, or three of its intervals."""
    return max(SILENT_S, 3 * node.sample.interval_s if node.sample is not None else 0.0)
