"""A worker whose steps have stopped is asked for its stacks, and only a worker that is ready for it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distmon.agent import spied
from distmon.agent.stacks import SUFFIX, StackWatch, parse_stacks
from distmon.core.events import ThreadStack
from distmon.probe.ring import SUFFIX as RING_SUFFIX
from distmon.probe.ring import RingReader
from tests.launcher.driving import alive

WORKER = """
    import sys, threading, time
    sys.path.insert(0, sys.argv[1])
    from distmon.probe import ring, stacks
    writer = ring.RingWriter.create(sys.argv[2], 64)
    stacks.offer(writer.path)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    def waits_for_ever():
        print(writer.path, flush=True)
        time.sleep(60)
    waits_for_ever()
"""
DEAF = WORKER.replace(
    "    threading.", "    import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n    threading."
)
"""Signals do not reach it."""
STEP_NS = 10_000_000


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StackWatch]:
    """Of a process that sleeps, after nine steps of 10 ms, where there is no py-spy."""
    monkeypatch.setattr(spied, "find_program", lambda pid, path: None)
    with running(WORKER, tmp_path) as watch:
        yield watch


@contextmanager
def running(program: str, tmp_path: Path) -> Iterator[StackWatch]:
    tmp_path.mkdir(exist_ok=True)
    tmp_path.chmod(0o700)
    command = [sys.executable, "-c", textwrap.dedent(program), "", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().decode().strip())
        reader = RingReader(str(path))
        watch = StackWatch(path, reader.header)
        reader.close()
        watch.steps_came([STEP_NS] * 9, 100.0)
        try:
            yield watch
        finally:
            process.kill()


def answer(watch: StackWatch, now: float) -> list[ThreadStack]:
    """`now` is the agent's clock; real time passes until the process has written."""
    assert watch.look(now) == [] and watch.asked
    deadline = time.monotonic() + 20
    while not (threads := watch.look(now + 0.5)) and time.monotonic() < deadline:
        assert watch.asked
        time.sleep(0.01)
    return threads


def test_a_silent_worker_tells_where_each_thread_is(worker: StackWatch) -> None:
    assert worker.look(100.9) == [] and not worker.asked
    main, *others = answer(worker, 101.5)
    assert main.name == "main" and "waits_for_ever" in main.frames[0] and main.frames[-1].endswith("<module>")
    assert len(others) == 1
    assert worker.silent_s == 1.5 and not worker.asked


def test_it_is_asked_again_at_a_widening_pace_until_steps_come(worker: StackWatch) -> None:
    asked = []
    now = 101.5
    while now < 200:
        if worker.look(now) == [] and worker.asked:
            asked.append(now)
            worker._asked_at = None
        now += 0.5
    assert asked[:5] == [101.5, 104.5, 114.5, 134.5, 174.5]
    worker.steps_came([STEP_NS], 200.0)
    assert worker.look(200.5) == [] and not worker.asked


def test_a_process_that_is_not_ready_for_the_signal_never_gets_one(worker: StackWatch, tmp_path: Path) -> None:
    (stacks,) = tmp_path.glob(f"*{SUFFIX}")
    (ring,) = tmp_path.glob(f"*{RING_SUFFIX}")
    for said in ("", "signal 9\n", f"signal {signal.SIGTERM.value}\n", "nonsense"):
        stacks.write_text(said)
        assert worker.look(300.0) == [] and not worker.asked
        worker._next = 0.0
    stacks.unlink()
    stacks.symlink_to(ring)
    assert worker.look(300.0) == [] and not worker.asked
    stacks.unlink()
    assert worker.look(400.0) == [] and not worker.asked
    os.kill(worker._pid, 0)


def test_another_process_with_the_number_of_a_dead_one_gets_none(worker: StackWatch) -> None:
    worker._start_ticks -= 1
    assert worker.look(101.5) == [] and not worker.asked


def spy_on(watch: StackWatch) -> list[ThreadStack]:
    """Until the worker has been asked in vain, and the spy has come back."""
    assert watch.look(101.5) == [] and watch.asked
    assert watch.look(103.6) == []
    deadline = time.monotonic() + 20
    while not (threads := watch.look(104.0)) and watch.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads


def test_a_worker_that_does_not_answer_is_read_by_py_spy(tmp_path: Path) -> None:
    if spied.find_program(os.getpid(), "") is None:
        pytest.skip("py-spy is not installed: pip install py-spy")
    with running(DEAF, tmp_path) as deaf:
        main, *others = spy_on(deaf)
        assert main.name == "main" and main.frames[0].endswith("waits_for_ever") and main.frames[-1].endswith("<module>")
        assert len(others) == 1 and others[0].frames[0].endswith(" run")
        assert deaf.read_by == "py-spy" and not deaf.asked


@pytest.mark.parametrize("does", ["exit 1", "echo nonsense", "echo '[{}]'"])
def test_a_spy_that_cannot_read_it_gives_no_stack(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(spied, "find_program", lambda pid, path: str(program))
    with running(DEAF, tmp_path / "rings") as deaf:
        assert spy_on(deaf) == [] and not deaf.asked


def test_a_spy_that_hangs_is_ended_when_its_time_is_over_or_steps_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    spy = spied.Spy(str(program), os.getpid())
    assert spy.look() is None
    monkeypatch.setattr(spied, "LIMIT_S", 0.0)
    assert spy.look() == [] and not alive(spy._process.pid)
    monkeypatch.setattr(spied, "find_program", lambda pid, path: str(program))
    with running(DEAF, tmp_path / "rings") as deaf:
        deaf.look(101.5)
        deaf.look(103.6)
        assert deaf.asked
        deaf.steps_came([STEP_NS], 104.0)
        assert not deaf.asked


def test_a_program_on_a_workers_own_path_is_run_only_for_its_own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert spied.find_program(os.getpid(), str(tmp_path)) == str(program)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert spied.find_program(os.getpid(), str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "\n", "garbage\n", "Thread 0x1 (most recent call first):", "Fatal Python error: x\n"])
def test_what_is_no_stack_is_none(text: str) -> None:
    assert parse_stacks(text) == []


def test_threads_come_with_the_main_one_first() -> None:
    text = 'Thread 0x0000a [worker] (most recent call first):\n  File "a b.py", line 3 in f\n\n'
    text += 'Current thread 0x0000b (most recent call first):\n  File "/x/m.py", line ??? in <module>\n'
    assert parse_stacks(text) == [
        ThreadStack(name="main", frames=["/x/m.py:??? <module>"]),
        ThreadStack(name="worker", frames=["a b.py:3 f"]),
    ]
