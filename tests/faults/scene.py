"""Ranks and an agent on one host, a recorder on another, keys and a network between them; and the count of what arrived."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distmon.core.batches import told_by
from distmon.core.events import GapFound, NodeSampled
from distmon.replay.session_file import Notes, open_session
from distmon.wire.keys import AGENTS, VIEWERS, Entry, create_own, save_entries
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.requirements import why_not

RANKS = 2
STEP_S = 0.005
LIMIT_S = 90.0
PORT = 7070
STEPPING, TRAINING = "rank.py", "training.py"
"""Steps through the ring and nothing else, or a training with PyTorch."""


def node_and_desk() -> Iterator[Cluster]:
    """For a fixture: the hosts of a scene, where this machine can have them."""
    if reason := why_not():
        pytest.skip(reason)
    with Cluster() as made:
        made.up("node", "desk")
        yield made


class Outcome(NamedTuple):
    """Steps that the ranks logged, against those in the recording; and the agent's samples by their numbers."""

    made: int
    recorded: int
    lost: int
    duplicated: int
    wrong: int
    """Of another duration than the rank logged, or one that it cannot have had by the rank's own clock."""
    out_of_order: int
    told_lost: int
    """In gaps."""
    samples: int
    samples_lost: int
    samples_duplicated: int

    @property
    def whole(self) -> bool:
        """Everything exactly once, and in order."""
        faults = self[2:7] + self[8:]
        return self.made > 0 and not any(faults)


