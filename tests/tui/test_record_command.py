"""`distmon record` with a real agent: nothing twice, nothing lost over restarts of both, on disk before it is acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from distmon.core.batches import single_events
from distmon.core.events import AnyEvent, NodeSampled, NoticeGiven, SessionStarted, Ticked
from distmon.probe.ring import UNSEEN, RingWriter, monotonic_ns
from distmon.replay.recorder import Recorder
from distmon.replay.resume import last_position
from distmon.replay.session_file import Notes, open_session
from distmon.tui.live import LiveSession
from distmon.wire.clock import SteadyClock
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import LinkStatus, Subscription

LIMIT_S = 60.0


class Setup:
    """An agent with a journal, a recorder, and a rank's ring; each process can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        (folder / "rings").mkdir(mode=0o700)
        self.file = folder / "s.jsonl"
        self.address = f"ipc://{folder}/run/agent.sock"
        self._agent_command = [sys.executable, "-m", "distmon.agent.main", "--listen", self.address]
        self._agent_command += ["--rings", str(folder / "rings"), "--journal", str(folder / "journal"), "--steps-rate", "10"]
        self._record_command = [sys.executable, "-m", "distmon.tui.cli.main", "record", str(self.file), "--connect", self.address]
        self.ring = RingWriter.create(str(folder / "rings"), capacity=16384)
        self.ring.message({"type": "identity", "rank": 0, "size": 1, "local_rank": 0, "local_size": 1})
        self.made = 0
        self.agent = self.start_agent()
        self.recorder = self.start_recorder()

    def start_agent(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._agent_command)

    def start_recorder(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._record_command, stderr=subprocess.PIPE)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.ring.step(self.made, 0, -1, monotonic_ns(), 1000, UNSEEN, UNSEEN, UNSEEN, UNSEEN, 8, 1)
            self.made += 1

    def events(self) -> list[AnyEvent]:
        return list(open_session(self.file).events(Notes())) if self.file.exists() and self.file.stat().st_size else []

    def steps(self) -> list[int]:
        batches = [batch for event in self.events() for batch in single_events(event)]
        return [batch.first_step + place for batch in batches for place in range(len(batch.duration_ns))]

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def close(self) -> None:
        for process in (self.recorder, self.agent):
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    with closing(Setup(tmp_path)) as setup:
        yield setup


