"""TensorFlow jobs on two real ranks: the split comes out of the graph, and nothing of it is left in the result."""

import pytest

from .conftest import PROBE, Job, Rank, median_ms, paired, run_job

SLOWED, EQUAL, ACCUMULATED, SEVERAL, COMPILED_TAPE, EAGER_TAPE = range(6)
COUNTS = (24, 24, 12, 24, 24, 24)


@pytest.fixture(scope="module")
def jobs(tensorflow_available: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Job]:
    """The same job with the probe, and without."""
    directory = tmp_path_factory.mktemp("tensorflow")
    return run_job("keras_job.py", directory / "with", PROBE), run_job("keras_job.py", directory / "without", None)


@pytest.fixture(scope="module")
def ranks(jobs: tuple[Job, Job]) -> list[Rank]:
    return jobs[0].ranks


def test_the_job_is_the_same_with_and_without(jobs: tuple[Job, Job]) -> None:
    measured, plain = jobs
    assert measured.returncode == plain.returncode == 0, (measured.stderr + plain.stderr)[-3000:]
    assert measured.stdout == plain.stdout
    assert len(measured.stdout) == 12


def test_optimizer_steps_are_counted(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation, count in enumerate(COUNTS):
            assert [step.step for step in rank.steps(generation)] == list(range(count))


@pytest.mark.parametrize("generation", [SLOWED, COMPILED_TAPE, EAGER_TAPE])
def test_the_slowed_rank_shows_as_the_wait_of_the_other(ranks: list[Rank], generation: int) -> None:
    fast, slow = (rank.steps(generation)[2:] for rank in ranks)
    delay = median_ms([s.input_wait_ns - f.input_wait_ns for f, s in paired(fast, slow)])
    waited = median_ms([f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(fast, slow)])
    # The waiting rank spins, and on a busy machine the slow one then also computes longer.
    late = median_ms([s.until_collective_ns - f.until_collective_ns for f, s in paired(fast, slow)])
    assert delay >= 28
    assert waited == pytest.approx(late, rel=0.10)


def test_equal_ranks_show_no_wait_for_each_other(ranks: list[Rank]) -> None:
    first, second = (rank.steps(EQUAL)[2:] for rank in ranks)
    assert abs(median_ms([f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(first, second)])) < 10


def test_every_phase_is_seen_and_they_fit_into_the_step(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in (SLOWED, EQUAL, ACCUMULATED, COMPILED_TAPE, EAGER_TAPE):
            for step in rank.steps(generation)[2:]:
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
        reasons = {str(message["reason"]) for message in rank.messages("unseen")}
        assert reasons == {"the step also traced its graph", "several steps in one call (steps_per_execution)"}


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
