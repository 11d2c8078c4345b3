"""Variables and arguments reach the ranks as they are, here and behind ssh, and no command line holds them (case LE-09)."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.driving import CASES, Ran, environment, run

CASE = json.loads((CASES / "LE-09" / "cases.json").read_text())
EXPECTED = json.loads((CASES / "LE-09" / "expected.json").read_text())
SECRET = CASE["env"]["DEMO_SECRET_TOKEN"]


def show_env(log: Path, *flags: str) -> Ran:
    env = environment(**CASE["env"], PATH=f"{CASES / 'common'}:{os.environ['PATH']}", SSH_STUB_LOG=str(log))
    return run(*flags, "--", sys.executable, str(CASES / "LE-09" / "show_env.py"), *CASE["argv"], env=env)


@pytest.mark.parametrize("network", [["--network-interface", "lo"], []], ids=["interface given", "interface probed"])
def test_le09_here_and_behind_ssh(tmp_path: Path, network: list[str]) -> None:
    log = tmp_path / "ssh.log"
    job = show_env(log, "-np", "2", "-H", "localhost:1,node-ok:1", *network)
    assert job.exit_code == 0, job.ended
    for rank in (0, 1):
        shown = json.loads(job.lines(rank)[0])
        assert shown["argv"] == CASE["argv"]
        assert shown["env"] == {name: CASE["env"][name] for name in shown["env"]}
        assert set(EXPECTED["env_exact"]) <= set(shown["env"])
    assert "node-ok" in log.read_text()
    assert SECRET not in log.read_text() + repr(job.events)
    assert "StrictHostKeyChecking" not in log.read_text()


def test_le09_the_recording_and_the_report_hold_no_secret(tmp_path: Path) -> None:
    session = tmp_path / "session.jsonl"
    distmon = [sys.executable, "-m", "distmon.tui.cli.main"]
    flags = ["-np", "2", "-H", "localhost:1,node-ok:1", "--network-interface", "lo"]
    job = [sys.executable, str(CASES / "LE-09" / "show_env.py"), *CASE["argv"]]
    env = environment(**CASE["env"], PATH=f"{CASES / 'common'}:{os.environ['PATH']}", SSH_STUB_LOG=str(tmp_path / "ssh.log"))
    ran = subprocess.run([*distmon, "run", "--headless", "--record", session, *flags, "--", *job], env=env, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    report = subprocess.run([*distmon, "report", session], env=env, capture_output=True)
    assert report.returncode == 0, report.stderr.decode()
    told = ran.stdout + ran.stderr + report.stdout + session.read_bytes() + (tmp_path / "ssh.log").read_bytes()
    assert b"PATH_WITH_SPACE" in told
    assert SECRET.encode() not in told


def test_no_command_line_holds_the_environment(tmp_path: Path) -> None:
    """Of all the processes between distmon and the rank."""
    look = (
        "import os\n"
        "pid, lines = os.getpid(), []\n"
        "while pid > 1 and len(lines) < 5:\n"
        "    lines.append(open(f'/proc/{pid}/cmdline').read())\n"
        "    pid = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "print(len(lines), any('not-for' + '-display' in line for line in lines))\n"
    )
    env = environment(DEMO_SECRET_TOKEN=SECRET)
    job = run("-np", "1", "--", sys.executable, "-c", look, env=env)
    count, seen = job.lines(0)[0].split()
    assert int(count) >= 4 and seen == "False"


def test_words_that_are_no_utf8_pass_unchanged() -> None:
    code = "import os; print(os.environb[b'RAW'], os.fsencode(__import__('sys').argv[1]))"
    raw = os.fsdecode(b"caf\xe9")
    job = run("-np", "1", "--", sys.executable, "-c", code, raw, env=environment(RAW=raw))
    assert job.lines(0) == [repr(b"caf\xe9") + " " + repr(b"caf\xe9")]


def test_limits_on_open_files_are_the_users_own() -> None:
    code = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert run("-np", "1", "--", sys.executable, "-c", code).lines(0) == ["{} {}".format(*limits)]


def test_a_missing_ssh_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    flags = ("-np", "1", "-H", "node-ok:1", "--network-interface", "lo")
    job = run(*flags, "--", sys.executable, env=environment(PATH=str(tmp_path)))
    assert job.exit_code == 1
    assert "there is no ssh here to reach it with" in job.ended.detail
