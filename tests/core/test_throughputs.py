"""Throughput of each rank and of each epoch."""

import random
from collections.abc import Sequence

import pytest

from distmon.core import events as ev
from distmon.core import measures, step_sums
from distmon.core.epoch_throughput import EpochThroughput, epoch_throughputs
from distmon.core.fold import apply
from distmon.core.overall import RankThroughput, rank_overalls
from distmon.core.quantiles import median
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.timeline import Timeline
from distmon.replay.report import model
from distmon.replay.report.plots import plots
from distmon.replay.report.render import to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise


def steps(
    durations_s: Sequence[float],
    samples: Sequence[int | None] | None,
    *,
    rank: int = 0,
    generation: int = 0,
    first: int = 0,
    begun: float = 1_000.0,
    epoch: int | None = None,
) -> ev.StepsRecorded:
    ns = [round(d * 1e9) for d in durations_s]
    return ev.StepsRecorded(
        at=begun + sum(durations_s),
        node="n",
        worker=f"w{rank}-{generation}",
        rank=rank,
        generation=generation,
        first_step=first,
        origin=begun,
        start_ns=[sum(ns[:i]) for i in range(len(ns))],
        duration_ns=ns,
        samples=None if samples is None else list(samples),
        epoch=epoch,
    )


def folded(*events: ev.AnyEvent) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def in_batches(durations_s: list[float], samples: list[int]) -> list[ev.AnyEvent]:
    """Of 100 steps each, as agents send them."""
    return [
        steps(durations_s[i : i + 100], samples[i : i + 100], first=i, begun=1_000.0 + i) for i in range(0, len(samples), 100)
    ]


def of_ranks(*events: ev.AnyEvent) -> list[RankThroughput]:
    return [overall.throughput for overall in rank_overalls(folded(*events))]


def test_ranks_with_batches_of_their_own_have_each_their_own_throughput() -> None:
    uneven = [steps([0.1] * 40, [8] * 40), steps([0.1] * 39 + [0.05], [16] * 39 + [4], rank=1)]
    first, second = of_ranks(*uneven)
    assert first.samples == 320 and (first.mean, first.median) == pytest.approx((80.0, 80.0))
    assert second.mean == pytest.approx((39 * 16 + 4) / 3.95) and second.median == pytest.approx(160.0)


def test_warm_up_is_no_part_of_a_ranks_throughput_in_any_generation() -> None:
    slow_start = [2.0] * 3 + [0.1] * 60
    (found,) = of_ranks(
        steps(slow_start, [8] * 63), steps(slow_start, [8] * 63, generation=1, begun=2_000.0), steps([9.0], [8], generation=2)
    )
    assert found.samples == 8 * 127 and (found.mean, found.median) == pytest.approx((80.0, 80.0))


@pytest.mark.parametrize("count", [700, 3_000, 6_000])
def test_the_median_is_that_of_all_batches_however_many(count: int) -> None:
    source = random.Random(1)
    durations = [source.uniform(0.05, 0.15) for _ in range(count)]
    samples = [8 if i % 50 else 3 for i in range(count)]
    (found,) = of_ranks(*in_batches(durations, samples))
    assert found.mean == pytest.approx(sum(samples) / sum(durations), rel=0.01)
    assert found.median == pytest.approx(median(s / d for s, d in zip(samples, durations, strict=True)), rel=0.02)


def test_what_is_not_known_of_a_rank_is_told_with_its_reason() -> None:
    varied = [8 + i % 7 for i in range(3_000)]
    (found,) = of_ranks(*in_batches([0.1] * 3_000, varied))
    assert found.mean and found.median is None and "differ in size" in found.no_median
    assert of_ranks(steps([0.1] * 40, None)) == [RankThroughput(reason="the number of samples in a batch was not seen")]
    (few,) = of_ranks(steps([0.1] * 5, [8] * 5))
    assert few.samples == 40 and few.mean is None and few.reason.startswith("not enough steps")
    state = folded(steps([0.1] * 40, None), steps([0.1] * 40, None, rank=1))
    assert summarise(state).reasons["ranks.0+1.mean_samples_per_s"] == "the number of samples in a batch was not seen"


