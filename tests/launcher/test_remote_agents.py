"""Agents on other hosts: real ones with real keys, by a stand-in of ssh that runs here what should run there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.events import AnyEvent, NodeJoined, NodeLeft
from distmon.launcher.driver import guest
from distmon.launcher.flags import job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.plan import Plan
from distmon.launcher.remote_agents import RemoteAgents, probe_files
from distmon.wire.keys import KeyPair, ViewerKeys, make_pair
from distmon.wire.subscription import Subscription
from tests.launcher.driving import CASES, within

LIMIT_S = 30.0
PROBE = Path(__file__).parents[2] / "probe"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has the folders of the "other" host below it, and ssh's stand-in on PATH."""
    monkeypatch.setenv("PATH", f"{CASES / 'common'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return tmp_path


def plan(hosts: str = "node-ok:1") -> Plan:
    words = split_arguments(["-np", "1", "-H", hosts, "--", sys.executable, "-c", "pass"], {})
    return plan_job(job_spec(words, backend="horovod", cwd="/", environment=os.environ), Path("job-1-test"))


class Followed:
    """The agents of a job, and a viewer that follows them."""

    def __init__(self, hosts: str = "node-ok:1", agent: str = "") -> None:
        self.plan = plan(hosts)
        self.ready: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.events: list[AnyEvent] = []
        self.agents = RemoteAgents(self.plan, agent, self._on_ready, lambda host, text: self.troubles.append(text))
        self.viewer = Subscription(since_start=True, keys=ViewerKeys(self.agents.viewer, {}))
        self.keys: list[str] = []

    def _on_ready(self, host: str, address: str, key: str) -> None:
        self.ready.append((host, address))
        self.keys.append(key)

    def start(self) -> dict[str, str]:
        self.agents.start(self.plan.others)
        missing = self.agents.wait(LIMIT_S)
        for (_, address), key in zip(self.ready, self.keys, strict=True):
            self.viewer.add(address, key)
        return missing

    def heard(self, kind: type[AnyEvent]) -> bool:
        self.events += self.viewer.poll(0.05)
        return any(isinstance(event, kind) for event in self.events)

    def close(self) -> None:
        self.agents.stop()
        self.viewer.close()


@pytest.fixture
def followed(host: Path) -> Iterator[Followed]:
    job = Followed()
    yield job
    job.close()


def processes(folder: Path) -> list[int]:
    """The agent's and its keeper's: all that name the folder, or run in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes() or (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_an_agent_comes_with_the_probe_and_goes_with_the_job(host: Path, followed: Followed) -> None:
    assert followed.start() == {}
    folder = Path(guest.folder_of("job-1-test", "node-ok"))
    assert folder.parent == host / "distmon" and folder.stat().st_mode & 0o077 == 0
    sent = {str(path.relative_to(folder / "probe")): path.read_bytes() for path in (folder / "probe").rglob("*.*")}
    assert sent == {name: (PROBE / name).read_bytes() for name in probe_files()}
    assert any(name.endswith(".so") for name in sent)
    assert within(LIMIT_S, lambda: followed.heard(NodeJoined))
    followed.agents.stop()
    assert within(LIMIT_S, lambda: followed.heard(NodeLeft))
    assert within(LIMIT_S, lambda: not folder.exists() and processes(folder) == [])


def test_keys_are_on_no_command_line_in_no_environment_and_in_no_file(
    host: Path, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def noted() -> KeyPair:
        pair = make_pair()
        sent.append(pair.secret)
        return pair

    monkeypatch.setattr("distmon.launcher.remote_agents.make_pair", noted)
    followed.start()
    folder = Path(guest.folder_of("job-1-test", "node-ok"))
    told = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    for pid in processes(folder):
        told += [Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()]
    assert len(told) > len(probe_files()) + 2 and len(sent) == 1
    assert not any(secret.encode() in text for text in told for secret in (*sent, followed.agents.viewer.secret))


def test_a_stranger_gets_nothing(host: Path, followed: Followed) -> None:
    followed.start()
    assert within(LIMIT_S, lambda: followed.heard(NodeJoined))
    other = RemoteAgents(followed.plan, "", lambda *_: None, lambda *_: None)
    with_wrong_key = Subscription(keys=ViewerKeys(other.viewer, {}))
    with_wrong_key.add(followed.ready[0][1], followed.keys[0])
    assert with_wrong_key.poll(1.0) == []
    with_wrong_key.close()


def test_an_agent_that_dies_is_started_again_at_its_address(host: Path, followed: Followed) -> None:
    followed.start()
    folder = Path(guest.folder_of("job-1-test", "node-ok"))
    agent = next(pid for pid in processes(folder) if b"--keys-from-stdin" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(agent, signal.SIGKILL)
    assert within(LIMIT_S, lambda: len(followed.ready) == 2)
    assert followed.ready[0] == followed.ready[1] and "SIGKILL" in followed.troubles[0]
    assert within(LIMIT_S, lambda: followed.heard(NodeJoined))


def test_why_a_host_has_no_agent(host: Path) -> None:
    job = Followed("node-ok:1,node-refused:1", agent="/nowhere/distmon-agent")
    missing = job.start()
    job.close()
    assert "there is no distmon-agent on this host" in missing["node-ok"]
    assert "Connection refused" in missing["node-refused"]
    assert job.agents.trouble("node-ok") == missing["node-ok"]
    assert list((host / "distmon").glob("guest-*")) == []


def test_a_launch_that_is_ended_waits_for_no_agent(host: Path) -> None:
    job = Followed("node-hang:1")
    job.agents.start(job.plan.others)
    began = time.monotonic()
    job.agents.cancel()
    job.close()
    assert time.monotonic() - began < 5
    assert within(5, lambda: not _children("sleep"))


def _children(name: str) -> list[str]:
    listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.split() if line == name]


PROGRAM = """
import sys, time
from tests.launcher.test_remote_agents import Followed
job = Followed()
print(job.start(), flush=True)
time.sleep(600)
"""


def test_no_agent_outlives_a_launcher_that_is_killed(host: Path) -> None:
    folder = Path(guest.folder_of("job-1-test", "node-ok"))
    launcher = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    assert launcher.stdout is not None and launcher.stdout.readline() == b"{}\n"
    assert processes(folder)
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    assert within(LIMIT_S, lambda: processes(folder) == [] and not folder.exists())
