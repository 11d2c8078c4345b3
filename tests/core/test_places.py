"""Ranks are found on their node also where the launcher calls its host by another name, as by an address."""

from __future__ import annotations

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.reach import hosts_out_of_reach, ranks_out_of_reach
from distmon.core.state import SessionState
from distmon.core.stragglers import busier_host

HOSTS = ("alpha", "beta")
ADDRESSES = ("10.0.0.1", "10.0.0.2")


def sample(node: int, at: float, sent: float) -> ev.NodeSampled:
    rate = ev.NetworkRate(name="eth0", received_bytes_per_s=1e6, sent_bytes_per_s=sent)
    return ev.NodeSampled(at=at, node=f"n{node}", interval_s=1.0, networks=[rate])


def two_nodes(*, told_by_the_launcher_alone: tuple[str, ...] = ADDRESSES, heard: bool = True) -> SessionState:
    """A rank on each, which its agent has heard of or not; the second node carries ten times the traffic."""
    state = SessionState()
    for node, host in enumerate(HOSTS):
        apply(state, ev.NodeJoined(at=100.0, node=f"n{node}", host=host, boot=f"b{node}"))
    for rank, host in enumerate(told_by_the_launcher_alone):
        apply(state, ev.WorkerStarted(at=100.5, rank=rank, host=host, local_rank=0, pid=rank + 10))
        if heard:
            who = ev.WorkerIdentified(
                at=101.0, worker=f"n{rank}/w", node=f"n{rank}", host=host, pid=rank + 10, rank=rank, size=2, local_rank=0
            )
            apply(state, who)
    for at in (102.0, 103.0):
        apply(state, sample(0, at, 1e6))
        apply(state, sample(1, at, 1e8))
    return state


def test_the_host_with_other_traffic_is_found_whatever_its_ranks_are_called() -> None:
    busier = busier_host(two_nodes())
    assert busier is not None
    assert busier.host == "beta"


def test_ranks_of_a_silent_node_are_out_of_reach_whatever_their_host_is_called() -> None:
    state = two_nodes()
    for at in range(104, 130):
        apply(state, sample(0, at, 1e6))
    ranks = list(state.ranks.values())
    assert list(hosts_out_of_reach(state, ranks)) == ["10.0.0.2"]
    assert hosts_out_of_reach(state, ranks[:1]) == {}
    assert ranks_out_of_reach(state, {0, 1}) == {1}


def test_before_an_agent_has_heard_of_a_rank_its_host_s_name_counts() -> None:
    named = two_nodes(told_by_the_launcher_alone=HOSTS, heard=False)
    assert busier_host(named) is not None
    assert busier_host(two_nodes(heard=False)) is None
