"""A job that is launched on a host of the cluster: what distmon says while it runs, and what it leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from distmon.core.events import AnyEvent, Event
from distmon.replay.session_file import Notes, open_session
from tests.cluster.cluster import ROOT, Cluster
from tests.launcher.driving import within

LAUNCH_LIMIT_S = 90.0
THREE_HOSTS = "node1:1,node2:1,node3:1"
SHOWN_S = 2.0
"""From a process's death to its line on the screen."""
ENDED_S = 15.0
"""From the first death to the end of a static job, everywhere."""
SILENT_SHOWN_S = 15.0
"""From a cut to its line on the screen."""
SLACK_S = 0.5
"""Of a machine that is busy, for what is told of a moment after it."""
E = TypeVar("E", bound=Event)


class Said(NamedTuple):
    """A line that distmon wrote, and when (seconds since the epoch)."""

    at: float
    text: str


class ClusterJob:
    """`distmon run --headless` with a rank on each slot of `hosts`, launched on the first of them; to be closed.

    With a `discovery` script the job is elastic, and `hosts` says only how many ranks it starts with.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *command: str,
        hosts: str = THREE_HOSTS,
        discovery: str = "",
        flags: str = "",
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.recording = folder / "run.jsonl"
        self.launcher = cluster.hosts[hosts.partition(":")[0]]
        np = sum(int(number) for number in re.findall(r":(\d+)", hosts))
        where = ["--host-discovery-script", discovery] if discovery else ["-H", hosts]
        own = ["run", "--headless", "--record", str(self.recording), "-np", str(np), *where, *flags.split()]
        self.process: subprocess.Popen[str] = self.launcher.popen(
            *("distmon", *own, "--", *command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[Said] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(Said(time.time(), line.rstrip("\n")))

    def wait_for(self, pattern: str, limit_s: float = LAUNCH_LIMIT_S) -> Said:
        """The first line that matches. Raises AssertionError with all that was said when none does in time."""
        assert within(limit_s, lambda: self._find(pattern) is not None or self.process.poll() is not None), self.text()
        found = self._find(pattern)
        assert found is not None, f"no {pattern!r} in:\n{self.text()}"
        return found

    def _find(self, pattern: str) -> Said | None:
        return next((said for said in list(self.said) if re.search(pattern, said.text)), None)

    def end(self, limit_s: float = 60.0) -> int:
        """Wait for its end, and give its exit code."""
        code = self.process.wait(limit_s)
        self._reader.join(10)
        return code

    def text(self) -> str:
        """All that it has said."""
        return "\n".join(said.text for said in list(self.said))

    def of(self, kind: type[E]) -> list[E]:
        """Events of one kind in its recording."""
        return [event for event in self.events() if isinstance(event, kind)]

    def events(self) -> list[AnyEvent]:
        """All events of its recording so far."""
        return list(open_session(self.recording).events(Notes()))

    def report(self) -> dict[str, Any]:
        """Its session, as `distmon report --json` tells it."""
        command = [sys.executable, "-m", "distmon.tui.cli.main", "report", "--json", str(self.recording)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        session: dict[str, Any] = json.loads(done.stdout)["sessions"][0]
        return session

    def left_over(self) -> dict[str, dict[int, list[str]]]:
        """What still runs on hosts that are up."""
        running = {name: host.processes() for name, host in self.cluster.hosts.items()}
        return {name: processes for name, processes in running.items() if processes}

    def close(self) -> None:
        """End it at once, however far it is."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


class RankJob(ClusterJob):
    """The ranks of rank_program.py, all of them ready."""

    def __init__(self, cluster: Cluster, folder: Path, flags: str = "", hosts: str = THREE_HOSTS) -> None:
        folder.mkdir(parents=True)
        program = str(Path(__file__).with_name("rank_program.py"))
        super().__init__(cluster, folder, sys.executable, program, str(folder), hosts=hosts, flags=flags)
        try:
            for rank in range(hosts.count(":")):
                self.wait_for(f"rank {rank} is ready")
        except BaseException:
            self.close()
            raise

    def order(self, rank: int, what: str) -> float:
        """Give a rank its order; when that was (seconds since the epoch)."""
        new = self.folder / f"order-{rank}.new"
        new.write_text(what)
        new.rename(self.folder / f"order-{rank}")
        return time.time()

    def rank_pids(self, host: str) -> list[int]:
        """The rank of a host, as this machine counts processes."""
        return [pid for pid in self.cluster.hosts[host].pids("rank_program.py", str(self.folder)) if self._is_rank(host, pid)]

    def _is_rank(self, host: str, pid: int) -> bool:
        words = self.cluster.hosts[host].processes().get(pid, ["", ""])
        return len(words) > 1 and words[1].endswith("rank_program.py")


def eventually(limit_s: float, value: Callable[[], object]) -> object:
    """`value()` once it is empty, or what it is after `limit_s`: for `assert not eventually(...)`, which then shows it."""
    within(limit_s, lambda: not value())
    return value()
