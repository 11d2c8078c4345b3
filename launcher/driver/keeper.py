"""Keeps the agent of one job on a host that is not the launcher's: its folder, the probe's files, and the agent's process.

It runs on the host at the far end of an ssh whose input stays open while the job lasts: when that ends, or nothing has come for a
while, the agent is ended and the folder removed. The agent's keys come in on standard input and go on through a pipe.

Standard library only, and sent as source to other hosts: imports nothing of distmon.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from . import guest

START_LIMIT_S = 10.0
STOP_LIMIT_S = 4.0
LOST_MARGIN_S = 10.0
"""As for ranks (supervisor.py): the launcher gives a silent host up first."""
RANKS_LIMIT_S = 20.0
"""How long ranks may outlive the connection before the folder stays behind."""
TAKE_OVER_LIMIT_S = 15.0
MAX_STARTS = 5
POLL_S = 0.2


class Failed(Exception):
    """Why there is no agent, in one line."""


def main() -> None:
    """Keep one agent until standard input ends."""
    spec = json.loads(_read_exactly(int(_read_exactly(8))).decode("utf-8"))
    keeper = Keeper(spec)
    try:
        keeper.run()
    except (Failed, OSError) as error:
        _say({"failed": str(error)})
    finally:
        keeper.close()


def _read_exactly(count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(0, count - len(data))
        if not chunk:
            sys.exit(1)
        data += chunk
    return data


def _say(line: Dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(line).encode("ascii") + b"\n")
    except OSError:
        # Nobody listens any more; the end of the input says what to do about it.
        return


class Keeper:
    """States, in order: folder made; agent running, and started again when it dies; input ended; agent and folder gone."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        self.spec = spec
        self.folder = guest.folder_of(spec["job"], spec["host"])
        self.lock: Optional[int] = None
        self.agent: Optional["subprocess.Popen[bytes]"] = None
        self.address = ""
        self.replaced = False
        """A newer keeper of the same job and host has come."""

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._prepare()
        heard, starts = time.monotonic(), 0
        while not self.replaced:
            if self.agent is None or self.agent.poll() is not None:
                starts += 1
                if starts > MAX_STARTS:
                    raise Failed("the agent died again and again: {}".format(self._last_words()))
                if self.agent is not None:
                    _say({"died": _how(self.agent.returncode)})
                self._start()
            if select.select([0], [], [], POLL_S)[0]:
                if not os.read(0, 65536):
                    return
                heard = time.monotonic()
            limit = self.spec["lost_after_s"]
            if limit and time.monotonic() - heard > limit + LOST_MARGIN_S:
                return

    def close(self) -> None:
        """End the agent, and remove the folder unless ranks still write there or a newer keeper has it."""
        if self.agent is not None and self.agent.poll() is None:
            self.agent.terminate()
            try:
                self.agent.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.agent.kill()
                self.agent.wait()
        if self.lock is not None:
            self._remove_folder()
        _say({"ended": True})

    def _remove_folder(self) -> None:
        deadline = time.monotonic() + RANKS_LIMIT_S
        while not self.replaced and _has_ranks(self.folder) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if not self.replaced and not _has_ranks(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the folder ---

    def _prepare(self) -> None:
        guest.make_private(guest.runtime_folder())
        _remove_dead(self.folder)
        guest.make_private(self.folder)
        self._take_over()
        guest.make_private(os.path.join(self.folder, "rings"))
        for name, text in self.spec["probe"].items():
            path = os.path.join(self.folder, "probe", name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "wb") as file:
                file.write(text.encode("latin-1"))

    def _take_over(self) -> None:
        """Hold the folder's lock. A keeper whose connection was cut may still have it: it leaves the folder as it is."""
        lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + TAKE_OVER_LIMIT_S
        while not _try_lock(lock):
            holder = os.pread(lock, 16, 0)
            if holder.isdigit():
                _signal(int(holder), signal.SIGTERM)
            if time.monotonic() > deadline:
                raise Failed("another keeper of this job does not go")
            time.sleep(POLL_S)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode("ascii"), 0)
        self.lock = lock

    def _on_term(self, *_: Any) -> None:
        self.replaced = True

    # --- the agent ---

    def _start(self) -> None:
        """Start it and wait until it listens. Raises Failed."""
        program = guest.find_agent(self.spec["agent"], self.spec["agent_beside"], self.spec["python"])
        if program is None:
            raise Failed("there is no distmon-agent on this host; install distmon there, as here (pipx install distmon)")
        ready, tell = os.pipe()
        rings = os.path.join(self.folder, "rings")
        words = ["--keys-from-stdin", "--listen", self.address or _own_address(), "--rings", rings]
        words += ["--journal", os.path.join(self.folder, "journal"), "--journal-mb", "64"]
        try:
            with open(os.path.join(self.folder, "agent.log"), "ab") as log:
                self.agent = subprocess.Popen(
                    [program, *words, "--stop-with-parent", "--ready-fd", str(tell)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[tell],
                    cwd=self.folder,
                    start_new_session=True,
                )
        finally:
            os.close(tell)
        try:
            self._give_keys()
            addresses = _read_to_end(ready, START_LIMIT_S)
        finally:
            os.close(ready)
        if not addresses:
            raise Failed("the agent did not start: {}".format(self._last_words()))
        self.address = addresses[0]
        _say({"ready": self.address})

    def _give_keys(self) -> None:
        assert self.agent is not None and self.agent.stdin is not None
        try:
            with self.agent.stdin as pipe:
                pipe.write(self.spec["keys"].encode("ascii"))
        except BrokenPipeError:
            # It has ended; its last words say why.
            return

    def _last_words(self) -> str:
        with open(os.path.join(self.folder, "agent.log"), encoding="utf-8", errors="replace") as log:
            lines = log.read()[-4096:].strip().splitlines()
        return lines[-1] if lines else "no answer within {:g} s".format(START_LIMIT_S)


def _own_address() -> str:
    """Where ssh has reached this host; this host alone where no ssh has."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    address = words[2] if len(words) == 4 else "127.0.0.1"
    return "tcp://[{}]:*".format(address) if ":" in address else "tcp://{}:*".format(address)


def _read_to_end(fd: int, limit_s: float) -> List[str]:
    """Lines until the other end closes; those that came in time."""
    deadline, data = time.monotonic() + limit_s, b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            break
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        data += chunk
    return data.decode("ascii", "replace").split()


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else "exit code {}".format(code)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _signal(pid: int, signum: int) -> bool:
    """False where there is no such process, or it is another user's."""
    try:
        os.kill(pid, signum)
    except OSError:
        return False
    return True


def _has_ranks(folder: str) -> bool:
    """Whether a process lives that left a ring there; rings are named after the process (probe/ring.py)."""
    try:
        pids = {name.split("-")[0] for name in os.listdir(os.path.join(folder, "rings"))}
    except OSError:
        return False
    return any(_signal(int(pid), 0) for pid in pids if pid.isdigit())


def _remove_dead(own: str) -> None:
    """Folders that keepers left behind because ranks still lived, or because they were killed themselves."""
    base = os.path.dirname(own)
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if not name.startswith("guest-") or path == own or _has_ranks(path):
            continue
        try:
            lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        if _try_lock(lock):
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
