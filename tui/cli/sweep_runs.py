"""The runs of a sweep, one after another: started, watched, stopped, told."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from distmon.core.errors import DistmonError
from distmon.core.measures import current_generation as generation
from distmon.core.measures import elapsed, throughput
from distmon.core.printable import cells, clean
from distmon.core.state import SessionState
from distmon.launcher.sweep import FAILURES_IN_A_ROW, Run, left_s, runs
from distmon.replay.report.words import count, number, seconds
from distmon.replay.session_file import load_state
from distmon.tui.cli.sweep_folder import SweepFolder

RUN = [sys.executable, "-m", "distmon.tui.cli.main", "run"]
POLL_S = 0.2
_TAIL_BYTES = 4096


def say(text: str) -> None:
    sys.stderr.write(f"distmon: {text}\n")
    sys.stderr.flush()


class SweepRuns:
    """Each run is a `distmon run --headless` of its own. A status line, or a line as it begins, tells how far it is."""

    def __init__(self, folder: SweepFolder, *, plain: bool) -> None:
        self.folder = folder
        self.stopped = 0
        """The signal that ended the sweep; 0 where none did."""
        self.done = 0
        self._order = runs(folder.sweep)
        self._took_s: dict[Run, float] = {}
        self._live = sys.stderr.isatty() and not plain
        self._process: subprocess.Popen[bytes] | None = None

    def run_all(self) -> int:
        """Runs what is not there yet; 0 when all of it then is, else 1."""
        pending = [run for run in self._order if not self._is_there(run)]
        if self.done:
            say(f"{self.done} of {len(self._order)} runs are there already")
        else:
            path = self.folder.path
            say(f"{count(len(self._order), 'run')} into {path}; should it break: distmon sweep --resume {path}")
        in_a_row = 0
        failed: list[Run] = []
        with self._signals():
            while pending and not self.stopped and in_a_row < FAILURES_IN_A_ROW:
                run = pending.pop(0)
                worked = self._one(run, pending)
                in_a_row = 0 if worked else in_a_row + 1
                failed += [] if worked or self.stopped else [run]
        if failed:
            more = f"; after {in_a_row} in a row the rest was not tried" if pending and not self.stopped else ""
            names = "; ".join(map(str, failed))
            say(f"{len(failed)} of {len(self._order)} runs failed ({names}){more}; --resume runs them again")
        if not self.done and failed:
            raise DistmonError(f"no run came to a good end; {self.folder.log(failed[-1])} has the output of the last")
        return int(bool(failed or pending))

    def _is_there(self, run: Run) -> bool:
        """Whether a recording says that the run came to a good end; the sweep itself need not have seen it."""
        path = self.folder.recording(run)
        if not path.exists():
            return False
        try:
            state, _ = load_state(path)
        except DistmonError:
            return False
        if not (state.complete and state.job.exit_code == 0):
            return False
        self._count(run, state)
        return True

    def _count(self, run: Run, state: SessionState) -> None:
        self.done += 1
        self._took_s[run] = elapsed(state) or 0.0

    def _one(self, run: Run, pending: list[Run]) -> bool:
        place = f"run {self._order.index(run) + 1} of {len(self._order)}: {run}"
        self.folder.forget(run)
        if not self._live:
            say(f"{place} begins{self._left([run, *pending])}")
        code = self._watched(run, place, pending)
        if self.stopped:
            self.folder.forget(run)
            return False
        if code == 0 and self._is_there(run):
            rate = throughput(generation(load_state(self.folder.recording(run))[0])).mean
            say(f"{place}: {number(rate)} samples/s, {seconds(self._took_s[run])}{self._left(pending)}")
            return True
        say(f"{place}: failed with exit code {code}: {self._last_line(run) or 'it said nothing'}")
        return False

    def _watched(self, run: Run, place: str, pending: list[Run]) -> int:
        """Starts a run and waits for its end."""
        sweep = self.folder.sweep
        command = [*RUN, "--headless", "-np", str(run.ranks)]
        command += ["--record", str(self.folder.recording(run).resolve()), *sweep.flags, "--", *sweep.command]
        begun = time.monotonic()
        with self.folder.log(run).open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=sweep.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[self.folder.lock],
                start_new_session=True,  # Ctrl-C reaches it once, through us
            )
        while (code := self._process.poll()) is None:
            gone = time.monotonic() - begun
            self._status(f"{place}  {seconds(gone)}{self._left([run, *pending], gone)}  {self._last_line(run)}")
            time.sleep(POLL_S)
        self._process = None
        self._status("")
        return code

    def _left(self, pending: list[Run], gone_s: float = 0.0) -> str:
        left = left_s(pending, self._took_s, gone_s)
        return f"; about {seconds(left)} left" if left else ""

    def _last_line(self, run: Run) -> str:
        """What the run said last."""
        try:
            with self.folder.log(run).open("rb") as log:
                log.seek(max(log.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return clean(lines[-1]).removeprefix("distmon: ") if lines else ""

    def _status(self, text: str) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{text if cells(text) <= width else text[: width - 1] + '…'}")
            sys.stderr.flush()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the run politely and the sweep with it; further ones reach the run too, which ends at once."""

        def on_signal(signum: int, frame: FrameType | None) -> None:
            self.stopped = self.stopped or signum
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signum)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {signum: signal.signal(signum, on_signal) for signum in numbers}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
