"""Whole jobs under the real horovod.runner: exit codes, first failures, output of every kind, other environments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distmon.core.events import (
    JobStarted,
    LaunchProgressed,
    NoticeGiven,
    OutputWritten,
    RanksAssigned,
    WorkerExited,
    WorkerStarted,
)
from tests.launcher.driving import CASES, alive, environment, python, run

RANK = "import os, sys; rank = int(os.environ['HOROVOD_RANK']); "


def test_a_job_is_told_from_launch_to_end() -> None:
    job = run("-np", "2", *python(RANK + "print('hello from', rank); print('warned', file=sys.stderr)"))
    assert job.exit_code == 0, job.stderr
    assert job.of(JobStarted)[0].np == 2
    assert [event.stage for event in job.of(LaunchProgressed)][-1] == "rendezvous"
    (assigned,) = job.of(RanksAssigned)
    assert [(p.rank, p.host, p.local_rank) for p in assigned.places] == [(0, "localhost", 0), (1, "localhost", 1)]
    assert {event.rank for event in job.of(WorkerStarted)} == {0, 1}
    assert [(job.lines(rank), job.lines(rank, "stderr")) for rank in (0, 1)] == [
        (["hello from 0"], ["warned"]),
        (["hello from 1"], ["warned"]),
    ]
    assert (job.ended.reason, job.ended.failure, job.ended.detail) == ("finished", None, "")
    assert [event.at for event in job.events if isinstance(event, WorkerStarted)] < [job.ended.at] * 2


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [("sys.exit(7 * rank)", 7, ""), ("os.kill(os.getpid(), 11 * rank)", 139, "SIGSEGV"), ("assert not rank, 'bad'", 1, "")],
)
def test_the_exit_code_is_the_jobs_own(code: str, exit_code: int, signal: str) -> None:
    job = run("-np", "2", *python(RANK + code))
    assert job.exit_code == exit_code
    assert job.ended.failure is not None
    assert (job.ended.failure.rank, job.ended.failure.exit_code, job.ended.failure.signal) == (1, exit_code, signal)
    assert job.ended.failure.last_lines[-1:] == (["AssertionError: bad"] if exit_code == 1 else [])


def test_le05_knock_on_names_the_rank_that_died_first() -> None:
    job = run("-np", "4", "--", sys.executable, str(CASES / "LE-05" / "train_fail.py"), "knock_on")
    assert job.exit_code == 137
    failure = job.ended.failure
    assert failure is not None
    assert (failure.rank, failure.host, failure.signal, failure.exit_code) == (2, "localhost", "SIGKILL", 137)
    assert failure.last_lines[-1] == "rank 2: about to vanish"
    exits = {event.rank: (event.exit_code, event.expected) for event in job.of(WorkerExited)}
    assert exits == {0: (134, False), 1: (134, False), 2: (137, False), 3: (0, False)}


def test_le05_hang_ends_by_itself() -> None:
    job = run("-np", "4", "--", sys.executable, str(CASES / "LE-05" / "train_fail.py"), "hang")
    assert job.exit_code == 137
    assert job.ended.failure is not None and job.ended.failure.rank == 2
    (died,) = [event.at for event in job.of(WorkerExited) if event.rank == 2]
    assert job.ended.at - died < 15
    assert {event.rank for event in job.of(WorkerExited) if event.expected} == {0, 1, 3}


def test_output_that_is_no_text_and_has_no_line_ends_passes() -> None:
    write = "sys.stdout.buffer.write(b'\\xff\\xfe caf\\xc3\\xa9\\n' + b'x' * 300_000); sys.stdout.flush(); sys.exit(3 * rank)"
    job = run("-np", "2", *python(RANK + write))
    assert job.exit_code == 3
    for rank in (0, 1):
        lines = job.lines(rank)
        assert lines[0] == "�� café"
        assert "".join(lines[1:]) == "x" * 300_000
        assert max(map(len, lines)) <= 8192


def test_a_line_without_an_end_is_shown_while_the_rank_waits() -> None:
    code = RANK + "import time; sys.stdout.write('Password? '); sys.stdout.flush(); time.sleep(2); print('done')"
    job = run("-np", "1", *python(code))
    (asked, done) = job.of(OutputWritten)
    assert (asked.lines, done.lines) == (["Password? "], ["done"])
    assert done.at - asked.at > 1


def test_a_worker_that_leaves_processes_behind_ends_and_they_are_named() -> None:
    code = RANK + "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    job = run("-np", "1", *python(code))
    assert job.exit_code == 0
    assert not alive(int(job.lines(0)[0]))
    assert any("left 1 process behind, ended now: sleep" in notice.text for notice in job.of(NoticeGiven))


def test_a_command_that_cannot_be_run_is_said_in_its_ranks_words(tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text("#!/nowhere/python\n")
    program.chmod(0o755)
    job = run("-np", "1", "--", str(program), env=environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}"))
    assert job.exit_code == 127
    assert job.lines(0, "stderr") == [f"cannot start {program}: No such file or directory"]


def test_output_files_are_written_as_horovodrun_does(tmp_path: Path) -> None:
    job = run("-np", "1", "--output-filename", str(tmp_path), *python("import sys; print('out'); sys.stderr.write('err')"))
    assert job.exit_code == 0
    assert (tmp_path / "rank.0" / "stdout").read_text() == "out\n"
    assert (tmp_path / "rank.0" / "stderr").read_text() == "err"


def test_what_horovod_refuses_is_one_line() -> None:
    job = run("-np", "3", "-H", "localhost:2", *python("pass"))
    assert job.exit_code == 1
    assert job.ended.detail == "Requested more processes (3) than there are available slots (2)"
    job = run("-np", "1", "--cycle-time-ms", "fast", *python("pass"))
    assert job.exit_code == 2
    assert job.ended.detail == "horovodrun refuses its flags: argument --cycle-time-ms: invalid float value: 'fast'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-np", "1", "--no-such-flag", "--", "true"], "there is no flag --no-such-flag"),
        (["-np", "1"], "there is no command to run"),
        (["-np", "1", "--", "no-such-command"], "there is no command 'no-such-command'"),
        (["-np", "1", "--", sys.executable, "no_such.py"], "there is no script no_such.py in"),
        (["-np", "1", "--hostfile", "no_such_hosts", "--", "true"], "cannot read the hosts file no_such_hosts"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(arguments: list[str], message: str) -> None:
    job = run(*arguments)
    assert job.exit_code == 2
    assert message in job.stderr and job.stderr.count("\n") == 1


def make_environment(folder: Path, *, horovod: bool) -> Path:
    """A virtual environment that is not distmon's; with the packages of the tests' own, Horovod among them, or without."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    if horovod:
        import horovod as installed

        (site / "training.pth").write_text(str(Path(installed.__file__).resolve().parent.parent) + "\n")
    return folder / "bin" / "python"


