"""Hosts that answer, fall silent, come back and are given up."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import IO

import pytest

from distmon.launcher.driver import liveness, remote
from distmon.launcher.driver.liveness import SILENT_S, Liveness
from distmon.launcher.driver.supervisor import LOST_MARGIN_S
from tests.launcher.driving import alive, within


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(liveness, "time", made)
    return made


def test_a_silence_is_told_once_and_its_end_too(clock: Clock) -> None:
    told: list[tuple[str, str, float]] = []
    hosts = Liveness(60, lambda *what: told.append(what))
    hosts.expect("a")
    hosts.expect("b")
    for _ in range(20):
        clock.now += 1
        hosts.heard("b", clock.now)
        hosts.look("a")
        hosts.look("b")
    assert told == [("a", "silent", SILENT_S)]
    assert (hosts.silent_since("a"), hosts.silent_since("b")) == (1000.0, None)
    hosts.heard("a", 1000.0)
    assert len(told) == 1, "an old word is no answer"
    hosts.heard("a", clock.now)
    assert told[1:] == [("a", "back", 20.0)]
    assert hosts.silent_since("a") is None


def test_a_host_is_given_up_at_the_limit_and_never_without_one(clock: Clock) -> None:
    hosts, patient = Liveness(60, lambda *_: None), Liveness(0, lambda *_: None)
    hosts.expect("a")
    patient.expect("a")
    clock.now += 60
    assert not hosts.lost("a")
    clock.now += 0.1
    assert hosts.lost("a")
    clock.now += 1e6
    assert not patient.lost("a")


def test_a_new_connection_begins_anew(clock: Clock) -> None:
    told: list[tuple[str, str, float]] = []
    hosts = Liveness(60, lambda *what: told.append(what))
    hosts.expect("a")
    clock.now += 100
    hosts.look("a")
    hosts.expect("a")
    assert not hosts.lost("a")
    hosts.heard("a", clock.now + 1)
    assert [state for _, state, _ in told] == ["silent"]


@pytest.fixture
def supervise(request: pytest.FixtureRequest) -> Iterator[Callable[[str, float], tuple[subprocess.Popen[bytes], int]]]:
    """Starts a supervisor of a Python script that waits so long for a silent driver; gives it, and the script's process."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(script: str, lost_after_s: float) -> tuple[subprocess.Popen[bytes], int]:
        spec = {
            "argv": [sys.executable, "-c", script],
            "environment": {},
            "inherit_environment": True,
            "guest": None,
            "cwd": "/",
            "open_files": None,
            "mark": f"{request.node.name}/",
            "lost_after_s": lost_after_s,
        }
        command = remote.local_command(sys.executable)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(remote.payload(spec))
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        assert first["frame"] == "started"
        started.append((process, first["pid"]))
        return started[-1]

    yield start
    for process, worker in started:
        if alive(worker):
            os.kill(worker, signal.SIGKILL)
        process.kill()
        process.communicate()


Supervise = Callable[[str, float], tuple[subprocess.Popen[bytes], int]]


def test_a_worker_ends_when_its_driver_is_silent_even_while_nobody_takes_its_output(supervise: Supervise) -> None:
    process, worker = supervise("while True: print('x' * 1000)", 1 - LOST_MARGIN_S)
    assert within(30, lambda: not alive(worker))
    assert within(10, lambda: process.poll() is not None)


def test_output_waits_for_a_driver_that_is_slow_and_none_is_lost(supervise: Supervise) -> None:
    count = 3000
    process, _ = supervise(f"for n in range({count}): print(n, 'x' * 200)", 60)
    assert process.stdout is not None
    pipe = process.stdout
    assert within(20, lambda: unread(pipe) > 40_000), "the pipe to the driver never filled"
    frames = [json.loads(line) for line in pipe]
    numbers = [int(text.split()[0]) for frame in frames if frame["frame"] == "output" for text, _ in frame["pieces"]]
    assert numbers == list(range(count))
    assert [frame["exit_code"] for frame in frames if frame["frame"] == "exited"] == [0]


def unread(pipe: IO[bytes]) -> int:
    """Bytes that wait in a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]
