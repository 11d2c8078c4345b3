"""TensorFlow jobs on two real ranks: the split comes out of the graph, and nothing of it is left in the result."""

import pytest

from distmon.probe.graph_times import LOST, NO_ITERATOR
from distmon.probe.ring import Step

from .conftest import PROBE, Job, Rank, median_ms, paired, run_job

SLOWED, EQUAL, ACCUMULATED, SEVERAL, COMPILED_TAPE, EAGER_TAPE = range(6)
COUNTS = (24, 24, 12, 24, 24, 24)
END_COUNTED, OWN_LOADER = range(2)
LOADED_COUNTS = (10, 24)
TRACED = "the step also traced its graph"


@pytest.fixture(scope="module")
def jobs(tensorflow_available: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Job]:
    """The same job with the probe, and without."""
    directory = tmp_path_factory.mktemp("tensorflow")
    return run_job("keras_job.py", directory / "with", PROBE), run_job("keras_job.py", directory / "without", None)


@pytest.fixture(scope="module")
def loading_jobs(tensorflow_available: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Job]:
    """Ways to load data, with the probe and without."""
    directory = tmp_path_factory.mktemp("loading")
    return (
        run_job("keras_job.py", directory / "with", PROBE, "ways_to_load"),
        run_job("keras_job.py", directory / "without", None, "ways_to_load"),
    )


@pytest.fixture(scope="module")
def ranks(jobs: tuple[Job, Job]) -> list[Rank]:
    return jobs[0].ranks


@pytest.fixture(scope="module")
def loading_ranks(loading_jobs: tuple[Job, Job]) -> list[Rank]:
    return loading_jobs[0].ranks


def test_the_job_is_the_same_with_and_without(jobs: tuple[Job, Job], loading_jobs: tuple[Job, Job]) -> None:
    for (measured, plain), counts in ((jobs, COUNTS), (loading_jobs, LOADED_COUNTS)):
        assert measured.returncode == plain.returncode == 0, (measured.stderr + plain.stderr)[-3000:]
        assert measured.stdout == plain.stdout
        assert len(measured.stdout) == 2 * len(counts)


def test_optimizer_steps_are_counted(ranks: list[Rank], loading_ranks: list[Rank]) -> None:
    for found, counts in ((ranks, COUNTS), (loading_ranks, LOADED_COUNTS)):
        for rank in found:
            for generation, count in enumerate(counts):
                assert [step.step for step in rank.steps(generation)] == list(range(count))


@pytest.mark.parametrize("generation", [SLOWED, COMPILED_TAPE, EAGER_TAPE])
def test_the_slowed_rank_shows_as_the_wait_of_the_other(ranks: list[Rank], generation: int) -> None:
    fast, slow = (rank.steps(generation)[2:] for rank in ranks)
    delay = median_ms([s.input_wait_ns - f.input_wait_ns for f, s in paired(fast, slow)])
    # On a busy machine one rank also computes longer than the other, or starts its step later.
    late = [s.arrival_ns - f.arrival_ns for f, s in paired(fast, slow)]
    waited = [f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(fast, slow)]
    unexplained = median_ms([wait - lateness for wait, lateness in zip(waited, late, strict=True)])
    assert delay >= 28
    assert abs(unexplained) < 0.10 * 30


def test_equal_ranks_show_no_wait_for_each_other(ranks: list[Rank]) -> None:
    first, second = (rank.steps(EQUAL)[2:] for rank in ranks)
    assert abs(median_ms([f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(first, second)])) < 10


