"""A hang is told from a pause, and the rank that holds the others from those that it holds."""

from typing import Any

import pytest

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.hangs import describe, group_stacks, waits_in
from distmon.core.measures import rank_status
from distmon.core.state import SessionState
from distmon.core.verdicts import verdicts

PACKAGES = "/venv/lib/python3.11/site-packages"
TRUNK = ["/home/me/train.py:40 train", "/home/me/train.py:80 <module>"]
OPTIMIZER = [
    f"{PACKAGES}/horovod/torch/mpi_ops.py:1285 synchronize",
    f"{PACKAGES}/horovod/torch/optimizer.py:284 synchronize",
    f"{PACKAGES}/horovod/torch/optimizer.py:333 step",
    *TRUNK,
]
BARRIER = [f"{PACKAGES}/horovod/torch/mpi_ops.py:1403 barrier", "/home/me/train.py:51 train", "/home/me/train.py:80 <module>"]


def checkpoint(line: int) -> list[str]:
    inside = [f"{PACKAGES}/torch/serialization.py:{line} _save", f"/home/me/train.py:{line} save"]
    return [*inside, "/home/me/train.py:44 train", "/home/me/train.py:80 <module>"]


def fetching(line: int) -> list[str]:
    """No evaluation, checkpoint or compilation as far as its names say."""
    inside = [f"{PACKAGES}/requests/api.py:{line} get", f"/home/me/train.py:{line} fetch"]
    return [*inside, "/home/me/train.py:44 train", "/home/me/train.py:80 <module>"]


def training(ranks: int = 4, *, step_s: float = 0.5, at: float = 100.0) -> SessionState:
    """Ten steps of each rank, the last one ending at `at`."""
    state = SessionState()
    apply(state, ev.JobStarted(at=at - 20, job="j", command=["x"], np=ranks))
    for rank in range(ranks):
        steps(state, rank, at=at, step_s=step_s)
    return state


def steps(state: SessionState, rank: int, *, at: float, count: int = 10, first: int = 0, step_s: float = 0.5) -> None:
    starts = [round(i * step_s * 1e9) for i in range(count)]
    apply(
        state,
        ev.StepsRecorded(
            at=at,
            node="n",
            worker=f"w{rank}",
            rank=rank,
            generation=0,
            first_step=first,
            origin=at - count * step_s,
            start_ns=starts,
            duration_ns=[round(step_s * 1e9)] * count,
        ),
    )


def stack(state: SessionState, at: float, since: float, **frames: list[str]) -> None:
    for name, lines in frames.items():
        threads = [ev.ThreadStack(name="main", frames=lines)]
        rank = int(name.removeprefix("r"))
        apply(state, ev.StackTaken(at=at, node="n", worker=f"w{rank}", rank=rank, silent_s=at - since, threads=threads))


def ticks(state: SessionState, first: float, last: float) -> float | None:
    """When a hang was found."""
    for now in range(int(first), int(last) + 1):
        apply(state, ev.Ticked(at=float(now)))
        if state.hang_watch.current is not None:
            return state.hang_watch.current.found
    return None


def test_the_rank_that_stays_away_is_named_with_the_collective_and_every_stack() -> None:
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=fetching(61), r3=OPTIMIZER)
    assert ticks(state, 101, 112) == 103
    hang = state.hang_watch.current
    assert hang is not None
    assert (hang.missing, hang.waiting, hang.collective) == ([2], [0, 1, 3], "allreduce of the gradients")
    assert [(group.ranks, group.place) for group in hang.groups] == [
        ([0, 1, 3], "/home/me/train.py train"),
        ([2], "/home/me/train.py fetch"),
    ]
    text = "training hangs: no step for 3 s (usual 0.5 s); 3 ranks wait in allreduce of the gradients for rank 2, "
    text += "in train.py:61 fetch"
    assert describe(hang) == text
    assert state.log[-1].severity == "error" and state.log[-1].text == text


def test_a_rank_that_skipped_a_collective_waits_in_another_one() -> None:
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=BARRIER, r2=OPTIMIZER, r3=OPTIMIZER)
    assert ticks(state, 103, 110) is not None
    hang = state.hang_watch.current
    assert hang is not None and hang.missing == [1]
    assert describe(hang).endswith("for rank 1, which waits in barrier at train.py:51 train")


