"""A child that prints readings: its lines, its failures and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distmon.agent.sensors.jetson_child import LineChild
from tests.agent.jetson_files import DEADLINE_S, SECOND, script


def lines_of(child: LineChild, now_ns: int = 0) -> list[bytes]:
    """The first lines that come, or none once there is a problem."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = child.lines(now_ns)
        if found or child.problem:
            return [line.text for line in found]
        time.sleep(0.01)
    raise AssertionError("no line")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_lines_come_whole_and_a_child_that_ends_is_tried_again_less_and_less_often(tmp_path: Path) -> None:
    script(tmp_path / "p", f"#!/bin/sh\necho x >> {tmp_path}/starts\nprintf 'one\\n\\ntwo\\nhalf'\nexit 3\n")
    child = LineChild("p", [str(tmp_path / "p")])
    assert lines_of(child) == [b"one", b"two"]
    until_problem(child, 0)
    assert child.problem == "p ended with 3"
    starts = []
    for second in range(400):
        child.lines(second * SECOND)
        until_problem(child, second * SECOND)
        starts.append(len((tmp_path / "starts").read_text().splitlines()))
    assert [second for second in range(1, 400) if starts[second] > starts[second - 1]] == [10, 30, 70, 150, 310]


def until_problem(child: LineChild, now_ns: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while child.running and time.monotonic() < deadline:
        child.lines(now_ns)
        time.sleep(0.005)


def test_a_child_that_prints_nothing_is_ended(tmp_path: Path) -> None:
    script(tmp_path / "p", f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho ready\nexec sleep 60\n")
    child = LineChild("p", [str(tmp_path / "p")])
    assert lines_of(child) == [b"ready"]
    pid = int((tmp_path / "pid").read_text())
    assert child.lines(14 * SECOND) == [] and child.problem == ""
    assert child.lines(16 * SECOND) == [] and child.problem == "p printed nothing for 15 s"
    assert not is_running(pid)


def test_a_child_that_prints_without_line_ends_takes_no_memory(tmp_path: Path) -> None:
    script(tmp_path / "p", "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' 'x'\necho\necho good\nexec sleep 60\n")
    child = LineChild("p", [str(tmp_path / "p")])
    found = lines_of(child)
    while b"good" not in found:
        found += lines_of(child)
    child.stop()
    assert max(map(len, found)) < 1_000_000


def test_a_program_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    child = LineChild("p", [str(tmp_path / "p")])
    assert child.lines(0) == []
    assert child.problem == f"{tmp_path}/p cannot be started: No such file or directory"


AGENT = """
import sys, time
from distmon.agent.sensors.jetson_child import LineChild
child = LineChild("p", [sys.argv[1]])
while not child.lines(0):
    time.sleep(0.01)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_a_child_ends_with_the_agent_however_that_ends(end: str, tmp_path: Path) -> None:
    script(tmp_path / "p", f"#!/bin/sh\necho $$ > {tmp_path}/pid\nwhile echo x; do sleep 0.05; done\n")
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path / "p")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        assert agent.stdout.readline() == b"up\n"
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
        if end == "SIGKILL":
            agent.send_signal(signal.SIGKILL)
        agent.stdin.close()
        agent.wait(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)