@pytest.mark.parametrize("alone", [False, True])
def test_a_step_whose_samples_are_not_known_takes_nothing_from_the_others(alone: bool) -> None:
    """In a batch with others, or in one of its own."""
    reason = "probe.step(samples='x') is no number of samples"
    told: list[int | None] = [8] * 20 + [None] + [8] * 39
    batches = [steps([0.1] * 20, told[:20]), steps([0.1], [None], first=20, begun=1_002.0)]
    batches.append(steps([0.1] * 39, told[21:], first=21, begun=1_002.1))
    unseen = ev.PhaseUnseen(at=1_003.0, worker="w0-0", rank=0, field="samples", reason=reason)
    state = folded(*(batches if alone else [steps([0.1] * 60, told)]), unseen)
    assert measures.samples(state) == 59 * 8
    found = measures.throughput(measures.current_generation(state))
    assert (found.mean, found.median, found.p5) == pytest.approx((80.0, 80.0, 80.0))
    (rank,) = rank_overalls(state)
    assert rank.throughput.samples == 59 * 8 and (rank.throughput.mean, rank.throughput.median) == pytest.approx((80.0, 80.0))
    assert measures.session_mean_throughput(state) == pytest.approx(80.0)
    report = summarise(state)
    assert report.reasons["ranks.0.samples"] == f"not seen in 1 of 60 steps: {reason}"
    assert any(note.startswith("the samples of 1 of 60 steps of single ranks are not known") for note in report.notes)
    assert measures.samples(folded(steps([0.1] * 60, [8, None] * 30))) is None


def test_steps_that_came_as_sums_have_a_mean_and_no_median() -> None:
    sums = step_sums.summed(steps([0.05, 0.15] * 20, [8] * 40))
    assert sums is not None
    (found,) = of_ranks(sums)
    assert found.mean == pytest.approx(80.0) and found.median is None and "sums of about a second" in found.no_median


@pytest.mark.parametrize(("begun", "bins"), [(1_010.1, 1), (1_009.922, 2)], ids=["in one bin", "most in one that is not full"])
def test_a_job_of_less_than_a_second_is_drawn_as_fast_as_it_was(begun: float, bins: int) -> None:
    """Time before its first step and after its last is none in which it trained."""
    started = ev.SessionStarted(at=1_000.0, session_id="s", distmon_version="0")
    state = folded(started, steps([0.0084] * 100, [32] * 100, begun=begun))
    assert [value for _, value in measures.throughput_history(state)] == [pytest.approx(32 / 0.0084, rel=1e-3)]
    assert [value for _, value in plots(state, Timeline()).throughput] == [pytest.approx(32 / 0.0084, rel=1e-3)] * bins


def test_the_first_second_of_a_job_is_drawn_as_fast_as_the_others() -> None:
    started = ev.SessionStarted(at=1_000.0, session_id="s", distmon_version="0")
    seconds = [steps([0.01] * 100, [32] * 100, first=100 * i, begun=1_000.9 + i) for i in range(5)]
    found = measures.throughput_history(folded(started, *seconds))
    assert [value for _, value in found] == pytest.approx([3_200.0] * 5, rel=1e-3)


def of_epochs(*events: ev.AnyEvent) -> list[EpochThroughput]:
    return epoch_throughputs(folded(*events))


def test_an_epoch_counts_all_ranks_and_its_short_last_batch() -> None:
    found = of_epochs(
        steps([0.5] * 4, [8, 8, 8, 2], epoch=11),
        steps([0.5] * 4, [4, 4, 4, 1], epoch=11, rank=1, begun=1_000.1),
        steps([0.25] * 4, [8, 8, 8, 2], epoch=12, first=4, begun=1_005.0),
    )
    assert [e.epoch for e in found] == [11, 12]  # of a job that goes on with another's epochs
    assert found[0].samples == 39 and found[0].training_s == pytest.approx(2.1)
    assert found[0].samples_per_s == pytest.approx(39 / 2.1) and found[1].samples_per_s == pytest.approx(26.0)


