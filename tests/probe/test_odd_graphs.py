"""TensorFlow graphs that are no plain step, on two real ranks: they train the same, and what is said of them is true."""

import pytest

from distmon.probe.graph_times import NOTHING_REDUCED, SEVERAL
from distmon.probe.ring import Step

from .conftest import PROBE, Job, Rank, median_ms, run_job

CALLS = 8
CASES = ("effects", "nothing", "constant", "reductions", "batches", "ragged", "nested", "cond")


@pytest.fixture(scope="module")
def jobs(tensorflow_available: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Job]:
    """The same job with the probe, and without."""
    directory = tmp_path_factory.mktemp("odd")
    return run_job("odd_graphs_job.py", directory / "with", PROBE), run_job("odd_graphs_job.py", directory / "without", None)


@pytest.fixture(scope="module")
def ranks(jobs: tuple[Job, Job]) -> list[Rank]:
    found = jobs[0].ranks
    assert len(found) == 2
    return found


def steps(rank: Rank, case: str) -> list[Step]:
    """Those of a case but the first, which traces."""
    begin = CASES.index(case) * (CALLS + 1)
    return rank.steps()[begin + 1 : begin + CALLS + 1]


def reasons(rank: Rank, field: str) -> list[object]:
    return [message["reason"] for message in rank.messages("unseen") if message["field"] == field]


def test_they_train_the_same_with_and_without(jobs: tuple[Job, Job]) -> None:
    measured, plain = jobs
    assert measured.returncode == plain.returncode == 0, (measured.stderr + plain.stderr)[-3000:]
    assert measured.stdout == plain.stdout
    assert len(measured.stdout) == 2 * len(CASES)
    for rank in measured.ranks:
        assert len(rank.steps()) == len(CASES) * (CALLS + 1)


@pytest.mark.parametrize("case", ["effects", "nested", "ragged"])
def test_a_single_reduction_is_split_whole(ranks: list[Rank], case: str) -> None:
    for rank in ranks:
        for step in steps(rank, case):
            assert None not in (step.input_wait_ns, step.compute_ns, step.exposed_communication_ns, step.optimizer_ns)
            assert step.samples == 8


@pytest.mark.parametrize("case", ["nested", "ragged"])
def test_the_wait_for_the_batch_is_no_part_of_compute(ranks: list[Rank], case: str) -> None:
    for rank in ranks:
        assert median_ms([step.input_wait_ns for step in steps(rank, case)]) >= 30
        assert median_ms([step.compute_ns for step in steps(rank, case)]) < 25


def test_what_lies_between_several_reductions_is_not_told_apart(ranks: list[Rank]) -> None:
    for rank in ranks:
        for case, samples in (("reductions", 8), ("batches", 16)):
            for step in steps(rank, case):
                assert step.compute_ns is step.optimizer_ns is None
                assert (step.input_wait_ns is None) == (case == "batches")
                assert 0 < (step.exposed_communication_ns or 0) < step.duration_ns
                assert step.samples == samples
        slow = steps(rank, "reductions")
        assert median_ms([step.duration_ns - (step.exposed_communication_ns or 0) for step in slow]) >= 30
        assert SEVERAL in reasons(rank, "compute")


def test_a_call_that_reduces_nothing_says_so(ranks: list[Rank]) -> None:
    for rank in ranks:
        assert all(step.exposed_communication_ns is None for step in steps(rank, "nothing"))
        reduced = [step.exposed_communication_ns is not None for step in steps(rank, "cond")]
        assert reduced == [False, True] * (CALLS // 2)
        assert all(step.compute_ns >= 30e6 for step in steps(rank, "cond") if step.compute_ns is not None)
        assert NOTHING_REDUCED in reasons(rank, "exposed_communication")
