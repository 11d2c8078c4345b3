"""Hosts that ssh does not reach are all named, each with its reason, before any rank starts (case LE-03)."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distmon.core.events import NoticeGiven, WorkerStarted
from distmon.launcher.check import told_of_host
from tests.launcher.driving import CASES, alive, command, environment, run, within

CASE = CASES / "LE-03"
EXPECTED = json.loads((CASE / "expected.json").read_text())
FLAGS = ("-np", "5", "--hostfile", str(CASE / "hosts.txt"), "--network-interface", "lo")


def stub(log: Path) -> dict[str, str]:
    return environment(PATH=f"{CASES / 'common'}:{os.environ['PATH']}", SSH_STUB_LOG=str(log))


def told(log: Path) -> str:
    """What the stand-ins wrote, in pieces: those of calls that run side by side may lie between one another."""
    return log.read_text() if log.exists() else ""


def living(log: Path) -> list[int]:
    return [pid for pid in map(int, re.findall(r"pid=(\d+)", told(log))) if alive(pid)]


def test_le03_every_host_with_its_own_reason(tmp_path: Path) -> None:
    log = tmp_path / "ssh.log"
    began = time.monotonic()
    job = run(*FLAGS, "--", sys.executable, "-c", "pass", env=stub(log))
    assert time.monotonic() - began < EXPECTED["all_checked_within_s"]
    assert job.exit_code == 1
    assert job.of(WorkerStarted) == []
    told_of = [notice.text.split(maxsplit=3) for notice in job.of(NoticeGiven) if notice.severity == "error"]
    reasons = {host: text for host, _, _, text in told_of}
    assert set(reasons) == set(EXPECTED["listed_hosts"])
    for host, reason in EXPECTED["listed_hosts"].items():
        assert reason in reasons[host].lower()
        assert host in job.ended.detail
    for word in ("pid=", "stdin_tty=no", *EXPECTED["stub_log"]["args_have"]):
        assert told(log).count(word) == 5
    assert living(log) == []


def test_le03_ctrl_c_during_the_check(tmp_path: Path) -> None:
    log = tmp_path / "ssh.log"
    process = subprocess.Popen(
        command(*FLAGS, "--", sys.executable, "-c", "pass"), env=stub(log), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert within(20, lambda: told(log).count("\n") == 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(EXPECTED["ctrl_c_returns_within_s"]) == 130
    assert within(2, lambda: living(log) == [])


def test_user_and_port_of_a_hosts_file_are_ssh_s_for_the_check_and_for_the_ranks(tmp_path: Path) -> None:
    log, hosts = tmp_path / "ssh.log", tmp_path / "hosts"
    hosts.write_text("# ours\nme@node-ok:2222 slots=1\n")
    flags = ("-np", "1", "--hostfile", str(hosts), "--network-interface", "lo")
    job = run(*flags, "--", sys.executable, "-c", "print('here')", env=stub(log))
    assert (job.exit_code, job.lines(0)) == (0, ["here"])
    calls = told(log).splitlines()
    assert len(calls) == 2 and all("[-p][2222][me@node-ok]" in call for call in calls)


def test_one_host_is_asked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "ssh.log"
    for name, value in stub(log).items():
        monkeypatch.setenv(name, value)
    host, reason = next(iter(EXPECTED["listed_hosts"].items()))
    said = [told_of_host(name) for name in ("localhost", "node-ok", host)]
    assert said[0] == "localhost is this machine" and said[1].startswith("node-ok answers: Python 3.")
    assert said[2].startswith(f"{host} is NOT reached: ") and reason in said[2].lower()
    assert living(log) == []
