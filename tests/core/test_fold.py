"""The fold: measures from events, whatever the interleaving of sources."""

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.core import codec, measures
from distmon.core import events as ev
from distmon.core.batches import NOTHING, batch_of
from distmon.core.fold import apply, count_unknown
from distmon.core.state import SessionState
from distmon.core.steps import EXACT_PREFIX, HISTORY_COLUMNS, MAX_SERIES, History, JobSeries, RankSteps
from distmon.core.synthetic import Script, session
from distmon.core.verdicts import verdicts
from distmon.core.wall import wall_split

CASE = Path(__file__).parents[1] / "data/cases/ST-02"


def fold(events: Iterable[ev.AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def batch(
    first: int,
    durations_s: list[float],
    *,
    origin: float = 0.0,
    rank: int = 0,
    samples: int | None = 32,
    **columns: list[float],
) -> ev.StepsRecorded:
    starts, clock = [], 0
    for duration in durations_s:
        starts.append(clock)
        clock += round(duration * 1e9)
    return ev.StepsRecorded(
        at=origin + clock / 1e9,
        node="n",
        worker=f"w{rank}",
        rank=rank,
        generation=0,
        first_step=first,
        origin=origin,
        start_ns=starts,
        duration_ns=[round(d * 1e9) for d in durations_s],
        samples=None if samples is None else [samples] * len(durations_s),
        **{name: [round(v * 1e9) for v in column] for name, column in columns.items()},  # type: ignore[arg-type]
    )


def test_rolling_speed_after_a_resume_is_of_this_session() -> None:
    expected = json.loads((CASE / "expected.json").read_text())
    records = [json.loads(line) for line in (CASE / "resume.jsonl").read_text().splitlines()]
    state, seen = SessionState(), {}
    for before, after in itertools.pairwise(records):
        steps, elapsed = after["step"] - before["step"], after["t"] - before["t"]
        per_step = (after["samples_total"] - before["samples_total"]) // steps
        apply(state, batch(before["step"], [elapsed / steps] * steps, origin=before["t"], samples=per_step))
        apply(state, ev.Ticked(at=after["t"]))
        seen[after["t"]] = measures.rolling_throughput(state, expected["window_s"])
    for at, value in expected["rolling"].items():
        assert seen[float(at)] == pytest.approx(value, rel=1e-3)
    assert measures.session_mean_throughput(state) == pytest.approx(expected["session_mean_at_360"], abs=0.01)
    assert measures.rolling_steps_per_s(state) == pytest.approx(expected["steps_per_s_at_360"], rel=1e-3)


def test_split_adds_up_and_unseen_is_none() -> None:
    state = fold([batch(0, [0.1] * 40, input_wait_ns=[0.01] * 40, compute_ns=[0.06] * 40)])
    split = measures.step_split(measures.current_generation(state))
    assert split is not None
    assert split.input_wait == pytest.approx(0.01)
    assert split.compute == pytest.approx(0.06)
    assert split.exposed_communication is None
    assert split.rest == pytest.approx(0.03)


def test_a_split_adds_up_where_some_steps_have_none() -> None:
    """The phases are those of the steps in which they were seen, and no more than the mean step holds."""
    seen = batch(0, [0.1] * 30, input_wait_ns=[0.01] * 30, compute_ns=[0.06] * 30)
    split = measures.step_split(measures.current_generation(fold([seen, batch(30, [0.1] * 10, origin=3.0)])))
    assert split is not None and split.input_wait == pytest.approx(0.01) and split.compute == pytest.approx(0.06)
    assert split.step_s == pytest.approx(0.1) and split.rest == pytest.approx(0.03)
    mostly_shorter = measures.split_of((100, 4 * 10**9, 0, 0, 3 * 10**8, 18 * 10**8, 0, 0, 30, 30, 0, 0))
    assert mostly_shorter is not None and sum(value or 0 for value in mostly_shorter[1:]) == pytest.approx(mostly_shorter.step_s)
    assert mostly_shorter.input_wait == pytest.approx(0.04 / 7) and mostly_shorter.compute == pytest.approx(0.24 / 7)


def test_throughput_is_the_sum_over_ranks() -> None:
    state = fold(batch(0, [0.1] * 40, rank=rank) for rank in range(4))
    found = measures.throughput(measures.current_generation(state))
    assert found.mean == pytest.approx(4 * 32 / 0.1)
    assert found.median == pytest.approx(4 * 32 / 0.1)


def test_unknown_batch_size_has_no_throughput_but_a_reason() -> None:
    state = fold([batch(0, [0.1] * 40, samples=None)])
    found = measures.throughput(measures.current_generation(state))
    assert found.mean is None
    assert found.reason
    assert measures.rolling_throughput(state) is None
    assert measures.samples(state) is None


def test_wall_split_adds_up_to_the_duration() -> None:
    state = fold(session(Script(ranks=2, seconds=20)))
    wall = wall_split(state)
    assert wall is not None
    assert sum(v for v in wall.parts().values() if v is not None) == pytest.approx(measures.elapsed(state))
    assert wall.launch == pytest.approx(0.5)
    assert abs(wall.unexplained) < 0.01


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_the_late_rank_is_named_with_its_phase(ranks: int) -> None:
    state = fold(session(Script(ranks=ranks, seconds=20, slow_rank=ranks - 1, delay_s=0.02)))
    first = verdicts(state)[0]
    assert (first.kind, first.rank, first.phase) == ("straggler", ranks - 1, "input_wait")
    assert first.gain_percent is not None
    assert first.gain_percent[0] - 0.5 <= 100 * 0.02 / 0.12 <= first.gain_percent[1] + 0.5


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_job_has_no_straggler(seed: int) -> None:
    state = fold(session(Script(ranks=8, seconds=20, seed=seed)))
    assert "straggler" not in {v.kind for v in verdicts(state)}


def test_a_stall_is_named_while_it_lasts() -> None:
    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded
    running = [e for e in session(Script(ranks=2, seconds=10)) if not isinstance(e, over)]
    state = fold(running)
    assert "stall" not in {v.kind for v in verdicts(state)}
    apply(state, ev.Ticked(at=state.now + 30))
    assert verdicts(state)[0].kind == "stall"


def test_a_stall_while_a_host_is_lost_names_the_host() -> None:
    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded | ev.NodeLeft
    state = fold([e for e in session(Script(ranks=2, seconds=10)) if not isinstance(e, over)])
    lost, *others = state.nodes.values()
    for _ in range(20):
        for node in others:
            apply(state, ev.NodeSampled(at=state.now, node=node.node, interval_s=1.0))
        apply(state, ev.Ticked(at=state.now + 1))
    stall = verdicts(state)[0]
    assert (stall.kind, stall.host) == ("stall", lost.host)
    assert f"{lost.host} does not answer since" in stall.text


def test_what_was_trained_before_a_resume_is_done_and_not_left() -> None:
    def resumed(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.ProgressDeclared):
            return msgspec.structs.replace(event, epochs=9)
        epoch = getattr(event, "epoch", None)
        return event if epoch is None else msgspec.structs.replace(event, epoch=epoch + 7)

    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded | ev.NodeLeft
    events = [e for e in session(Script(ranks=2, seconds=9, steps_per_epoch=60)) if not isinstance(e, over)]
    state = fold(resumed(e) for e in events)
    found = measures.progress(state)
    assert found.epochs == 9 and found.fraction == pytest.approx((7 * 60 + found.step) / (9 * 60))
    assert found.eta_s == pytest.approx((2 * 60 - found.step) * Script().step_s, rel=0.05)


def test_the_time_left_is_told_once_there_are_steps_past_the_warm_up() -> None:
    """The first step of a graph that is compiled takes a hundred times as long as the others."""

    def taught(count: int, step_s: float) -> measures.Progress:
        durations = [int(1e9 * s) for s in (100 * step_s, *[step_s] * (count - 1))]
        starts = [sum(durations[:i]) for i in range(count)]
        declared = ev.ProgressDeclared(at=1_000.0, worker="w", rank=0, epochs=2, steps_per_epoch=500)
        steps = ev.StepsRecorded(
            at=1_000.0 + sum(durations) / 1e9,
            node="n",
            worker="w",
            rank=0,
            generation=0,
            origin=1_000.0,
            first_step=0,
            start_ns=starts,
            duration_ns=durations,
        )
        return measures.progress(fold([declared, steps]))

    for count in (1, 2, 5):
        assert taught(count, 0.05).fraction and taught(count, 0.05).eta_s is None
    for count in (20, 60, 500):
        assert taught(count, 0.05).eta_s == pytest.approx((1_000 - count) * 0.05, rel=0.01)
    assert taught(5, 20.0).eta_s == pytest.approx(995 * 20.0, rel=0.1)  # slow ones are not waited for


def test_a_silent_agent_of_the_launchers_own_machine_is_no_host_that_is_gone_and_no_stall() -> None:
    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded | ev.NodeLeft
    running = [e for e in session(Script(ranks=2, nodes=1, seconds=10)) if not isinstance(e, over)]
    state = fold(running)
    for rank in state.ranks.values():
        rank.host = "localhost"
    for _ in range(30):
        apply(state, ev.Ticked(at=state.now + 1))
    assert [v.kind for v in verdicts(state) if v.kind in ("stall", "agent_silent")] == ["agent_silent"]
    rate = measures.rolling_throughput(state)
    assert rate == pytest.approx(measures.rolling_throughput(fold(running)), rel=0.01)


def test_a_stall_after_ranks_have_ended_says_so() -> None:
    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded | ev.NodeLeft
    state = fold([e for e in session(Script(ranks=2, nodes=1, seconds=10)) if not isinstance(e, over)])
    apply(state, ev.WorkerExited(at=state.now, rank=0, local_rank=0, host=state.ranks[0].host, exit_code=0))
    for _ in range(30):
        for node in state.nodes:
            apply(state, ev.NodeSampled(at=state.now, node=node, interval_s=1.0))
        apply(state, ev.Ticked(at=state.now + 1))
    assert verdicts(state)[0].text.startswith("rank 0 ended; no rank has finished a step for")


def test_a_mark_says_which_rank_set_it() -> None:
    state = fold(ev.MarkSet(at=1.0, text="drop", rank=rank) for rank in (0, 1, None))
    assert [entry.text for entry in state.log] == ["mark of rank 0: drop", "mark of rank 1: drop", "mark: drop"]


@pytest.mark.parametrize("reset", [False, True])
def test_ranks_that_only_take_long_to_end_after_their_training_are_no_stall(*, reset: bool) -> None:
    """Their Pythons may need seconds for it on a busy machine. A teardown for a new round that never forms is no end."""
    over = ev.JobEnded | ev.WorkerExited | ev.SessionEnded | ev.NodeLeft
    state = fold([e for e in session(Script(ranks=2, nodes=1, seconds=10)) if not isinstance(e, over)])
    (node,), ended = state.nodes, max(r.last_end or 0.0 for g in state.generations.values() for r in g.ranks.values())
    for rank in range(2):
        who: dict[str, Any] = {"node": node, "worker": f"w{rank}", "rank": rank}
        if reset:
            apply(state, ev.TrainingInterrupted(at=ended + 0.1, **who, generation=0, cause="hosts_changed"))
        apply(state, ev.SpanRecorded(at=ended + 0.3, **who, span="teardown", started=ended + 0.2, duration_s=0.1))
    for _ in range(30):
        apply(state, ev.NodeSampled(at=state.now, node=node, interval_s=1.0))
        apply(state, ev.Ticked(at=state.now + 1))
    assert ("stall" in [verdict.kind for verdict in verdicts(state)]) is reset


def test_a_silent_node_goes_stale_then_lost_and_comes_back() -> None:
    state = fold([ev.NodeJoined(at=0.0, node="n", host="h"), ev.NodeSampled(at=1.0, node="n", interval_s=1.0)])
    node = state.nodes["n"]
    seen = []
    for now in (2.0, 5.0, 11.0):
        apply(state, ev.Ticked(at=now))
        seen.append(measures.node_status(state, node))
    apply(state, ev.NodeSampled(at=3.0, node="n", interval_s=1.0))
    seen.append(measures.node_status(state, node))
    apply(state, ev.NodeLeft(at=12.0, node="n"))
    seen.append(measures.node_status(state, node))
    assert seen == ["live", "stale", "lost", "live", "left"]


def test_energy_counts_no_rail_twice_and_invents_nothing() -> None:
    package = ev.PowerRail(name="package-0", watts=50.0, source="rapl")
    rails = [package, ev.PowerRail(name="core", watts=30.0, source="rapl", within="package-0")]
    samples = [ev.NodeSampled(at=float(t), node="n", interval_s=1.0, power=rails) for t in (1, 2, 3, 200)]
    means = measures.node_means(fold(samples).nodes["n"])
    assert (means.energy_j, means.power_w, means.energy_covers) == (200.0, 50.0, "package-0")
    assert measures.node_means(fold([ev.NodeSampled(at=1.0, node="n", interval_s=1.0)]).nodes["n"]).energy_j is None


def test_unknown_kinds_are_counted() -> None:
    state = SessionState()
    count_unknown(state, "hologram")
    assert state.unknown_kinds["hologram"] == 1


def test_long_runs_stay_bounded_and_exact_in_their_sums() -> None:
    rank, series, length = RankSteps(0), JobSeries(), 1000
    for i in range(3 * MAX_SERIES // length):
        one = batch(i * length, [0.001] * length, origin=float(i))
        rank.add(batch_of(one))
        series.add([batch_of(one)])
    assert len(series.reports) <= MAX_SERIES
    assert sum(series.reports) == rank.totals.steps == 3 * MAX_SERIES // length * length
    assert sum(one.steps for one in rank.first_batches) == length
    assert len(rank.checkpoints) <= EXACT_PREFIX * len(NOTHING)
    assert rank.steady(5).steps == rank.totals.steps - 5
    assert 0 < rank.steady(5000).steps <= rank.totals.steps - 5000
    assert len(rank.recent()) == 256
    assert rank.recent(3)[-1].step == rank.last_step


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 30), st.floats(0.1, 9)), max_size=40), st.integers(2, 20))
def test_history_loses_nothing(spreads: list[tuple[float, float, float]], limit: int) -> None:
    history = History(0, limit=limit)
    for start, length, amount in spreads:
        history.spread(start, start + length, [amount] * len(HISTORY_COLUMNS))
    for name in HISTORY_COLUMNS:
        column = history.column(name)
        assert sum(column) == pytest.approx(sum(amount for *_, amount in spreads))
        assert len(column) <= limit
    assert history.between("step", 0, 10_000) == pytest.approx(sum(amount for *_, amount in spreads))