def test_every_phase_is_seen_and_they_fit_into_the_step(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in (SLOWED, EQUAL, ACCUMULATED, COMPILED_TAPE, EAGER_TAPE):
            _check_whole(rank.steps(generation)[2:])


def _check_whole(steps: list[Step]) -> None:
    for step in steps:
        seen = (step.input_wait_ns, step.compute_ns, step.exposed_communication_ns, step.optimizer_ns)
        assert all(value is not None and value > 0 for value in seen)
        assert sum(value or 0 for value in seen) <= step.duration_ns


def test_samples_and_micro_batches_come_from_the_graph(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in (SLOWED, EQUAL, SEVERAL, COMPILED_TAPE, EAGER_TAPE):
            assert {step.samples for step in rank.steps(generation)} == {8}
        assert {(step.samples, step.micro_batches) for step in rank.steps(ACCUMULATED)} == {(16, 2)}


def test_several_steps_in_one_call_are_not_split_and_say_why(ranks: list[Rank]) -> None:
    for rank in ranks:
        for step in rank.steps(SEVERAL):
            assert step.compute_ns is step.exposed_communication_ns is step.input_wait_ns is step.optimizer_ns is None
        assert _reasons(rank, "compute") == [TRACED, "several steps in one call (steps_per_execution)"]


def _reasons(rank: Rank, field: str) -> list[object]:
    return [message["reason"] for message in rank.messages("unseen") if message["field"] == field]


def test_gathered_steps_are_those_that_horovod_reduces_also_past_the_end_of_the_data(loading_ranks: list[Rank]) -> None:
    for rank in loading_ranks:
        steps = rank.steps(END_COUNTED)
        # The fourth step begins with two batches of the first epoch, and Horovod counts its end too.
        expected = [*[(0, 32, 4)] * 3, (1, 24, 3), *[(1, 32, 4)] * 3, *[(2, 32, 4)] * 3]
        assert [(step.epoch, step.samples, step.micro_batches) for step in steps] == expected
        _check_whole(steps[1:])


def test_a_loader_of_ones_own_is_not_seen_and_that_is_why(loading_ranks: list[Rank]) -> None:
    for rank in loading_ranks:
        for step in rank.steps(OWN_LOADER)[1:]:
            assert step.input_wait_ns is step.samples is None
            assert step.compute_ns and step.exposed_communication_ns and step.optimizer_ns
        assert _reasons(rank, "input_wait") == [TRACED, NO_ITERATOR]
        assert _reasons(rank, "samples") == [NO_ITERATOR]
    slow = loading_ranks[1].steps(OWN_LOADER)[2:]
    assert median_ms([step.duration_ns - _in_the_graph_ns(step) for step in slow]) >= 28


def _in_the_graph_ns(step: Step) -> int:
    return sum(number or 0 for number in (step.compute_ns, step.exposed_communication_ns, step.optimizer_ns))


def test_no_clock_reading_is_lost(ranks: list[Rank], loading_ranks: list[Rank]) -> None:
    for rank in ranks + loading_ranks:
        assert LOST not in {message["reason"] for message in rank.messages("unseen")}


def test_keras_tells_epochs_progress_and_logs(ranks: list[Rank]) -> None:
    for rank in ranks:
        assert [step.epoch for step in rank.steps(SLOWED)] == [0] * 12 + [1] * 12
        progress = rank.messages("progress")[:2]
        assert [(m["epoch"], m["epochs"], m["steps_per_epoch"]) for m in progress] == [(0, 2, 12), (1, 2, 12)]
        metrics = rank.messages("metrics")[0]
        assert metrics["step"] == 12
        assert isinstance(metrics["values"], dict)
        assert set(metrics["values"]) == {"loss", "val_loss"}


def test_own_loops_have_epochs_too(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in (COMPILED_TAPE, EAGER_TAPE):
            epochs = [step.epoch for step in rank.steps(generation)]
            assert epochs == [epochs[0]] * 12 + [epochs[0] + 1] * 12


def test_evaluation_and_checkpoints_are_spans_of_their_own(ranks: list[Rank]) -> None:
    for rank in ranks:
        assert len(rank.spans("evaluation")) == 2 + 2 + 2
        assert all(span.duration_ns > 12 * 5e6 for span in rank.spans("evaluation")[2:])
        assert {span.name for span in rank.spans("sync")} == {"broadcast_variables"}
    assert [len(rank.spans("checkpoint")) for rank in ranks] == [2, 0]


def test_the_model_is_described(ranks: list[Rank]) -> None:
    model = ranks[0].messages("model")[0]
    assert (model["parameters"], model["tensors"], model["gradient_bytes"]) == (2762, 4, 4 * 2762)
