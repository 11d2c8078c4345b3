"""One worker's guardian: starts it, passes its output on as JSON lines, and ends it with everything it started.

Runs on the worker's host in a Python of its own (`python -I -S`, see remote.py), fed on standard input with a spec and then with
one-byte commands and beats; the end of that input, or a long silence, means that the driver is gone. It adopts orphans, so that a
helper that leaves the session or forks twice is still found. Standard library only, and sent as source to other hosts: imports
nothing of distmon.
"""

import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Set

from . import guest, processes
from .lines import LineSplitter, Piece

POLITE = b"T"
FIRM = b"K"
BEAT = b"."
SIGNAL = 0x80
"""A byte above this is the number of a signal for the worker, plus this."""
BEAT_S = 2.0
"""Driver and supervisor each say so often that they are there: a cut network tells neither."""
RANK_GRACE_S = 5.0
"""From SIGTERM to SIGKILL, for the worker itself (Horovod's own value)."""
LEFTOVER_GRACE_S = 1.0
"""For what the worker leaves behind: to end by itself, and again from SIGTERM to SIGKILL."""
LOST_MARGIN_S = 10.0
"""The driver gives a silent host up first; a worker must not end while it may still be waited for."""
OUT_OF_MEMORY = "out of memory: the kernel ended a process to get some back"
FLUSH_AFTER_S = 0.2
POLL_S = 0.05
PROBE_LIMIT_S = 8.0
"""A worker on a host that joins a running job waits so long for its probe, and then starts without."""
CHUNK = 65536


def main() -> None:
    """Read the spec from standard input and guard the worker until nothing of it is left."""
    spec = json.loads(_read_exactly(int(_read_exactly(8))).decode("utf-8"))
    supervisor = Supervisor(spec, control=0, frames=1)
    supervisor.run()
    if spec["exit_as_worker"]:
        sys.exit(supervisor.exit_code)


