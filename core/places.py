"""Which ranks are on which node, whatever each side calls the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.core.state import NodeState, RankState

Place = tuple[str, str]


def place_of(rank: RankState) -> Place:
    """The node whose agent hears the rank; before one does the host, which the launcher may call by another name."""
    return ("host", rank.host) if rank.identity is None else ("node", rank.identity.node)


def places_of(node: NodeState) -> tuple[Place, Place]:
    """The places of ranks that are there."""
    return ("node", node.node), ("host", node.host)


def is_loopback(host: str) -> bool:
    """Whether a launcher calls its own machine by this name."""
    return host in ("localhost", "::1") or host.startswith("127.")
