"""Which ranks run, told from what the launcher says."""

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, MembershipChanged, RankPlace, RanksAssigned, WorkerExited, WorkerStarted
from distmon.launcher.living import LivingRanks


def assigned(generation: int, *hosts: str) -> RanksAssigned:
    places = [RankPlace(rank=rank, host=host, local_rank=0) for rank, host in enumerate(hosts)]
    return RanksAssigned(at=1.0, generation=generation, world_size=len(hosts), places=places)


def started(rank: int, host: str) -> WorkerStarted:
    return WorkerStarted(at=1.0, host=host, local_rank=0, rank=rank)


def exited(rank: int, host: str) -> WorkerExited:
    return WorkerExited(at=2.0, host=host, local_rank=0, rank=rank, exit_code=1)


def living(*events: AnyEvent) -> LivingRanks:
    ranks = LivingRanks()
    for event in events:
        ranks.observe(event)
    return ranks


PAIR: list[AnyEvent] = [assigned(0, "a", "b"), started(0, "a"), started(1, "b")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_runs_is_there(rank: int) -> None:
    living(*PAIR).expect(rank)


def test_one_that_was_never_there_and_one_that_has_ended_are_refused_as_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"there is no rank 7: those that run are 0, 1$"):
        living(*PAIR).expect(7)
    with pytest.raises(UsageError, match=r"there is no rank 1: those that run are 0$"):
        living(*PAIR, exited(1, "b")).expect(1)


def test_before_any_has_started_no_number_is_wrong() -> None:
    for ranks in (living(), living(assigned(0, "a", "b"))):
        with pytest.raises(DistmonError, match="no rank runs yet") as told:
            ranks.expect(0)
        assert told.value.exit_code == 1


def test_a_rank_passes_to_another_worker_in_a_new_round() -> None:
    """The one that held it may be told to have ended only after that."""
    ranks = living(*PAIR, assigned(1, "b", "c"), started(1, "c"), exited(0, "a"))
    ranks.expect(0)
    ranks.expect(1)
    with pytest.raises(UsageError, match=r"those that run are 0$"):
        living(*PAIR, assigned(1, "b"), exited(1, "a")).expect(1)


def test_a_host_that_is_barred_for_good_is_refused_and_one_without_a_rank_is_known() -> None:
    barred = MembershipChanged(at=2.0, change="host_blacklisted", host="b")
    ranks = living(*PAIR, exited(1, "b"), barred, MembershipChanged(at=2.0, change="host_blacklisted", host="c", until=9.0))
    assert ranks.any_on("a") and not ranks.any_on("b")
    ranks.expect_admitted("c")
    with pytest.raises(UsageError, match="b is barred for the rest of the job"):
        ranks.expect_admitted("b")