def test_killed_at_any_time_each_step_and_sample_is_recorded_once(setup: Setup) -> None:
    setup.write(50)
    setup.until(lambda: len(setup.steps()) == 50)
    setup.agent.kill()
    setup.agent.wait()
    setup.write(50)
    setup.agent = setup.start_agent()
    setup.until(lambda: len(setup.steps()) == 100)
    setup.recorder.kill()
    setup.recorder.communicate()
    with setup.file.open("ab") as file:
        file.write(b'{"kind":"steps_recorded","at":1')
    setup.write(50)
    setup.agent.kill()
    setup.agent.wait()
    setup.agent = setup.start_agent()
    setup.write(50)
    setup.recorder = setup.start_recorder()
    setup.until(lambda: len(setup.steps()) == 200)
    pulled = setup.file.with_name("pulled.jsonl")
    command = [sys.executable, "-m", "distmon.tui.cli.main", "pull", setup.address, "-o", str(pulled)]
    assert subprocess.run(command, stderr=subprocess.PIPE).returncode == 0
    batches = [batch for event in open_session(pulled).events(Notes()) for batch in single_events(event)]
    assert [batch.first_step + place for batch in batches for place in range(len(batch.duration_ns))] == list(range(200))
    setup.recorder.send_signal(signal.SIGTERM)
    _, said = setup.recorder.communicate()
    assert (setup.recorder.returncode, said.count(b"\n")) == (0, 1)
    assert setup.steps() == list(range(200))
    numbers = [event.seq for event in setup.events() if event.stream.endswith("/node")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum(isinstance(event, NodeSampled) for event in setup.events()) > 1
    assert sum(isinstance(event, SessionStarted) for event in setup.events()) == 1


def test_the_end_of_a_recording_is_its_position(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with Recorder(path) as recorder:
        recorder.write(SessionStarted(at=0.0, session_id="s", distmon_version="0"))
        for seq, stream in ((1, "n/b/ranks"), (2, "n/b/ranks"), (7, "n/b/node")):
            recorder.write(Ticked(at=1.0, stream=stream, seq=seq))
    with path.open("ab") as file:
        file.write(b'{"kind":"ticked","at":1,"stream":"n/b/node","seq":8}')
    assert last_position(path) == {"n/b/ranks": 3, "n/b/node": 8}


class SlowDisk:
    """A sink whose disk takes nothing until it is told to."""

    failed = ""

    def __init__(self) -> None:
        self.read, self.write_end = os.pipe()

    def write(self, event: AnyEvent) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def sync(self) -> None:
        os.read(self.read, 1)


def test_an_agent_hears_that_something_is_stored_only_when_it_is_on_the_disk(tmp_path: Path) -> None:
    disk = SlowDisk()
    with closing(Publisher("n", "b", [f"ipc://{tmp_path}/run/a.sock"])) as publisher:
        subscription = Subscription(publisher.addresses, since_start=True)
        session = LiveSession(None, subscription, list, SteadyClock(), disk)
        session.start()
        publisher.publish("s", Ticked(at=1.0))
        arrived = False
        deadline = time.monotonic() + LIMIT_S
        while not arrived:
            assert time.monotonic() < deadline
            publisher.serve(0.02)
            arrived = any(event.stream for event in session.poll())
        begun = time.monotonic()
        while time.monotonic() - begun < 3.0:  # more than a flush and a request
            publisher.serve(0.02)
        assert [viewer.stored for viewer in publisher._viewers.values()] == [{}]
        os.write(disk.write_end, b"12345")
        while not any(viewer.stored == {"n/b/s": 2} for viewer in publisher._viewers.values()):
            assert time.monotonic() < deadline
            publisher.serve(0.02)
        session.close()


class Agents:
    """A subscription to agents that say nothing, of which one sends what nobody understands."""

    def __init__(self, *links: LinkStatus) -> None:
        self.links = links

    def poll(self, timeout_s: float) -> list[AnyEvent]:
        return []

    def status(self) -> list[LinkStatus]:
        return list(self.links)

    def lags(self) -> dict[str, float]:
        return {}

    def focus(self, *nodes: object) -> None:
        pass

    def close(self) -> None:
        pass


def told_by_the_end(agents: Agents, events: list[AnyEvent]) -> list[AnyEvent]:
    """What a screen gets that first looks when the session is closed."""
    waiting = [events]
    ticked = threading.Event()
    session = LiveSession(
        None,
        cast(Subscription, agents),
        lambda: waiting.pop() if waiting else [],
        SteadyClock(),
        watcher=lambda event: ticked.set() if isinstance(event, Ticked) and event.at > 10 else None,
    )
    session.start()
    assert ticked.wait(LIMIT_S)
    session.close()
    return list(session.poll())


def test_what_agents_send_and_nobody_understands_is_told() -> None:
    """As of an agent of a later version: it would look as if it were silent."""
    later = LinkStatus("ipc:///a.sock", "", None, 3, {"version": 2, "kind": 1}, "version: 2, this side speaks 1")
    good = LinkStatus("ipc:///b.sock", "n1", 1.0, 3, {}, "")
    notices = [event for event in told_by_the_end(Agents(good, later), []) if isinstance(event, NoticeGiven)]
    assert [notice.text for notice in notices] == [
        "messages and events of ipc:///a.sock refused so far: 3 (1 for kind, 2 for version); "
        "the last: version: 2, this side speaks 1"
    ]
    assert [event for event in told_by_the_end(Agents(good), []) if isinstance(event, NoticeGiven)] == []


def test_events_that_a_screen_skips_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.tui.live.MAX_WAITING", 3)
    first, *rest = told_by_the_end(Agents(), [Ticked(at=float(number)) for number in range(5)])
    assert isinstance(first, NoticeGiven)
    assert "skipped 4 events; the recording has them" in first.text
    assert len(rest) == 3