def test_the_training_lives_in_another_environment(tmp_path: Path) -> None:
    other = make_environment(tmp_path / "training", horovod=True)
    code = """
import importlib.util, os, sys
print(sys.prefix)
for name in ("horovod", "distmon.core"):
    print(name, importlib.util.find_spec(name) is not None)
print([path for path in sys.path if "launcher" in path])
"""
    job = run("-np", "1", "--", str(other), "-c", code)
    assert job.exit_code == 0, job.ended
    assert job.of(JobStarted)[0].python == str(other)
    assert job.lines(0) == [str(tmp_path / "training"), "horovod True", "distmon.core False", "[]"]


def test_an_environment_without_horovod_is_told_what_to_do(tmp_path: Path) -> None:
    other = make_environment(tmp_path / "bare", horovod=False)
    job = run("-np", "1", "--", str(other), "-c", "pass")
    assert (job.exit_code, job.events) == (1, [])
    assert job.stderr == f"distmon: there is no Horovod in {other}: build it with `distmon horovod build --python {other}`\n"


def test_a_horovod_without_the_places_to_hook_still_runs(tmp_path: Path) -> None:
    """A later version may have moved them: its own execution is used, and what is not seen is said."""
    (tmp_path / "sitecustomize.py").write_text("import horovod.runner.util.remote as remote\ndel remote.get_ssh_command\n")
    job = run("-np", "1", *python("print('unseen'); raise SystemExit(4)"), env=environment(PYTHONPATH=str(tmp_path)))
    assert job.exit_code == 4
    notices = [notice.text for notice in job.of(NoticeGiven)]
    assert any(text.startswith("this Horovod has no horovod.runner.util.remote.get_ssh_command") for text in notices)
    assert "[0]<stdout>:unseen" in notices
    assert job.of(WorkerStarted) == []


def test_elastic_on_one_machine_starts_without_a_flag_for_the_interface(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    code = RANK + "print(os.environ['HOROVOD_GLOO_IFACE'])"
    job = run("-np", "2", "--min-np", "1", "--host-discovery-script", f"cat {hosts}", *python(code))
    assert job.exit_code == 0, job.ended
    assert job.lines(0) == ["lo"]
    assert any("--network-interface lo" in notice.text for notice in job.of(NoticeGiven))
    assert job.of(JobStarted)[0].network_interface == "lo"


def test_a_worker_whose_slot_was_taken_away_is_no_failure(tmp_path: Path) -> None:
    """Horovod lets it abort with 134, as if it had crashed."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    script = str(Path(__file__).with_name("elastic_script.py"))
    flags = ("-np", "2", "--min-np", "1", "--host-discovery-script", f"cat {hosts}")
    job = run(*flags, "--", sys.executable, script, str(hosts), env=environment(OMP_NUM_THREADS="1"), timeout_s=100)
    assert job.exit_code == 0, job.ended
    assert [event.world_size for event in job.of(RanksAssigned)] == [2, 1]
    (removed,) = [event for event in job.of(WorkerExited) if event.rank == 1]
    assert (removed.exit_code, removed.expected) == (134, True)
    assert job.lines(0) == ["alone"]
    assert job.ended.failure is None


def test_generations_and_marks_reach_the_worker() -> None:
    code = "import os; [print(os.environ[n]) for n in ('DISTMON_GENERATION', 'PYTHONPATH', 'DISTMON_RING_DIR', 'DISTMON_JOB')]"
    job = run("-np", "1", *python(code), env=environment(PYTHONPATH="/mine"))
    assert job.exit_code == 0
    generation, path, rings, mark = job.lines(0)
    assert generation == "0"
    site, shim, mine = path.split(":")
    assert site.endswith("/probe/site") and shim.endswith("/probe/shim") and mine == "/mine"
    name = job.of(JobStarted)[0].job
    assert rings.endswith(f"/{name}/rings") and mark == f"{name}/1/"
    assert not Path(rings).exists()