def test_a_rank_without_a_stack_is_missing_after_some_seconds_unless_it_has_ended() -> None:
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=OPTIMIZER)
    found = ticks(state, 101, 115)
    assert found is not None and 107 <= found <= 109
    assert state.hang_watch.hangs[0].missing == [3] and "no stack came" in describe(state.hang_watch.hangs[0])
    state = training()
    apply(state, ev.WorkerExited(at=101.0, host="a", local_rank=3, rank=3, exit_code=0))
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=OPTIMIZER)
    assert ticks(state, 101, 160) is None


def test_where_all_compute_or_all_wait_in_one_collective_nobody_is_to_blame() -> None:
    for frames in (fetching(61), checkpoint(61), OPTIMIZER):
        state = training()
        stack(state, 103.0, 100.0, r0=frames, r1=frames, r2=frames, r3=frames)
        assert ticks(state, 101, 200) is None


@pytest.mark.parametrize("again_s", [5, 30, 60])
def test_a_pause_that_was_seen_once_is_no_hang_the_next_time(again_s: int) -> None:
    """On another line of the same function, too; and a hang elsewhere is found as ever."""
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=fetching(61), r3=OPTIMIZER)
    assert ticks(state, 101, 107) is not None
    for rank in range(4):
        steps(state, rank, at=112.0, first=10)
    assert state.hang_watch.current is None and state.hang_watch.hangs[0].ended == 112.0
    stack(state, 115.0, 112.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=fetching(77), r3=OPTIMIZER)
    assert ticks(state, 113, 112 + again_s) is None
    end = 112.0 + again_s + 5
    for rank in range(4):
        steps(state, rank, at=end, first=20)
    other = [f"{PACKAGES}/requests/api.py:3 get", "/home/me/train.py:9 ask", *TRUNK]
    stack(state, end + 3, end, r0=OPTIMIZER, r1=other, r2=OPTIMIZER, r3=OPTIMIZER)
    assert ticks(state, end, end + 12) is not None


def test_steps_that_come_late_from_another_node_end_no_pause() -> None:
    state = training(ranks=1)
    stack(state, 103.0, 100.0, r0=OPTIMIZER)
    steps(state, 1, at=100.1)
    assert list(state.hang_watch.stacks) == [0]


@pytest.mark.parametrize(
    "frames",
    [
        checkpoint(61),
        [f"{PACKAGES}/torch/nn/modules/linear.py:9 forward", "/home/me/train.py:70 evaluate", *TRUNK],
        [f"{PACKAGES}/torch/_inductor/compile_fx.py:9 fx_codegen", *TRUNK],
    ],
)
def test_a_rank_that_evaluates_saves_or_compiles_is_waited_for_and_the_pause_is_told(frames: list[str]) -> None:
    state = training()
    apply(state, ev.NodeJoined(at=100.0, node="n", host="h"))
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=frames, r3=OPTIMIZER)
    assert ticks(state, 101, 105) is None
    (said,) = verdicts(state)
    assert said.kind == "pause" and said.text.startswith("rank 2 is in ")
    found = ticks(state, 106, 200)
    assert found is not None and found >= 190
    assert verdicts(state)[0].kind == "stall"


def test_a_hang_is_a_verdict_at_once_with_the_rank_and_its_place() -> None:
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=fetching(61), r3=OPTIMIZER)
    assert ticks(state, 101, 104) == 103
    said = verdicts(state)[0]
    assert (said.kind, said.rank) == ("stall", 2)
    text = "training hangs: rank 2 is in train.py:61 fetch; 3 wait in allreduce of the gradients for 4 s"
    assert said.text == text.replace("4 s", f"{state.now - 100:.0f} s")


HOROVOD, KERAS = f"{PACKAGES}/horovod", f"{PACKAGES}/keras/src/engine/training.py"
GRAPH = f"{PACKAGES}/tensorflow/python/eager/execute.py:53 quick_execute"
BY_HAND = [f"{HOROVOD}/torch/mpi_ops.py:9 synchronize", f"{HOROVOD}/torch/mpi_ops.py:5 allreduce", *TRUNK]
COMMIT = [
    f"{HOROVOD}/torch/mpi_ops.py:9 synchronize",
    f"{HOROVOD}/torch/functions.py:73 broadcast_object",
    f"{HOROVOD}/common/elastic.py:60 commit",
]
COMMIT += TRUNK


