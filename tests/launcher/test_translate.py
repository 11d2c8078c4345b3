"""From the driver's lines to events."""

from typing import Any

import pytest

from distmon.core.events import (
    DiscoveryReported,
    HostReachChanged,
    JobEnded,
    LaunchProgressed,
    MembershipChanged,
    NoticeGiven,
    OutputWritten,
    RanksAssigned,
    WorkerExited,
    WorkerStarted,
)
from distmon.launcher.translate import Translator, shown, signal_name

WORKER = {"rank": 1, "host": "node1", "local_rank": 0}


def translate(event: str, **fields: Any) -> Any:
    return Translator(lambda ns: 1 + ns / 1e9).translate({"event": event, "t": 500_000_000, **fields})


def test_a_host_that_does_not_answer() -> None:
    told = translate("host_reach", host="b", answers=False, since=-8_500_000_000, ranks=[1, 3], given_up_after_s=60)
    assert told == HostReachChanged(at=1.5, host="b", answers=False, since=-7.5, ranks=[1, 3], given_up_after_s=60)


def output(translator: Translator, *pieces: tuple[str, str], dropped: int = 0) -> list[str] | None:
    record = {"event": "output", "t": 0, "stream": "stdout", "pieces": pieces, "dropped": dropped, **WORKER}
    event = translator.translate(record)
    assert event is None or isinstance(event, OutputWritten)
    return event.lines if event else None


def test_times_are_the_drivers_own() -> None:
    assert translate("progress", stage="rendezvous", detail="2 ranks", limit_s=30) == LaunchProgressed(
        at=1.5, stage="rendezvous", detail="2 ranks", deadline=31.5
    )
    unlimited = translate("progress", stage="first_step", detail="", limit_s=None)
    assert unlimited == LaunchProgressed(at=1.5, stage="first_step")


def test_workers() -> None:
    assert translate("worker_started", pid=7, generation=2, **WORKER) == WorkerStarted(at=1.5, pid=7, generation=2, **WORKER)  # type: ignore[arg-type]
    ended = translate(
        "worker_exited", pid=7, generation=2, exit_code=137, signal=9, stopped=True, removed=True, cause="x", **WORKER
    )
    assert ended == WorkerExited(at=1.5, exit_code=137, signal="SIGKILL", expected=True, removed=True, cause="x", **WORKER)  # type: ignore[arg-type]
    places = [{"rank": 0, "host": "a", "local_rank": 0}]
    assigned = translate("ranks_assigned", generation=0, world_size=1, places=places, resets=2)
    assert isinstance(assigned, RanksAssigned) and (assigned.places[0].host, assigned.resets) == ("a", 2)


def test_who_takes_part() -> None:
    joined = translate("membership", change="host_joined", host="a", slots=2, detail="")
    assert joined == MembershipChanged(at=1.5, change="host_joined", host="a", slots=2)
    barred = translate("membership", change="host_blacklisted", host="a", until=3_000_000_000, detail="for 2.5 s")
    assert barred == MembershipChanged(at=1.5, change="host_blacklisted", host="a", until=4.0, detail="for 2.5 s")
    reported = translate("discovery", status="timed_out", failures=3, detail="no answer")
    assert reported == DiscoveryReported(at=1.5, status="timed_out", failures=3, detail="no answer")


def test_the_end_names_the_first_failure() -> None:
    failure = {"rank": 2, "host": "a", "signal": "SIGKILL", "exit_code": 137, "last_lines": ["x"]}
    ended = translate("ended", exit_code=137, reason="failed", failure=failure, error="")
    assert isinstance(ended, JobEnded) and ended.failure is not None and ended.failure.rank == 2
    assert translate("ended", exit_code=1, reason="failed", failure=None, error="no Horovod").detail == "no Horovod"


def test_leftovers_are_a_warning() -> None:
    notice = translate("leftovers", names=["python", "sleep"], **WORKER)
    assert isinstance(notice, NoticeGiven)
    assert notice.text == "rank 1 on node1 left 2 processes behind, ended now: python, sleep"


def test_lines_lose_their_ends_and_nothing_else() -> None:
    translator = Translator(float)
    assert output(translator, ("a", "\n"), ("", "\n"), ("b", "\n")) == ["a", "", "b"]
    assert output(translator, ("Password? ", "")) == ["Password? "]
    assert output(translator, ("", "\n"), ("", "\n")) == [""]
    assert output(translator, ("", "\r"), ("10%", "\r")) == ["10%"]
    assert output(translator, ("", "\r")) is None


def test_dropped_lines_are_told_even_without_others() -> None:
    assert output(Translator(float), dropped=12) == []


def test_a_stage_of_a_later_driver_is_passed_over() -> None:
    assert translate("progress", stage="unheard_of", detail="") is None
    assert translate("unheard_of") is None


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (None, ""), (63, "signal 63")])
def test_signals_by_name(number: int | None, name: str) -> None:
    assert signal_name(number) == name


def test_words_that_are_no_utf8_can_be_shown() -> None:
    assert shown("caf\udce9") == "caf�"
