"""Runs real two-rank Horovod jobs, with and without the probe, and reads their rings."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distmon.probe.ring import Message, Record, RingReader, Span, Step

PROBE = Path(__file__).parents[2] / "probe"
JOBS = Path(__file__).parent / "jobs"


@dataclass
class Rank:
    """What one worker's ring held."""

    records: list[Record]
    identity: dict[str, object] = field(default_factory=dict)

    def steps(self, generation: int = 0) -> list[Step]:
        return [record for record in self.records if isinstance(record, Step) and record.generation == generation]

    def spans(self, kind: str) -> list[Span]:
        return [record for record in self.records if isinstance(record, Span) and record.kind == kind]

    def cut(self, start_ns: int, end_ns: int) -> int:
        """Nanoseconds of evaluations, checkpoints and the like that began between two times."""
        spans = [record for record in self.records if isinstance(record, Span) and record.kind != "initialisation"]
        return sum(span.duration_ns for span in spans if start_ns <= span.start_ns < end_ns)

    def messages(self, kind: str) -> list[dict[str, object]]:
        found = [record.fields for record in self.records if isinstance(record, Message)]
        return [fields for fields in found if fields["type"] == kind]


@dataclass
class Job:
    """A finished job: its exit code, its output without prefixes, and its ranks in order."""

    returncode: int
    stdout: list[str]
    stderr: str
    ranks: list[Rank]


def probe_in_python(directory: Path) -> Path:
    """A copy of the probe as it is where its machine code could not be built."""
    return Path(shutil.copytree(PROBE, directory / "probe", ignore=shutil.ignore_patterns("*.so", "__pycache__")))


def environment(rings: Path | None, folder: Path = PROBE, /, **more: str) -> dict[str, str]:
    """The environment of a job: as `distmon run` makes it with `rings`, an ordinary one without."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("DISTMON_", "HOROVOD_"))}
    variables.update(TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", PYTHONHASHSEED="0")
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    if rings is not None:
        variables["PYTHONPATH"] = f"{folder / 'site'}:{folder / 'shim'}"
        variables["DISTMON_RING_DIR"] = str(rings)
    return {**variables, **more}


def ring_directory(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def read_ranks(rings: Path) -> list[Rank]:
    """The ranks whose rings are in `rings`, in the order of their first rank."""
    ranks = []
    for path in rings.glob("*.ring"):
        reader = RingReader(str(path))
        rank = Rank(reader.read())
        assert (reader.lost, reader.torn) == (0, 0)
        reader.close()
        rank.identity = rank.messages("identity")[0]
        ranks.append(rank)
    return sorted(ranks, key=lambda rank: int(str(rank.identity["rank"])))


def run_job(script: str, directory: Path, probe: Path | None, *arguments: str, **variables: str) -> Job:
    """Run `jobs/script` on two ranks under plain horovodrun, measured by the probe at `probe`, or not.

    The jobs initialise Horovod several times, and on a busy machine Gloo may not find the other rank again (3 of 22 runs
    without the probe, at load 7): such a run says nothing of the probe and is made again.
    """
    for attempt in range(3):
        job = _run_job(script, directory / str(attempt), probe, *arguments, **variables)
        if job.returncode == 0 or "gloo::IoException" not in job.stderr:
            break
    return job


def _run_job(script: str, directory: Path, probe: Path | None, *arguments: str, **variables: str) -> Job:
    directory.mkdir(parents=True)
    rings = ring_directory(directory / "rings") if probe else None
    done = subprocess.run(
        ["horovodrun", "-np", "2", "--disable-cache", sys.executable, str(JOBS / script), str(directory), *arguments],
        env=environment(rings, probe or PROBE, **variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line.partition("<stdout>:") for line in done.stdout.splitlines()]
    stdout = sorted(f"{prefix}{text}" for prefix, _, text in lines if text)
    return Job(done.returncode, stdout, done.stderr, read_ranks(rings) if rings is not None and done.returncode == 0 else [])


def median_ms(values: Sequence[int | None]) -> float:
    """Median in milliseconds; every value must have been seen."""
    seen = sorted(value for value in values if value is not None)
    assert len(seen) == len(values)
    return seen[len(seen) // 2] / 1e6


class SeenStep:
    """A step whose wait for others was seen; what was not seen else counts as none."""

    def __init__(self, step: Step) -> None:
        assert step.exposed_communication_ns is not None
        self.exposed_communication_ns = step.exposed_communication_ns
        self.input_wait_ns = step.input_wait_ns or 0
        self.arrival_ns = step.start_ns + self.input_wait_ns + (step.compute_ns or 0)


def paired(one: list[Step], other: list[Step]) -> list[tuple[SeenStep, SeenStep]]:
    """The same steps of two ranks."""
    return [(SeenStep(a), SeenStep(b)) for a, b in zip(one, other, strict=True)]


@pytest.fixture(scope="session")
def torch_available() -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("horovod") is None:
        pytest.skip("PyTorch or Horovod is not installed")


@pytest.fixture(scope="session")
def tensorflow_available() -> None:
    if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("horovod") is None:
        pytest.skip("TensorFlow or Horovod is not installed")