@pytest.mark.parametrize(
    ("frames", "right"),
    [
        (OPTIMIZER, "allreduce of the gradients"),
        (BARRIER, "barrier"),
        (BY_HAND, "allreduce"),
        (COMMIT, "broadcast_object of the elastic state"),
        ([f"{HOROVOD}/common/basics.py:140 init", *TRUNK], ""),
        ([GRAPH, f"{KERAS}:1800 fit"], "a training step's graph"),
        ([GRAPH, f"{KERAS}:18 evaluate", f"{KERAS}:1800 fit"], ""),
        (TRUNK, ""),
    ],
)
def test_the_collective_is_told_from_the_stack(frames: list[str], right: str) -> None:
    assert waits_in(tuple(frames)) == right


def test_no_stack_is_no_group_of_its_own_kind() -> None:
    taken = ev.StackTaken(at=1.0, node="n", worker="w", rank=0, silent_s=1.0, threads=[])
    (group,) = group_stacks({0: taken})
    assert (group.place, group.waits_in) == ("an unknown place", "")


def cut_off(step_s: float, *, launcher: bool, until: int = 140) -> SessionState:
    """Rank 3 is on a host of which nothing comes from 100.2 s on, and the others wait for it."""
    state = training(step_s=step_s)
    for node, ranks in (("n", (0, 1, 2)), ("m", (3,))):
        apply(state, ev.NodeJoined(at=90.0, node=node, host=node))
        places = [ev.RankPlace(rank=rank, host=node, local_rank=0) for rank in ranks]
        for place in places:
            apply(state, ev.WorkerStarted(at=91.0, host=node, local_rank=0, rank=place.rank))
    apply(state, ev.NodeSampled(at=100.0, node="m", interval_s=1.0))
    stack(state, 100.0 + 3 * step_s + 1, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r2=OPTIMIZER)
    for now in range(101, until):
        apply(state, ev.NodeSampled(at=float(now), node="n", interval_s=1.0))
        apply(state, ev.Ticked(at=float(now)))
        if launcher and now == 110:
            apply(state, ev.HostReachChanged(at=110.0, host="m", answers=False, since=99.9, ranks=[3], given_up_after_s=60))
    return state


@pytest.mark.parametrize("step_s", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("launcher", [True, False])
def test_a_host_that_does_not_answer_is_no_hang_of_its_ranks(step_s: float, launcher: bool) -> None:
    """Whether its launcher tells of it or only its agent is silent."""
    state = cut_off(step_s, launcher=launcher)
    assert state.hang_watch.hangs == []
    said = verdicts(state)[0]
    assert (said.kind, said.host, said.rank) == ("stall", "m", None)
    assert said.text.startswith("m does not answer since 39 s: down or cut off; no step for 39 s")
    assert not any("hangs" in entry.text for entry in state.log)


def test_a_silence_ends_with_an_answer_and_the_report_has_it() -> None:
    state = cut_off(0.5, launcher=True)
    assert [entry.text for entry in state.log if "answer" in entry.text] == [
        "m (rank 3) has not answered for 10 s: its network may be cut; it is given up 60 s after its last word"
    ]
    apply(state, ev.HostReachChanged(at=141.0, host="m", answers=True, since=99.9, ranks=[3]))
    assert state.log[-1].text == "m answers again after 41 s"
    (past,) = state.host_silences
    assert (past.host, past.ranks, past.since, past.until) == ("m", [3], 99.9, 141.0)


def test_a_hang_beside_a_host_that_does_not_answer_is_of_the_rank_that_can_be_asked() -> None:
    state = cut_off(0.5, launcher=True)
    stack(state, 141.0, 100.0, r1=fetching(61))
    assert ticks(state, 141, 142) is not None
    assert state.hang_watch.hangs[0].missing == [1]


def test_a_rank_that_does_not_answer_is_missing_though_it_stands_where_the_others_wait() -> None:
    """As one that was stopped does; where no rank answers, nothing follows from it."""
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=OPTIMIZER, r3=OPTIMIZER)
    threads = [ev.ThreadStack(name="main", frames=OPTIMIZER)]
    deaf = ev.StackTaken(at=105.0, node="n", worker="w2", rank=2, silent_s=3.0, threads=threads, read_by="py-spy")
    apply(state, deaf)
    assert ticks(state, 105, 108) == 105
    hang = state.hang_watch.hangs[0]
    assert (hang.missing, hang.waiting) == ([2], [0, 1, 3])
    assert describe(hang).endswith("for rank 2, which is stopped or deaf to signals, at train.py:40 train")
    state = training(ranks=1)
    apply(state, ev.StackTaken(at=103.0, node="n", worker="w0", rank=0, silent_s=3.0, threads=threads, read_by="py-spy"))
    assert ticks(state, 103, 120) is None


