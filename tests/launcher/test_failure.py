"""Who failed first."""

from distmon.launcher.driver.failure import Exit, as_record, first_failure


def ended(rank: int, code: int, at_ms: int, *, stopped: bool = False, generation: int = 0, said: str = "") -> Exit:
    signum = code - 128 if code > 128 else None
    lines = [said] if said else []
    return Exit(rank, rank, "host", generation, code, signum, at_ms * 1_000_000, stopped, lines)


def test_the_earliest_by_time_not_by_rank() -> None:
    first = first_failure([ended(0, 1, 300), ended(1, 1, 200), ended(2, 0, 100)], 0)
    assert first is not None and first.rank == 1


def test_an_abort_or_a_lost_peer_is_a_consequence_even_when_noticed_first() -> None:
    lost = "horovod.common.exceptions.HorovodInternalError: Connection closed by peer"
    first = first_failure([ended(0, 134, 100), ended(1, 1, 110, said=lost), ended(2, 1, 900, said="ValueError: nan")], 0)
    assert first is not None and first.rank == 2


def test_a_host_that_was_cut_off_before_its_peers_gave_up_is_no_consequence() -> None:
    lost = "horovod.common.exceptions.HorovodInternalError: Connection reset by peer"
    gone = ended(2, 255, 100, said=lost)._replace(cause="host did not answer for 60 s")
    first = first_failure([ended(0, 1, 300, said=lost), gone, ended(1, 1, 310, said=lost)], 0)
    assert first is not None and first.rank == 2


def test_where_all_look_like_consequences_the_earliest_counts() -> None:
    first = first_failure([ended(0, 134, 200), ended(1, 134, 100)], 0)
    assert first is not None and first.rank == 1


def test_a_peer_that_left_early_is_named_by_those_that_died_of_it() -> None:
    lost = "horovod.common.exceptions.HorovodInternalError: Connection closed by peer"
    first = first_failure([ended(0, 1, 2600, said=lost), ended(1, 0, 500), ended(2, 134, 2700)], 0)
    assert first is not None and (first.rank, first.cause) == (0, "rank 1 on host had left 2.1 s before, with exit code 0")
    own = first_failure([ended(0, 1, 2600, said="ValueError: nan"), ended(1, 0, 500)], 0)
    assert own is not None and own.cause == ""


def test_workers_that_were_stopped_or_belong_to_an_earlier_round_are_none() -> None:
    exits = [ended(0, 143, 400, stopped=True), ended(1, 137, 10, generation=0), ended(2, 1, 300, generation=1)]
    first = first_failure(exits, 1)
    assert first is not None and first.rank == 2
    assert first_failure([ended(0, 0, 1), ended(1, 143, 2, stopped=True)], 0) is None


def test_the_record_names_the_signal() -> None:
    assert as_record(ended(2, 137, 1, said="last words")) == {
        "rank": 2,
        "host": "host",
        "exit_code": 137,
        "signal": "SIGKILL",
        "cause": "",
        "last_lines": ["last words"],
    }
    assert as_record(ended(2, 3, 1))["signal"] == ""
