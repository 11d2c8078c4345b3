"""What the probe must leave alone: other processes, output, exit codes, signals, scripts without a framework."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distmon.probe.ring import Message, RingReader, Span, Step

from .conftest import JOBS, PROBE, environment, read_ranks, ring_directory


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    """A private ring directory."""
    return ring_directory(tmp_path / "rings")


def python(rings: Path | None, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as the only rank of a job."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(rings, HOROVOD_RANK="0", **variables),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(("end", "code"), [("exit", 7), ("kill", -signal.SIGTERM), ("raise", 1)])
def test_children_output_and_end_are_as_without(torch_available: None, rings: Path, end: str, code: int) -> None:
    measured = python(rings, str(JOBS / "bystander_job.py"), "-", end)
    plain = python(None, str(JOBS / "bystander_job.py"), "-", end)
    assert measured.returncode == plain.returncode == code
    assert measured.stdout == plain.stdout
    assert measured.stdout.startswith("child\nshell\nthreads 1")
    assert measured.stderr == plain.stderr
    (rank,) = read_ranks(rings)
    assert rank.identity["size"] == 1
    assert rank.messages("unseen") == []


def test_only_what_initialises_horovod_gets_a_ring(torch_available: None, rings: Path) -> None:
    done = python(rings, "-c", "import torch, horovod.torch")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(rings.iterdir()) == []


SCRIPT = "import sys; print(sorted(m for m in sys.modules if '_distmon_probe' in m)); print(len(sys.meta_path))"


@pytest.mark.parametrize("variables", [{"DISTMON_DISABLE": "1"}, {"DISTMON_WORKER": "1"}, {"DISTMON_RING_DIR": "/nonexistent"}])
def test_a_script_without_framework_runs_untouched(rings: Path, variables: dict[str, str]) -> None:
    done = python(rings, "-c", SCRIPT, **variables)
    armed = "DISTMON_RING_DIR" in variables
    plain = python(None, "-c", SCRIPT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "[]"
    assert int(done.stdout.splitlines()[1]) - int(plain.stdout.splitlines()[1]) == int(armed)


@pytest.mark.parametrize("trouble", ["absent", "open to others", "full of names", "disabled"])
def test_training_goes_on_where_no_ring_can_be_made(torch_available: None, rings: Path, trouble: str) -> None:
    variables = {}
    if trouble == "absent":
        rings.rmdir()
    elif trouble == "open to others":
        rings.chmod(0o755)
    elif trouble == "full of names":
        variables["DISTMON_RING_RECORDS"] = "many"
    else:
        variables["DISTMON_DISABLE"] = "1"
    code = "import torch, horovod.torch as h; h.init(); print('rank', h.rank()); h.shutdown()"
    done = python(rings, "-c", code, **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rank 0\n", "")
    assert not rings.exists() or list(rings.iterdir()) == []


def test_the_users_own_sitecustomize_still_runs(rings: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own', __name__, __file__)\n")
    path = f"{PROBE / 'site'}:{tmp_path / 'own'}"
    done = python(rings, "-c", "import sitecustomize; print(sitecustomize.__file__)", PYTHONPATH=path)
    own = str(tmp_path / "own" / "sitecustomize.py")
    assert done.stdout == f"own sitecustomize {own}\n{own}\n"
    assert done.stderr == ""


def test_starting_a_python_that_is_no_worker_is_cheap(rings: Path) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    measured = set(python(rings, "-c", code).stdout.split())
    plain = set(python(None, "-c", code).stdout.split())
    # Debian's Python has a sitecustomize of its own.
    assert measured - plain <= {"sitecustomize"} <= measured


def test_a_failing_hook_is_said_once_and_training_goes_on(torch_available: None, rings: Path) -> None:
    code = (
        "import torch, horovod.torch as h\nimport torch.utils.data.dataloader as d\ndel d._BaseDataLoaderIter\n"
        "h.init()\nm = torch.nn.Linear(2, 1)\n"
        "o = h.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=.1), named_parameters=m.named_parameters())\n"
        "for _ in range(3): o.zero_grad(); m(torch.ones(4, 2)).sum().backward(); o.step()\n"
    )
    done = python(rings, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    (rank,) = read_ranks(rings)
    assert len(rank.steps()) == 3
    assert [message["field"] for message in rank.messages("unseen")].count("torch.utils.data.dataloader") == 1


def test_a_script_can_say_its_steps_itself(rings: Path) -> None:
    code = (
        "from distmon import probe\n"
        "for epoch in range(3):\n"
        "    with probe.phase('input_wait'): pass\n"
        "    with probe.phase('compute'): sum(range(1000))\n"
        "    probe.step(samples=32)\n"
        "with probe.span('evaluation', 'held out'): pass\n"
        "probe.metric('loss', 0.5)\nprobe.mark('done')\n"
    )
    done = python(rings, "-c", code, HOROVOD_SIZE="2")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = rings.glob("*.ring")
    records = RingReader(str(path)).read()
    steps = [record for record in records if isinstance(record, Step)]
    assert [(step.step, step.samples) for step in steps] == [(0, 32), (1, 32), (2, 32)]
    assert all(step.input_wait_ns and step.compute_ns and step.optimizer_ns is None for step in steps[1:])
    assert [record.name for record in records if isinstance(record, Span) and record.kind == "evaluation"] == ["held out"]
    said = [record.fields for record in records if isinstance(record, Message)]
    assert [fields["type"] for fields in said] == ["identity", "metrics", "mark"]
    assert (said[0]["rank"], said[0]["size"]) == (0, 2)
    assert (said[1]["values"], said[2]["text"]) == ({"loss": 0.5}, "done")


@pytest.mark.parametrize(
    ("told", "expected", "reasons"),
    [
        ("samples=32", 32, []),
        ("", None, ["no DataLoader or tf.data iterator feeds this loop, and probe.step() was not told samples="]),
        ("samples=-4", None, ["probe.step(samples=-4) is no number of samples"]),
        ("samples=10**30", None, [f"probe.step(samples={10**30}) is no number of samples"]),
        ("samples='abc'", None, ["probe.step(samples='abc') is no number of samples"]),
    ],
)
def test_samples_are_what_the_script_says_or_unknown(rings: Path, told: str, expected: int | None, reasons: list[str]) -> None:
    """All phases are told too: nothing that hooks count is missing but the samples."""
    code = (
        "from distmon import probe\n"
        "for step in range(4):\n"
        "    for name in ('input_wait', 'compute', 'exposed_communication', 'optimizer'):\n"
        "        with probe.phase(name): sum(range(100))\n"
        f"    probe.step({told})\n"
    )
    done = python(rings, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    (rank,) = read_ranks(rings)
    assert [step.samples for step in rank.steps()] == [expected] * 4
    said = [message["reason"] for message in rank.messages("unseen") if message["field"] == "samples"]
    assert said[: len(reasons)] == reasons and bool(said) == bool(reasons)


@pytest.mark.parametrize("path", [PROBE / "shim", None])
def test_the_calls_do_nothing_where_nobody_measures(path: Path | None) -> None:
    code = (
        "from distmon import probe\nprobe.step(samples=1)\nprobe.metric('a', 1)\nprobe.mark('b')\n"
        "with probe.phase('compute'), probe.span('evaluation'): print('ran')\n"
    )
    variables = {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(None, **variables), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_worker_killed_in_training_leaves_its_finished_steps(torch_available: None, rings: Path) -> None:
    code = (
        "import os, torch, horovod.torch as h\nh.init()\nm = torch.nn.Linear(2, 1)\n"
        "o = h.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=.1), named_parameters=m.named_parameters())\n"
        "for _ in range(50): o.zero_grad(); m(torch.ones(4, 2)).sum().backward(); o.step()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert python(rings, "-c", code).returncode == -signal.SIGKILL
    (rank,) = read_ranks(rings)
    assert [step.step for step in rank.steps()] == list(range(50))


def test_old_pythons_can_compile_the_probe() -> None:
    """Every file keeps to the syntax of Python 3.7, and to 3.6 but for nothing that it needs."""
    for path in PROBE.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 6))


def test_all_imports_are_of_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "horovod", "_frozen_importlib", "_frozen_importlib_external"}
    for path in PROBE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path