@pytest.mark.parametrize("silent_s", [7, 25])
def test_a_host_that_is_heard_again_is_given_time_to_tell_its_stacks(silent_s: int) -> None:
    """It was cut off; the others' steps have not gone on yet, and its records of the time come after its first word."""
    state = cut_off(0.5, launcher=False, until=100 + silent_s)
    back = 100 + silent_s
    for now in range(back, back + 6):
        for node in ("n", "m"):
            apply(state, ev.NodeSampled(at=float(now), node=node, interval_s=1.0))
        apply(state, ev.Ticked(at=float(now)))
    assert state.hang_watch.hangs == []
    stack(state, 103.0, 100.0, r3=OPTIMIZER)
    for now in range(back + 6, back + 20):
        for node in ("n", "m"):
            apply(state, ev.NodeSampled(at=float(now), node=node, interval_s=1.0))
        apply(state, ev.Ticked(at=float(now)))
    assert state.hang_watch.hangs == [], "all wait in one collective"


def stopped(state: SessionState, rank: int, at: float, since: float, frames: list[str]) -> None:
    """It does not answer, and is read from outside."""
    threads = [ev.ThreadStack(name="main", frames=frames)]
    taken = ev.StackTaken(at=at, node="n", worker=f"w{rank}", rank=rank, silent_s=at - since, threads=threads, read_by="py-spy")
    apply(state, taken)


@pytest.mark.parametrize("answers_at_last", [False, True])
def test_a_rank_that_is_stopped_again_where_it_was_stopped_before_hangs_again(answers_at_last: bool) -> None:
    """It had done nothing there that could have been a pause, also where it has told its stack itself once it went on."""
    state = training(ranks=2)
    stack(state, 103.0, 100.0, r0=OPTIMIZER)
    stopped(state, 1, 105.0, 100.0, TRUNK)
    assert ticks(state, 105, 108) == 105
    if answers_at_last:
        stack(state, 109.0, 100.0, r1=TRUNK)
    for rank in range(2):
        steps(state, rank, at=115.0, first=10)
    assert state.hang_watch.current is None and state.log[-1].text == "training goes on after 15 s"
    stack(state, 118.0, 115.0, r0=OPTIMIZER)
    stopped(state, 1, 120.0, 115.0, TRUNK)
    assert ticks(state, 120, 128) == 120
    assert verdicts(state)[0].text.startswith("training hangs: rank 1 is stopped or deaf to signals")


def test_a_rank_that_is_stopped_where_training_has_paused_hangs_and_one_that_pauses_there_does_not() -> None:
    state = training(ranks=2)
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=fetching(61))
    assert ticks(state, 101, 105) is not None
    for rank in range(2):
        steps(state, rank, at=115.0, first=10)
    assert state.log[-1].text == "training goes on after 15 s; from now on a pause at that place is no hang"
    stack(state, 118.0, 115.0, r0=OPTIMIZER, r1=fetching(61))
    assert ticks(state, 118, 128) is None and verdicts(state)[0].kind == "pause"
    stopped(state, 1, 129.0, 115.0, fetching(61))
    assert ticks(state, 129, 130) == 129
    assert verdicts(state)[0].kind == "stall"


def test_a_rank_that_saves_may_be_deaf_until_it_is_written() -> None:
    state = training(ranks=2)
    stack(state, 103.0, 100.0, r0=OPTIMIZER)
    stopped(state, 1, 105.0, 100.0, checkpoint(61))
    assert ticks(state, 105, 180) is None


def test_where_no_rank_answers_their_pauses_are_remembered_all_the_same() -> None:
    """They cannot be asked: nothing says that they were stopped."""
    state = training(ranks=2)
    for again in (0.0, 20.0):
        stopped(state, 0, 103.0 + again, 100.0 + again, OPTIMIZER)
        stopped(state, 1, 103.0 + again, 100.0 + again, fetching(61))
        assert (ticks(state, 103 + again, 110 + again) is None) == bool(again)
        for rank in range(2):
            steps(state, rank, at=120.0 + again, first=10 + round(again))