def test_an_epoch_that_a_restart_undid_tells_what_was_done_again_and_the_pause_does_not_count() -> None:
    restored = ev.StateRestored(
        at=1_030.0, node="n", worker="w0-0", rank=0, generation=0, committed_generation=0, committed_steps=6
    )
    found = of_epochs(
        steps([1.0] * 5, [8] * 5, epoch=0),
        steps([1.0] * 4, [8] * 4, epoch=1, first=5, begun=1_005.0),
        steps([1.0] * 2, [8] * 2, epoch=2, first=9, begun=1_009.0),
        restored,
        steps([1.0] * 4, [8] * 4, generation=1, epoch=1, begun=1_040.0),
        steps([1.0] * 5, [8] * 5, generation=1, epoch=2, first=4, begun=1_044.0),
    )
    assert [(e.samples, e.redone_samples, e.training_s) for e in found] == [(40, 0, 5.0), (64, 24, 8.0), (56, 16, 7.0)]
    assert [e.samples_per_s for e in found] == [8.0, 8.0, 8.0]
    assert found[1].duration_s == 39.0


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([steps([1.0], None, epoch=0)], "the number of samples"),
        ([steps([1.0], [8], epoch=i % 2, first=i, begun=1_000.0 + i) for i in range(4)], "its number came again"),
    ],
)
def test_an_epoch_without_a_throughput_tells_why(events: list[ev.AnyEvent], reason: str) -> None:
    found = of_epochs(*events)
    assert all(epoch.samples_per_s is None and reason in epoch.reason for epoch in found)
    told = summarise(folded(*events))
    assert all(epoch.samples_per_s is None for epoch in told.epochs)
    assert any(key.startswith("epochs.0") and reason in why for key, why in told.reasons.items())


def test_a_job_that_tells_no_epochs_says_so() -> None:
    assert "no step was told with its epoch" in summarise(folded(steps([0.1] * 20, [8] * 20))).reasons["epochs"]
    assert "epochs" not in summarise(SessionState()).reasons


def test_of_many_epochs_text_has_the_first_the_slowest_and_the_last_and_json_all() -> None:
    told = summarise(folded(*(steps([2.0 if i == 30 else 1.0], [8], epoch=i, first=i, begun=1_000.0 + 3 * i) for i in range(60))))
    assert len(told.epochs) == 60
    lines = _part(told, "THROUGHPUT OF EACH EPOCH")
    assert len(lines) <= 12
    assert [line.split()[0] for line in lines if "…" not in line][:2] == ["1", "2"] and lines[-1].split()[0] == "60"
    assert any(line.split()[0] == "31" and line.endswith("slowest") for line in lines)
    whole = next(section.table for section in sections(told) if section.title.startswith("Throughput of each epoch"))
    assert whole and len(whole.rows) == 60  # what HTML shows


def test_the_report_has_every_ranks_throughput_and_they_add_up_to_the_total() -> None:
    state = folded(*session(Script(ranks=4, nodes=2, seconds=30)))
    told = summarise(state)
    assert sum(rank.mean_samples_per_s or 0.0 for rank in told.ranks) == pytest.approx(
        told.throughput.mean_samples_per_s, rel=0.01
    )
    assert [line.split()[0] for line in _part(told, "THROUGHPUT OF EACH RANK")] == ["0", "1", "2", "3"]


def _part(told: model.Session, title: str) -> list[str]:
    """The rows of the table under a title."""
    block = next(block for block in to_text(sections(told)).split("\n\n") if block.startswith(title))
    return block.splitlines()[2:]
