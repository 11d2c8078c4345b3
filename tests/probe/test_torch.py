"""PyTorch jobs on two real ranks: known truths about where the time goes, and no trace in the result."""

import pytest

from distmon.probe.ring import Step

from .conftest import PROBE, Job, Rank, median_ms, paired, probe_in_python, run_job

BY_HAND, SLOWED, EQUAL, ACCUMULATED, SPARSE = range(5)


@pytest.fixture(scope="module")
def jobs(torch_available: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """The same job with the probe, with the probe where it could not be compiled, and without."""
    directory = tmp_path_factory.mktemp("torch")
    assert list(PROBE.glob("_native*.so")), "the probe's machine code is not built: make clean test"
    probes = {"compiled": PROBE, "in python": probe_in_python(directory), "without": None}
    return {name: run_job("torch_job.py", directory / name.replace(" ", "_"), probe) for name, probe in probes.items()}


@pytest.fixture(scope="module", params=["compiled", "in python"])
def ranks(request: pytest.FixtureRequest, jobs: dict[str, Job]) -> list[Rank]:
    return jobs[request.param].ranks


def test_the_job_is_the_same_with_and_without(jobs: dict[str, Job]) -> None:
    for job in jobs.values():
        assert job.returncode == 0, job.stderr[-3000:]
        assert job.stdout == jobs["without"].stdout
        assert len(job.stdout) == 10
        assert all("weights" in line for line in job.stdout)


def test_every_rank_says_who_it_is(ranks: list[Rank]) -> None:
    for number, rank in enumerate(ranks):
        identities = rank.messages("identity")
        assert [identity["generation"] for identity in identities] == list(range(5))
        assert {identity["rank"] for identity in identities} == {number}
        assert identities[0]["size"] == 2
        assert identities[0]["horovod"] == "0.28.1"
        assert str(identities[0]["script"]).endswith("torch_job.py")
        assert len(rank.spans("rendezvous")) == len(rank.spans("teardown")) == 5


def test_steps_are_counted_per_generation(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation, count in enumerate((12, 24, 24, 6, 12)):
            assert [step.step for step in rank.steps(generation)] == list(range(count))


def test_the_slowed_rank_shows_as_the_wait_of_the_other(ranks: list[Rank]) -> None:
    fast, slow = (rank.steps(SLOWED)[1:] for rank in ranks)
    delay = median_ms([s.input_wait_ns - f.input_wait_ns for f, s in paired(fast, slow)])
    # On a busy machine one rank also computes longer than the other, or starts its step later.
    late = [s.arrival_ns - f.arrival_ns for f, s in paired(fast, slow)]
    waited = [f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(fast, slow)]
    unexplained = median_ms([wait - lateness for wait, lateness in zip(waited, late, strict=True)])
    assert delay >= 29
    assert abs(unexplained) < 0.10 * 30
    assert median_ms([step.input_wait_ns for step in fast]) < 6


def test_equal_ranks_show_no_wait_for_each_other(ranks: list[Rank]) -> None:
    first, second = (rank.steps(EQUAL)[1:] for rank in ranks)
    differences = [f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(first, second)]
    assert abs(median_ms(differences)) < 10


def test_phases_never_exceed_the_step_and_steps_fill_the_training(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in range(5):
            steps = rank.steps(generation)
            for step in steps:
                seen = (step.input_wait_ns, step.compute_ns, step.exposed_communication_ns, step.optimizer_ns)
                assert all(value is None or value >= 0 for value in seen)
                assert sum(value or 0 for value in seen) <= step.duration_ns
            cut = rank.cut(steps[0].start_ns, _end(steps[-1]))
            assert sum(step.duration_ns for step in steps) + cut == _end(steps[-1]) - steps[0].start_ns


def test_samples_epochs_and_micro_batches(ranks: list[Rank]) -> None:
    for rank in ranks:
        assert {step.samples for step in rank.steps(SLOWED)} == {8}
        assert {step.samples for step in rank.steps(ACCUMULATED)} == {16}
        assert {step.micro_batches for step in rank.steps(ACCUMULATED)} == {2}
        epochs = [step.epoch for step in rank.steps(SLOWED)]
        assert epochs == [epochs[0]] * 12 + [epochs[0] + 1] * 12
        progress = rank.messages("progress")
        assert [message["steps_per_epoch"] for message in progress] == [12, 12, 12, 12, 6]


def test_clipping_by_hand_still_shows_waiting_and_stepping(ranks: list[Rank]) -> None:
    for rank in ranks:
        for step in rank.steps(ACCUMULATED):
            assert step.exposed_communication_ns and step.optimizer_ns


def test_gradients_averaged_by_hand_count_as_communication(ranks: list[Rank]) -> None:
    fast, slow = (rank.steps(BY_HAND)[1:] for rank in ranks)
    waited = median_ms([f.exposed_communication_ns - s.exposed_communication_ns for f, s in paired(fast, slow)])
    assert 15 < waited < 30


def test_what_no_loader_shows_is_none_with_its_reason(ranks: list[Rank]) -> None:
    for rank in ranks:
        for generation in (BY_HAND, SPARSE):
            assert {step.input_wait_ns for step in rank.steps(generation)} == {None}
            assert {step.samples for step in rank.steps(generation)} == {None}
        assert {message["field"] for message in rank.messages("unseen")} == {"input_wait", "samples"}


def test_evaluation_and_checkpoints_are_spans_of_their_own(ranks: list[Rank]) -> None:
    for rank in ranks:
        evaluations = rank.spans("evaluation")
        assert len(evaluations) == 4
        assert all(span.duration_ns >= 40e6 for span in evaluations)
        assert max(step.duration_ns for step in rank.steps(EQUAL)[1:12]) < 2e9
    assert [len(rank.spans("checkpoint")) for rank in ranks] == [4, 0]


def test_the_model_is_described(ranks: list[Rank]) -> None:
    model = ranks[0].messages("model")[0]
    assert model["parameters"] == 2762
    assert model["gradient_bytes"] == 4 * 2762
    assert (model["tensors"], model["optimizer"], model["operation"]) == (4, "SGD", "Average")


def test_initialisation_fills_the_time_before_the_first_step(ranks: list[Rank]) -> None:
    for rank in ranks:
        first = rank.steps(SLOWED)[0]
        rendezvous = rank.spans("rendezvous")[SLOWED]
        begun = rendezvous.start_ns + rendezvous.duration_ns
        spans = [span for span in rank.spans("initialisation") + rank.spans("sync") if begun <= span.start_ns]
        spans = [span for span in spans if span.start_ns < first.start_ns]
        covered = sum(span.duration_ns for span in spans)
        assert covered == pytest.approx(first.start_ns - begun, abs=5e6)


def _end(step: Step) -> int:
    return step.start_ns + step.duration_ns