def died_of_a_hang(first: int) -> SessionState:
    """Rank 1 of four is stopped; after 33 s Gloo gives up, and `first` dies."""
    state = training()
    for rank in range(4):
        apply(state, ev.WorkerStarted(at=81.0, host="localhost", local_rank=rank, rank=rank))
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r2=OPTIMIZER, r3=OPTIMIZER)
    stopped(state, 1, 105.0, 100.0, TRUNK)
    assert ticks(state, 105, 132) == 105
    apply(state, ev.WorkerExited(at=133.0, host="localhost", local_rank=first, rank=first, exit_code=1))
    return state


HUNG = "rank 1 on localhost hung for 33 s, stopped or deaf to signals, at train.py:40 train; then "


@pytest.mark.parametrize(("first", "then"), [(0, "rank 0 on localhost"), (1, "it")])
def test_who_hung_is_named_and_not_who_died_of_it(first: int, then: str) -> None:
    """From the death on to the end, and after it."""
    state = died_of_a_hang(first)
    for ended in (False, True):
        if ended:
            failure = ev.Failure(rank=first, host="localhost", exit_code=1)
            apply(state, ev.WorkerExited(at=134.0, host="localhost", local_rank=3, rank=3, exit_code=137, expected=True))
            apply(state, ev.JobEnded(at=135.0, exit_code=1, reason="failed", failure=failure))
        apply(state, ev.Ticked(at=140.0))
        (said,) = [verdict for verdict in verdicts(state) if verdict.kind in ("stall", "rank_died")]
        assert (said.kind, said.rank, said.host) == ("stall", 1, "localhost")
        assert said.text == f"{HUNG}{then} died: exit code 1"


def test_a_death_before_a_hang_or_after_its_end_is_told_as_ever() -> None:
    state = training()
    apply(state, ev.WorkerExited(at=101.0, host="localhost", local_rank=2, rank=2, exit_code=137, signal="SIGKILL"))
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=fetching(61), r3=OPTIMIZER)
    assert ticks(state, 103, 110) is not None
    assert [said.kind for said in verdicts(state)] == ["rank_died"]
    state = training()
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=fetching(61), r2=OPTIMIZER, r3=OPTIMIZER)
    assert ticks(state, 103, 110) is not None
    for rank in range(4):
        steps(state, rank, at=115.0, first=10)
    apply(state, ev.WorkerExited(at=116.0, host="localhost", local_rank=2, rank=2, exit_code=1))
    assert [said.kind for said in verdicts(state)] == ["rank_died"]


def operator(state: SessionState, at: float, signal: str, rank: int = 1) -> None:
    """Its node is heard all the time."""
    apply(state, ev.NodeSampled(at=at, node="n", interval_s=1.0))
    apply(state, ev.ActionTaken(at=at, action="signal", detail=f"{signal} to rank {rank}"))


def loading(ranks: int = 2) -> SessionState:
    """They have met, and no step has been made."""
    state = SessionState()
    apply(state, ev.JobStarted(at=80.0, job="j", command=["x"], np=ranks))
    for rank in range(ranks):
        apply(state, ev.WorkerStarted(at=81.0, host="localhost", local_rank=rank, rank=rank))
    return state


def told(state: SessionState) -> list[str]:
    return [verdict.text for verdict in verdicts(state) if verdict.kind in ("stall", "rank_died")]


@pytest.mark.parametrize("trains", [False, True])
def test_a_rank_that_an_operator_stopped_is_named_with_the_signal_until_it_goes_on(trains: bool) -> None:
    """Before the first step, and at once where steps were made; after SIGCONT it is one like all."""
    state = training(ranks=2) if trains else loading()
    operator(state, 101.0, "SIGSTOP")
    apply(state, ev.Ticked(at=104.0))
    where = "" if trains else " on localhost"
    assert told(state) == [f"rank 1{where} is under an operator's SIGSTOP since 3 s: the others wait"]
    assert (rank_status(state, 1), verdicts(state)[0].rank) == ("frozen", 1)
    assert "distmon signal 1 CONT" in verdicts(state)[0].try_first
    operator(state, 105.0, "SIGCONT")
    assert told(state) == [] and rank_status(state, 1) != "frozen"