class Scene:
    """One agent with its ranks on `node`, one recorder on `desk`."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        desk: str,
        name: str,
        disk_bytes: int = 0,
        journal_mb: float = 64.0,
        program: str = STEPPING,
        flags: Sequence[str] = (),
    ) -> None:
        """With `disk_bytes` the journal is on a disk of that size. `program` is what a rank runs, `flags` are the recorder's."""
        self.cluster = cluster
        self.program = program
        self.disk_bytes = disk_bytes
        self.node, self.desk = node, desk
        self.folder = cluster.shared / name
        self.rings, self.journal = self.folder / "rings", self.folder / "journal"
        self.recording = self.folder / "session.jsonl"
        self.rings.mkdir(mode=0o700, parents=True)
        if disk_bytes:
            self.journal.mkdir(mode=0o700)
            options = f"size={disk_bytes},mode=0700"
            assert self._host(node).run("mount", "-t", "tmpfs", "-o", options, "journal", str(self.journal)).returncode == 0
        address = f"tcp://{self._host(node).address}:{PORT}"
        agent_keys, viewer_config = self.folder / "agent-keys", self.folder / "config"
        viewer_keys = viewer_config / "distmon" / "keys"
        agent, viewer = create_own(agent_keys), create_own(viewer_keys)
        save_entries(agent_keys, VIEWERS, [Entry(viewer.public, "desk")])
        save_entries(viewer_keys, AGENTS, [Entry(agent.public, "node", address)])
        self._agent_words = ["-m", "distmon.agent.main", "--listen", address.replace(self._host(node).address, "0.0.0.0")]
        self._agent_words += ["--keys", str(agent_keys), "--journal", str(self.journal), "--journal-mb", f"{journal_mb:g}"]
        self._agent_words += ["--rings", str(self.rings)]
        self._agent_words += ["--steps-rate", "5", "--rate", "2"]
        self._recorder_words = ["-m", "distmon.tui.cli.main", "record", str(self.recording), "--connect", "node", *flags]
        self._recorder_environment = {"XDG_CONFIG_HOME": str(viewer_config)}
        self._ranks: list[Any] = []
        self._agent: Any = None
        self._recorder: Any = None

    def begin(self, *, recorder: bool = True) -> None:
        """All of it, until the first steps are there."""
        self.start_agent()
        if recorder:
            self.start_recorder()
        for rank in range(RANKS):
            words = [str(Path(__file__).with_name(self.program)), str(self.rings), str(self.folder / f"log-{rank}")]
            words += [str(rank), str(STEP_S)]
            environment = self._torchrun(rank) if self.program == TRAINING else {}
            self._ranks.append(self._host(self.node).popen(sys.executable, *words, env=environment))
        self.until(lambda: all(self.logged(rank) for rank in range(RANKS)))
        if recorder:
            self.until(lambda: bool(self._steps()[0]))

    def _torchrun(self, rank: int) -> dict[str, str]:
        """What torchrun gives a rank, and `distmon run` for the probe."""
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "GROUP_RANK": 0}
        group = {"TORCHELASTIC_RUN_ID": "faults", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "lo"}
        probe = {"DISTMON_RING_DIR": str(self.rings), "PYTHONPATH": f"{ROOT / 'probe' / 'site'}:{ROOT / 'probe' / 'shim'}"}
        quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
        return {name: str(number) for name, number in ranks.items()} | group | probe | quiet

    def start_agent(self) -> None:
        self._agent = self._host(self.node).popen(sys.executable, *self._agent_words)

    def start_recorder(self) -> None:
        options: dict[str, Any] = {"env": self._recorder_environment, "stderr": -3}
        self._recorder = self._host(self.desk).popen(sys.executable, *self._recorder_words, **options)

    def signal_agent(self, number: int) -> None:
        self.cluster.signal(self.node, self._host(self.node).pids("distmon.agent.main", str(self.journal)), number)
        _let_end(self._agent, number)

    def signal_recorder(self, number: int) -> None:
        self.cluster.signal(self.desk, self._host(self.desk).pids("record", str(self.recording)), number)
        _let_end(self._recorder, number)

    def kill_rank(self, rank: int) -> None:
        self.cluster.signal(self.node, self._host(self.node).pids(self.program, f"log-{rank}"), signal.SIGKILL)

    def fill_disk(self) -> None:
        """Of the journal, to the last byte."""
        self._host(self.node).run("sh", "-c", f"cat /dev/zero > {self.journal}/ballast")

    def free_disk(self) -> None:
        self._host(self.node).run("rm", f"{self.journal}/ballast")

    def run_for(self, seconds: float) -> None:
        """Lets the ranks make steps; by their own count, so that a busy machine changes nothing."""
        goal = self.logged(0) + seconds / STEP_S / 2
        self.until(lambda: self.logged(0) >= goal)

    def logged(self, rank: int) -> int:
        path = self.folder / f"log-{rank}"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def finish(self) -> Outcome:
        """Ends the ranks, waits until their last steps are recorded or the time is up, ends the rest, and compares."""
        for rank in range(RANKS):
            self.cluster.signal(self.node, self._host(self.node).pids(self.program, f"log-{rank}"), signal.SIGTERM)
        for process in self._ranks:
            process.wait(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        newest = {max(key for key in self._made() if key[0] == rank) for rank in range(RANKS)}
        while time.monotonic() < deadline and not newest <= {key[:2] for key in self._steps()[0]}:
            time.sleep(0.2)
        self.signal_agent(signal.SIGTERM)
        time.sleep(1)
        self.signal_recorder(signal.SIGTERM)
        return self._compare()

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline, "the scene did not go on"
            time.sleep(0.1)

    def _compare(self) -> Outcome:
        made = self._made()
        recorded, order_faults, told = self._steps()
        numbers = self._sample_numbers()
        times = Counter(key[:2] for key in recorded.elements())
        return Outcome(
            made=len(made),
            recorded=recorded.total(),
            lost=sum(key not in times for key in made),
            duplicated=sum(count - 1 for count in times.values()),
            wrong=sum((rank, step) in made and duration not in made[rank, step] for rank, step, duration in recorded),
            out_of_order=order_faults,
            told_lost=told,
            samples=numbers.total(),
            samples_lost=sum(max(seqs) - min(seqs) + 1 - len(seqs) for seqs in _by_stream(numbers).values()),
            samples_duplicated=sum(count - 1 for count in numbers.values()),
        )

    def _made(self) -> dict[tuple[int, int], range]:
        """(rank, step) -> the durations that it may have had, as the ranks logged them."""
        found = {}
        for rank in range(RANKS):
            path = self.folder / f"log-{rank}"
            for line in path.read_text().splitlines() if path.exists() else ():
                step, least, most = map(int, line.split())
                found[rank, step] = range(least, most + 1)
        return found

    def _steps(self) -> tuple[Counter[tuple[int, int, int]], int, int]:
        """(rank, step, duration) as recorded, how often a rank's steps go back, and the records that gaps tell of."""
        found: Counter[tuple[int, int, int]] = Counter()
        last: dict[int, int] = {}
        back = told = 0
        for event in self.events():
            if isinstance(event, GapFound):
                told += event.lost_records
            for rank, _, batch in told_by(event):
                back += batch.first_step <= last.get(rank, -1)
                last[rank] = batch.last_step
                found.update((rank, batch.first_step + place, duration) for place, duration in enumerate(batch.durations_ns))
        return found, back, told

    def _sample_numbers(self) -> Counter[tuple[str, int]]:
        """Of everything in the agent's own stream, so that a hole shows."""
        events = [event for event in self.events() if event.stream.endswith("/node")]
        assert any(isinstance(event, NodeSampled) for event in events)
        return Counter((event.stream, event.seq) for event in events)

    def events(self) -> list[Any]:
        """Of the recording so far."""
        if not self.recording.exists() or not self.recording.stat().st_size:
            return []
        return list(open_session(self.recording).events(Notes()))

    def _host(self, name: str) -> Any:
        return self.cluster.hosts[name]


def _let_end(process: Any, number: int) -> None:
    """`process` is what entered the host's namespaces for another, which was sent a signal: it stops with that one, not more."""
    if number == signal.SIGCONT:
        process.send_signal(signal.SIGCONT)
    if number in (signal.SIGKILL, signal.SIGTERM):
        process.wait(LIMIT_S)


def _by_stream(numbers: Counter[tuple[str, int]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for stream, seq in numbers:
        found.setdefault(stream, set()).add(seq)
    return found