def _source(event: ev.AnyEvent) -> str:
    """Events of one source keep their order; sources may interleave."""
    return getattr(event, "worker", None) or getattr(event, "node", None) or "launcher"


def _shown(state: SessionState) -> object:
    """The numbers that a screen shows."""
    generation = measures.current_generation(state)
    rows = measures.rank_rows(state)
    ranks = [(r.rank, r.step, r.recent, measures.steady_split(state, r.rank), r.samples_per_s) for r in rows]
    means = {name: measures.node_means(node) for name, node in state.nodes.items()}
    return (
        measures.throughput(generation),
        measures.step_split(generation),
        [rate and round(rate, 6) for rate in (measures.rolling_throughput(state), measures.session_mean_throughput(state))],
        ranks,
        means,
        measures.steps(state),
        state.job.exit_code,
    )


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_interleaving_of_sources_does_not_change_what_is_shown(seed: int) -> None:
    events = list(session(Script(ranks=3, nodes=3, seconds=8, gpus_per_node=1)))
    rng = random.Random(seed)
    queues: dict[str, list[ev.AnyEvent]] = {}
    for event in events[1:]:
        queues.setdefault(_source(event), []).append(event)
    shuffled = [events[0]]
    while queues:
        name = rng.choice(sorted(queues))
        shuffled.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    assert _shown(fold(shuffled)) == _shown(fold(events))


