"""One host of the harness: a tree of processes in namespaces of its own, held by the harness's end of a pipe."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.cluster.requirements import path as admin_path

BOOT_LIMIT_S = 30.0
END_LIMIT_S = 10.0
_NAMESPACES = ("--net", "--uts", "--mount", "--pid", "--ipc", "--time")


class Namespaces:
    """Process 1 of new namespaces, started with `command` (see UNSHARE); it and all in them end when this object lets go."""

    def __init__(self, command: Sequence[str], group: Path | None = None) -> None:
        if group is not None:
            command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": admin_path()},
            start_new_session=True,
        )
        self.pid = 0
        """Of process 1, as this machine counts."""

    def wait_ready(self) -> None:
        """Wait for "ready". Raises RuntimeError with what was said instead."""
        said = _first_line(self._process.stdout, BOOT_LIMIT_S)
        if said != "ready":
            self.end()
            raise RuntimeError(said or f"no answer within {BOOT_LIMIT_S:g} s")
        (self.pid,) = _children(self._process.pid)

    def end(self) -> None:
        """Kill process 1, which makes the kernel kill every process of these namespaces, and wait for that."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(END_LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def within(pid: int, *command: str, cwd: Path | None = None) -> list[str]:
    """The command line that runs `command` in a host, by its process 1. nsenter stays outside, and its end is the command's.

    nsenter stops with a command that is stopped, and must end all the same: a namespace whose dead nobody reaps stays for ever.
    """
    folder = [f"--wd={cwd}"] if cwd is not None else []
    dying = ["setpriv", "--pdeathsig", "KILL"]
    return [*dying, "nsenter", "--target", str(pid), *_NAMESPACES, *folder, "--", *dying, *command]


class Host:
    """Made by a Cluster. Commands run in it as at its own console, not through its sshd."""

    def __init__(self, name: str, address: str, namespaces: Namespaces, environment: Mapping[str, str]) -> None:
        self.name = name
        self.address = address
        self.namespaces = namespaces
        self.environment = dict(environment)
        self.alive = True

    def popen(self, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **options: Any) -> Any:
        """Start a command in the host; options as of subprocess.Popen. What is returned can be killed and waited for."""
        words = within(self.namespaces.pid, *command, cwd=cwd)
        return subprocess.Popen(words, env={**self.environment, **(env or {})}, **options)

    def run(self, *command: str, timeout_s: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in the host to its end and take what it says."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process = self.popen(*command, **options)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(list(command), process.returncode, out, err)

    def processes(self) -> dict[int, list[str]]:
        """Command lines of what runs in it, by process number as this machine counts; without process 1, sshd, and zombies."""
        if not self.alive:
            return {}
        mine = Path(f"/proc/{self.namespaces.pid}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.namespaces.pid:
                words = _command_line(entry, mine)
                if words and not words[0].startswith("sshd: ") and not words[0].endswith("/sshd"):
                    found[int(entry.name)] = words
        return found

    def pids(self, *words: str) -> list[int]:
        """Processes whose command line holds each of `words` somewhere."""
        return [pid for pid, line in self.processes().items() if all(any(word in part for part in line) for word in words)]


def _command_line(entry: Path, namespace: Path) -> list[str]:
    """Empty where the process is of another pid namespace, is gone, or is a zombie."""
    try:
        if (entry / "ns/pid").readlink() != namespace:
            return []
        return [os.fsdecode(word) for word in (entry / "cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def _first_line(pipe: IO[bytes] | None, limit_s: float) -> str:
    """Empty at the end of the time."""
    assert pipe is not None
    said = b""
    deadline = time.monotonic() + limit_s
    while not said.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            chunk = os.read(pipe.fileno(), 4096)
            said += chunk
            if not chunk:
                break
    return said.decode("utf-8", "replace").strip()