def _read_exactly(count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(0, count - len(data))
        if not chunk:
            sys.exit("distmon: the launcher went away before the worker could start")
        data += chunk
    return data


def _bytes(text: str) -> bytes:
    """Words and variables travel as latin-1 text, a character a byte, so that hosts with other locales see the same."""
    return text.encode("latin-1")


class Supervisor:
    """States, in order: running; rank gone (`self.exited_at`), leftovers ending; nothing left."""

    def __init__(self, spec: Dict[str, Any], control: int, frames: int) -> None:
        self.spec = spec
        self.control: Optional[int] = control
        self.frames = frames
        self.selector = selectors.DefaultSelector()
        self.splitters: Dict[str, LineSplitter] = {}
        self.pipes: Dict[str, int] = {}
        self.heard_at: Dict[str, float] = {}
        self.rank_pid = 0
        self.exit_code = 0
        self.exited_at: Optional[float] = None
        self.asked_at: Optional[float] = None
        self.firm = False
        self.firm_told = False
        self.leftovers_told: Set[int] = set()
        self.passed_on: Set[int] = set()
        """Signals that an operator had sent to the worker."""
        self.driver_heard_at = time.monotonic()
        self.beat_at = 0.0
        self.outbox = b""
        self.held = False
        self.oom_kills = (processes.oom_kills(),) * 2
        """As counted at the two last beats: a death just after a beat belongs to the interval before."""

    def run(self) -> None:
        self._prepare()
        if not self._start():
            self._deliver_rest()
            return
        while not self._finished():
            for key, _ in self.selector.select(self._patience()):
                key.data()
            self._flush_stale()
            self._reap()
            self._press()
            self._beat()
        self._reap()
        self._drain()
        self._close_pipes()
        self._deliver_rest()

    def _prepare(self) -> None:
        processes.adopt_orphans()
        if self.spec["open_files"] is not None:
            processes.set_open_files_limit(self.spec["open_files"])
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Handlers, not SIG_IGN: an ignored signal would stay ignored in the worker.
        signal.signal(signal.SIGTERM, lambda *_: self._ask())
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: self._ask())
        self.selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, CHUNK))
        os.set_blocking(self.frames, False)
        if self.control is not None:
            self.selector.register(self.control, selectors.EVENT_READ, self._on_control)

    def _environment(self) -> Dict[bytes, bytes]:
        env = dict(os.environb) if self.spec["inherit_environment"] else {}
        env.update((_bytes(name), _bytes(value)) for name, value in self.spec["environment"].items())
        theirs = self.spec["guest"]
        if theirs is not None:
            path = guest.folder_of(theirs["job"], theirs["host"])
            if self.spec["environment"].get("DISTMON_GENERATION", "0") != "0":
                guest.await_probe(path, PROBE_LIMIT_S)
            folder = os.fsencode(path)
            for name, value in theirs["environment"].items():
                env[_bytes(name)] = _bytes(value).replace(guest.PLACE.encode(), folder)
        return env

    def _start(self) -> bool:
        """Start the worker; on failure report as a shell would (127 not found, 126 not executable)."""
        cwd, argv = _bytes(self.spec["cwd"]), [_bytes(word) for word in self.spec["argv"]]
        if not os.path.isdir(cwd):
            text = f"there is no folder {os.fsdecode(cwd)} on this host: the worker runs in {os.getcwd()}"
            self._emit("notice", text=text)
            cwd = os.getcwdb()
        try:
            worker = subprocess.Popen(
                argv,
                env=self._environment(),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=processes.die_with_parent,
            )
        except OSError as error:
            text = f"cannot start {os.fsdecode(argv[0])}: {error.strerror}"
            self._emit("output", stream="stderr", pieces=[(text, "\n")])
            self.exit_code = 127 if error.errno == errno.ENOENT else 126
            self._emit("exited", exit_code=self.exit_code, signal=None, pid=None)
            return False
        self.rank_pid = worker.pid
        for stream, pipe in (("stdout", worker.stdout), ("stderr", worker.stderr)):
            assert pipe is not None
            self._watch(stream, os.dup(pipe.fileno()))
            pipe.close()
        worker.returncode = 0  # reaped below, by this process's own wait for any child
        self._emit("started", pid=self.rank_pid)
        return True

    def _watch(self, stream: str, fd: int) -> None:
        os.set_blocking(fd, False)
        self.pipes[stream] = fd
        self.splitters[stream] = LineSplitter()
        self._register(stream)

    def _register(self, stream: str) -> None:
        self.selector.register(self.pipes[stream], selectors.EVENT_READ, lambda: self._on_output(stream))

    # --- what comes in ---

    def _on_control(self) -> None:
        assert self.control is not None
        data = os.read(self.control, 64)
        self.driver_heard_at = time.monotonic()
        for byte in data:
            if byte > SIGNAL:
                self._pass_on(byte - SIGNAL)
        if FIRM in data:
            self.firm = True
        if POLITE in data or not data:
            self._ask()
        if not data:
            self.selector.unregister(self.control)
            self.control = None

    def _pass_on(self, signum: int) -> None:
        if self.exited_at is None and self.rank_pid:
            self.passed_on.add(signum)
            processes.send([self.rank_pid], signum)

    def _ask(self) -> None:
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            if self.exited_at is None and self.rank_pid:
                processes.send([self.rank_pid], signal.SIGTERM)

    def _on_output(self, stream: str) -> bool:
        """Pass one chunk on; False when there is none now or ever again."""
        if stream not in self.pipes:
            return False
        try:
            data = os.read(self.pipes[stream], CHUNK)
        except BlockingIOError:
            return False
        self._emit_pieces(stream, self.splitters[stream].feed(data, final=not data))
        self.heard_at[stream] = time.monotonic()
        if not data:
            self._close_pipe(stream)
        return bool(data)

    def _flush_stale(self) -> None:
        now = time.monotonic()
        for stream, splitter in self.splitters.items():
            if splitter.unfinished and now - self.heard_at[stream] >= FLUSH_AFTER_S:
                self._emit_pieces(stream, splitter.flush())

    def _drain(self) -> None:
        for stream in list(self.pipes):
            while self._on_output(stream):
                pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.rank_pid and self.exited_at is None:
                self._on_exit(status)

    def _on_exit(self, status: int) -> None:
        self.exited_at = time.monotonic()
        self._drain()
        for stream, splitter in self.splitters.items():
            self._emit_pieces(stream, splitter.flush())
        signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = self.exit_code = os.WEXITSTATUS(status) if signum is None else 128 + signum
        told = {"exit_code": code, "signal": signum, "pid": self.rank_pid, "at_ns": int(self.exited_at * 1e9)}
        self._emit("exited", cause=self._cause(signum), **told)

    def _cause(self, signum: Optional[int]) -> str:
        """Why a signal ended the worker, where more is known than its number."""
        if signum in self.passed_on:
            return "an operator sent it " + signal.Signals(signum).name
        if signum == signal.SIGKILL and processes.oom_kills() > self.oom_kills[0]:
            return OUT_OF_MEMORY
        return ""

    # --- ending ---

    def _rest(self) -> Set[int]:
        return processes.descendants(os.getpid()) | processes.marked(self.spec["mark"])

    def _press(self) -> None:
        """Send what is due: SIGKILL to a worker that outstays its grace, then to what it left behind."""
        now = time.monotonic()
        if self._driver_lost():
            self._ask()
        if self.firm:
            processes.send(self._rest(), signal.SIGKILL)
        elif self.exited_at is None:
            if self.asked_at is not None and now - self.asked_at >= RANK_GRACE_S:
                processes.send([self.rank_pid], signal.SIGKILL)
        else:
            self._press_leftovers(now - self.exited_at)

    def _press_leftovers(self, since_exit: float) -> None:
        patience = 0.0 if self.asked_at is not None else LEFTOVER_GRACE_S
        if since_exit < patience:
            return
        rest = self._rest()
        fresh = rest - self.leftovers_told
        if fresh:
            self._emit("leftovers", names=sorted(processes.name_of(pid) for pid in fresh))
            processes.send(fresh, signal.SIGTERM)
            self.leftovers_told |= fresh
        if since_exit >= patience + LEFTOVER_GRACE_S:
            processes.send(rest, signal.SIGKILL)

    def _driver_lost(self) -> bool:
        limit = self.spec["lost_after_s"]
        return bool(limit) and time.monotonic() - self.driver_heard_at > limit + LOST_MARGIN_S

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self.beat_at < BEAT_S:
            return
        self.beat_at = now
        self.oom_kills = (self.oom_kills[1], processes.oom_kills())
        if not self.outbox:
            self._emit("beat", at_ns=int(now * 1e9))

    def _finished(self) -> bool:
        return self.exited_at is not None and not self._rest()

    def _patience(self) -> float:
        """Seconds to sleep at most."""
        if self.firm or self.exited_at is not None or self.asked_at is not None or self.outbox:
            return POLL_S
        return FLUSH_AFTER_S if any(splitter.unfinished for splitter in self.splitters.values()) else BEAT_S

    # --- what goes out ---

    def _emit_pieces(self, stream: str, pieces: List[Piece]) -> None:
        if pieces:
            self._emit("output", stream=stream, pieces=pieces)

    def _emit(self, frame: str, **fields: Any) -> None:
        fields.update(frame=frame)
        self.outbox += json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self._push()

    def _push(self) -> None:
        """Send what waits. A cut network takes nothing for a while; then the worker's output waits in its pipes."""
        try:
            while self.outbox:
                self.outbox = self.outbox[os.write(self.frames, self.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            # Nobody listens any more; the end of the control input says what to do about it.
            self.outbox = b""
        self._hold(bool(self.outbox))

    def _hold(self, held: bool) -> None:
        """Read nothing of the worker while the driver takes nothing, and go on once it does."""
        if held == self.held:
            return
        self.held = held
        if held:
            for fd in self.pipes.values():
                self.selector.unregister(fd)
            self.selector.register(self.frames, selectors.EVENT_WRITE, self._push)
        else:
            self.selector.unregister(self.frames)
            for stream in self.pipes:
                self._register(stream)

    def _deliver_rest(self) -> None:
        """Wait for a driver that is there to take the last frames."""
        while self.outbox and self.control is not None and not self._driver_lost():
            for key, _ in self.selector.select(POLL_S):
                key.data()

    def _close_pipe(self, stream: str) -> None:
        fd = self.pipes.pop(stream)
        if not self.held:
            self.selector.unregister(fd)
        os.close(fd)

    def _close_pipes(self) -> None:
        for stream in list(self.pipes):
            self._close_pipe(stream)