def test_a_rank_whose_steps_go_on_is_frozen_no_more() -> None:
    """Somebody else let it go on; and another worker that takes its place was never stopped."""
    state = training(ranks=2)
    operator(state, 101.0, "SIGSTOP")
    steps(state, 1, at=110.0, first=10)
    assert told(state) == []
    operator(state, 111.0, "SIGSTOP")
    apply(state, ev.Ticked(at=113.0))
    assert told(state) == ["rank 1 is under an operator's SIGSTOP since 2 s: the others wait"]
    apply(state, ev.WorkerStarted(at=114.0, host="localhost", local_rank=1, rank=1))
    assert told(state) == []


def test_a_hang_of_a_rank_that_an_operator_stopped_says_so_and_so_does_what_comes_of_it() -> None:
    """Whether its stack is known or not; until steps come again it is told as what it was."""
    for known in (True, False):
        state = training(ranks=2)
        operator(state, 100.1, "SIGSTOP")
        stack(state, 103.0, 100.0, r0=OPTIMIZER)
        if known:
            stopped(state, 1, 105.0, 100.0, TRUNK)
        assert ticks(state, 105, 115) is not None
        where = ", at train.py:40 train" * known
        assert state.log[-1].text.endswith(f"for rank 1, which is under an operator's SIGSTOP{where}")
        assert told(state)[0].startswith("rank 1 is under an operator's SIGSTOP since ")
        operator(state, 116.0, "SIGCONT")
        hangs = f"training hangs: rank 1 was under an operator's SIGSTOP{where}; 1 waits in allreduce of the gradients for "
        assert told(state)[0].startswith(hangs)
        apply(state, ev.WorkerExited(at=133.0, host="localhost", local_rank=0, rank=0, exit_code=1))
        assert told(state) == [
            f"rank 1 hung for 33 s under an operator's SIGSTOP{where}; then rank 0 died: exit code 1"
        ]


def died_frozen(after_s: float = 38.0, signal: str = "", cause: str = "") -> SessionState:
    """Rank 1 of two is stopped by an operator before the first step, and rank 0 dies; as the launcher then ends it."""
    state = loading()
    operator(state, 100.0, "SIGSTOP")
    ends = ev.WorkerExited(at=100.0 + after_s, host="localhost", local_rank=0, rank=0, exit_code=1, signal=signal, cause=cause)
    apply(state, ends)
    apply(state, ev.WorkerExited(at=108.0 + after_s, host="localhost", local_rank=1, rank=1, exit_code=137, expected=True))
    return state


def test_of_a_job_that_died_before_its_first_step_the_rank_that_an_operator_stopped_is_named() -> None:
    state = died_frozen()
    for ended in (False, True):
        if ended:
            failure = ev.Failure(rank=0, host="localhost", exit_code=1)
            apply(state, ev.JobEnded(at=147.0, exit_code=1, reason="failed", failure=failure))
        assert told(state) == [
            "rank 1 on localhost hung for 38 s under an operator's SIGSTOP; then rank 0 on localhost died: exit code 1"
        ]
        assert verdicts(state)[0].rank == 1 and "SIGCONT" in verdicts(state)[0].try_first


@pytest.mark.parametrize("died", [{"after_s": 4.0}, {"signal": "SIGKILL", "cause": "out of memory"}])
def test_a_death_that_has_its_own_cause_is_not_laid_on_a_rank_that_was_stopped(died: dict[str, Any]) -> None:
    assert told(died_frozen(**died))[0].startswith("rank 0 on localhost died: ")


def test_where_training_hung_before_an_operator_stopped_it_the_hang_is_told() -> None:
    state = training(ranks=2)
    stack(state, 103.0, 100.0, r0=OPTIMIZER, r1=fetching(61))
    assert ticks(state, 101, 105) is not None
    operator(state, 120.0, "SIGSTOP")
    assert told(state)[0].startswith("training hangs: rank 1 is in train.py:61 fetch")


def test_a_round_that_forms_is_no_standstill() -> None:
    """As its ranks meet and load what they need, no step can come."""
    for forming in (False, True):
        state = training(2)
        if forming:
            places = [ev.RankPlace(rank=rank, host="h", local_rank=rank) for rank in range(3)]
            apply(state, ev.RanksAssigned(at=101.0, generation=1, world_size=3, places=places))
        apply(state, ev.NodeSampled(at=130.0, node="n", interval_s=1.0))
        assert ("stall" in {found.kind for found in verdicts(state)}) is not forming
