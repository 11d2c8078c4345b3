"""Runs a plan: starts the driver, turns what it says into events, stops it, and knows the job's exit code."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, JobEnded, JobStarted, LaunchProgressed, NoticeGiven
from distmon.launcher.driver import processes
from distmon.launcher.plan import Notice, Plan
from distmon.launcher.translate import SOURCE, Translator, shown
from distmon.wire.clock import SteadyClock

QUEUE_LIMIT = 10_000
"""Events that may wait for the viewer; past it the driver waits, and past its own limit drops output and counts it."""
LOST_LIMIT_S = 10.0
"""After the driver's own death its workers' supervisors need at most this long to end them."""
SHOWN_HOSTS = 32
_NAMES = {"horovod": "horovodrun", "torchrun": "torchrun"}
STUCK_LIMIT_S = 12.0
"""A driver that has not ended this long after a stop is killed."""


def _shown_places(plan: Plan) -> list[Notice]:
    """Which rank is to run where, of a job on several hosts."""
    if not plan.others:
        return []
    lines = plan.places()
    more = [f"and {len(lines) - SHOWN_HOSTS} more hosts"] if len(lines) > SHOWN_HOSTS else []
    return [Notice("info", line) for line in [*lines[:SHOWN_HOSTS], *more]]


class Preparation(Protocol):
    """What has to be done on the hosts of a job before its driver starts."""

    def run(self, plan: Plan, tell: Callable[[AnyEvent], None]) -> Plan:
        """The plan to go on with. Raises DistmonError where the job cannot start."""
        ...

    def cancel(self) -> None:
        """Have `run` return at once; may come from any thread."""
        ...


class Runner:
    """One job. Threads of its own prepare its hosts and read the driver; the caller polls."""

    def __init__(self, plan: Plan, preparation: Preparation | None = None, *, debug: bool = False) -> None:
        self._plan = plan
        self._preparation = preparation
        self._debug = debug
        self._clock = SteadyClock()
        self._translator = Translator(self._clock.at)
        self._events: queue.Queue[AnyEvent] = queue.Queue(QUEUE_LIMIT)
        self._driver: subprocess.Popen[bytes] | None = None
        self._control: int | None = None
        """Orders to the driver. Its end is an order too, so it stays open while the job runs."""
        self._starting = threading.Lock()
        """Held while the driver is started: a stop comes before it or after it."""
        self._ended: JobEnded | None = None
        self._done = threading.Event()
        self._stop_signal: int | None = None

    # --- for the caller ---

    def start(self) -> None:
        """Start the job. Raises DistmonError when its Python cannot be run; what goes wrong on the hosts ends the job."""
        plan = self._plan
        self._put(
            JobStarted(
                at=self._now(),
                job=plan.job,
                command=[shown(word) for word in plan.command],
                np=plan.np,
                min_np=plan.min_np,
                max_np=plan.max_np,
                elastic=plan.elastic,
                backend=plan.backend,
                hosts=plan.hosts,
                network_interface=plan.network_interface,
                cwd=shown(plan.cwd),
                python=shown(plan.python),
                timeline=shown(plan.timeline),
                fusion_threshold_bytes=plan.fusion_threshold_bytes,
            )
        )
        for notice in [*_shown_places(plan), *plan.notices]:
            self._put(NoticeGiven(at=self._now(), severity=notice.severity, text=notice.text, source=SOURCE))
        self._put(LaunchProgressed(at=self._now(), stage="resolving", detail=f"the training runs under {shown(plan.python)}"))
        if self._preparation is None:
            self._start_driver()
        else:
            threading.Thread(target=self._prepare, args=(self._preparation,), name="preparation", daemon=True).start()

    def poll(self) -> Iterator[AnyEvent]:
        """Events since the last call; never waits."""
        while True:
            try:
                yield self._events.get_nowait()
            except queue.Empty:
                return

    def wait(self, timeout_s: float) -> AnyEvent | None:
        """The next event, or None after `timeout_s`."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def running(self) -> bool:
        """Until the job has ended and JobEnded is among the events."""
        return not self._done.is_set()

    def wait_for_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and JobEnded is among the events; False when the time is over first."""
        return self._done.wait(timeout_s)

    @property
    def exit_code(self) -> int | None:
        """The job's own code, 128+n after a signal; None while it runs."""
        return self._ended.exit_code if self._ended and self._done.is_set() else None

    @property
    def stopping(self) -> bool:
        """Whether the job has been told to end."""
        return self._stop_signal is not None

    def stop(self, signum: int = signal.SIGINT) -> None:
        """End the job; returns at once. The first call is polite (SIGTERM and a grace), a second one kills.

        The job's exit code becomes 128 + `signum` of the first call.
        """
        firm = self._stop_signal is not None
        self._stop_signal = self._stop_signal or signum
        with self._starting:
            preparing = self._driver is None
        if preparing and self._preparation is not None:
            self._preparation.cancel()
            return
        self._order(f"{'kill' if firm else 'stop'} {self._stop_signal}\n")
        if not firm:
            threading.Thread(target=self._kill_if_stuck, name="stuck", daemon=True).start()

    def signal(self, rank: int, signum: int) -> None:
        """Send one rank a signal, wherever it runs; returns at once. Raises DistmonError before the ranks are there."""
        with self._starting:
            if self._driver is None:
                raise DistmonError("no rank runs yet: the hosts are being prepared")
        self._order(f"signal {rank} {signum}\n")

    # --- the hosts ---

    def _prepare(self, preparation: Preparation) -> None:
        """In a thread: the hosts, then the driver, unless the job is told to end meanwhile."""
        started, detail = False, "preparing the hosts failed; this is a fault of distmon's own"
        try:
            self._plan = preparation.run(self._plan, self._put)
            with self._starting:
                if self._stop_signal is None:
                    self._start_driver()
                    started = True
        except DistmonError as error:
            detail = str(error)
        finally:
            if self._stop_signal is not None and not started:
                self._end(JobEnded(at=self._now(), exit_code=128 + self._stop_signal, reason="stopped"))
            elif not started:
                self._end(JobEnded(at=self._now(), exit_code=1, reason="failed", detail=detail))

    def _end(self, ended: JobEnded) -> None:
        self._ended = ended
        self._put(ended)
        self._done.set()

    # --- the driver ---

    def _start_driver(self) -> None:
        plan = self._plan
        read, write = os.pipe()
        orders, self._control = os.pipe()
        try:
            self._driver = subprocess.Popen(
                [*plan.driver, str(write)],
                stdin=orders,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[write],
                cwd=plan.cwd,
                env=plan.environment,
                start_new_session=True,
            )
        except OSError as error:
            os.close(read)
            raise DistmonError(f"cannot run {shown(plan.python)}: {error.strerror}") from None
        finally:
            os.close(write)
            os.close(orders)
        spec = {
            "job": plan.job,
            "backend": plan.backend,
            "np": plan.np,
            "flags": plan.flags,
            "command": plan.command,
            "worker_environment": plan.worker_environment,
            "lost_after_s": plan.lost_after_s,
            "guest_environment": plan.guest_environment,
            "ssh_targets": {host.name: {"target": host.ssh_target, "port": host.port} for host in plan.others},
            "debug": self._debug,
        }
        self._order(json.dumps(spec) + "\n")
        assert self._driver.stdout is not None
        said = threading.Thread(target=self._read_said, args=(self._driver.stdout,), name="driver-output", daemon=True)
        said.start()
        threading.Thread(target=self._read_events, args=(os.fdopen(read, "rb"), said), name="driver-events", daemon=True).start()

    def _order(self, line: str) -> None:
        data = line.encode("ascii")
        try:
            while data and self._control is not None:
                data = data[os.write(self._control, data) :]
        except BrokenPipeError:
            # The driver has ended; the end of its events tells how.
            return

    def _read_events(self, pipe: IO[bytes], said: threading.Thread) -> None:
        with pipe:
            for line in pipe:
                event = self._translator.translate(json.loads(line))
                if isinstance(event, JobEnded):
                    self._ended = event
                elif event is not None:
                    self._put(event)
        assert self._driver is not None
        code = self._driver.wait()
        control, self._control = self._control, None
        if control is not None:
            os.close(control)
        # What the driver started may hold its output open; it has nothing more to say about the job.
        said.join(1.0)
        self._end(self._ended or self._lost(code))

    def _lost(self, code: int) -> JobEnded:
        """The driver died without a report: its workers' supervisors end them now."""
        deadline = time.monotonic() + LOST_LIMIT_S
        while time.monotonic() < deadline and processes.marked(self._plan.job + "/"):
            time.sleep(0.1)
        processes.send(processes.marked(self._plan.job + "/"), signal.SIGKILL)
        if self._stop_signal is not None:
            return JobEnded(at=self._now(), exit_code=128 + self._stop_signal, reason="stopped")
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return JobEnded(
            at=self._now(), exit_code=1, reason="lost", detail=f"the process that drives Horovod ended with {how} and no report"
        )

    def _read_said(self, pipe: IO[bytes]) -> None:
        """What the launcher itself prints."""
        with pipe:
            for line in pipe:
                text = line.decode("utf-8", "replace").rstrip()
                if text:
                    self._put(NoticeGiven(at=self._now(), severity="info", text=text, source=_NAMES[self._plan.backend]))

    def _kill_if_stuck(self) -> None:
        if not self._done.wait(STUCK_LIMIT_S) and self._driver is not None:
            self._driver.kill()

    def _put(self, event: AnyEvent) -> None:
        self._events.put(event)

    def _now(self) -> float:
        return self._clock.now()