@given(st.integers(0, 300))
@settings(max_examples=25, deadline=None)
def test_a_recording_folds_to_what_was_live(cut: int) -> None:
    events = list(session(Script(ranks=2, seconds=10)))[: cut + 1]
    live = fold(events)
    assert fold(codec.decode_json(codec.encode_json(e)) for e in events) == live


def test_epochs_and_evaluations_that_come_thick_are_one_counted_line_each() -> None:
    state = SessionState()
    for epoch in range(5):
        apply(state, ev.EpochStarted(at=10.0 * epoch, worker="w0", rank=0, epoch=epoch))
        begun = 10.0 * epoch + 8
        span = ev.SpanRecorded(at=begun + 1, node="n0", worker="w0", rank=0, span="evaluation", started=begun, duration_s=0.5)
        apply(state, span)
    apply(state, ev.EpochStarted(at=500.0, worker="w0", rank=0, epoch=5))
    lines = [(entry.text, entry.count, entry.at) for entry in state.log]
    assert lines == [("epoch 5 started", 5, 40.0), ("evaluation took 0.50 s", 5, 48.0), ("epoch 6 started", 1, 500.0)]


def test_steps_whose_times_run_backwards_harm_nothing() -> None:
    """Of an agent that is damaged or hostile: the viewer's fold must live through it, and count each step once."""
    state = fold([batch(0, [0.5] * 8, origin=100.0)])
    backwards = msgspec.structs.replace(batch(8, [0.5, 0.5], origin=104.0), start_ns=[10**12, 0])
    apply(state, backwards)
    assert state.history is not None
    assert sum(state.history.column("steps")) == pytest.approx(10)
    generation = measures.current_generation(state)
    assert generation is not None
    assert generation.ranks[0].totals.steps == 10


@pytest.mark.parametrize(
    ("lost", "until", "said"), [(2959, 134.0, "2,959 records of n lost over 34 s: gone"), (1, 100.2, "1 record of n lost: gone")]
)
def test_a_gap_is_told_with_its_length(lost: int, until: float, said: str) -> None:
    gap = ev.GapFound(at=until, node="n", started=100.0, ended=until, lost_records=lost, cause="gone")
    assert [entry.text for entry in fold([gap]).log] == [said]
