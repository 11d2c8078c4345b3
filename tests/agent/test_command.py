"""The command line of distmon-agent: what it refuses, prints and obeys. Real processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distmon.agent.config import AgentConfig, parse_arguments
from distmon.agent.main import main
from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, NodeLeft, NodeSampled, StepsRecorded
from distmon.probe.ring import UNSEEN, RingWriter, monotonic_ns
from distmon.wire.subscription import Subscription

LIMIT_S = 20.0
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "distmon.agent.main", *sys.argv[1:]])
print(child.pid, flush=True)
sys.stdin.read()
"""


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "distmon.agent.main", *flags], capture_output=True, text=True, timeout=LIMIT_S)


def received(address: str, done: Callable[[AnyEvent], bool]) -> list[AnyEvent]:
    """Everything up to the first event that is the one waited for."""
    subscription = Subscription([address])
    events: list[AnyEvent] = []
    deadline = time.monotonic() + LIMIT_S
    try:
        while not any(done(event) for event in events):
            assert time.monotonic() < deadline, events
            events.extend(subscription.poll(0.2))
    finally:
        subscription.close()
    return events


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/run/agent.sock"


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    result = run("--once", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_once_gives_every_field_with_its_unit_or_a_reason(sample: dict[str, Any]) -> None:
    expected = {name for name in NodeSampled.__struct_fields__ if name not in ("at", "stream", "seq")} | {"at_unix_s"}
    assert set(sample) == expected
    assert 0.4 < sample["interval_s"] < 5
    assert abs(sample["at_unix_s"] - time.time()) < 60
    for name, value in sample.items():
        if value in (None, "", [], {}) and name not in ("unavailable", "sources", "age_s"):
            assert sample["unavailable"][name], name


def test_once_has_rates_over_a_real_interval(sample: dict[str, Any]) -> None:
    assert sample["cpu_percent"] is not None
    assert len(sample["cores_percent"]) >= len(os.sched_getaffinity(0))
    assert all(network["received_bytes_per_s"] is not None for network in sample["networks"])
    assert 0 < sample["memory_used_bytes"] < sample["memory_total_bytes"]


def test_once_for_people_is_one_line_a_field() -> None:
    result = run("--once")
    assert result.returncode == 0
    assert "memory_used_bytes" in result.stdout


@pytest.mark.parametrize("flags", ["--once", "--once --json", "--help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error(flags: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    script = f"{{ {sys.executable} -m distmon.agent.main {flags}; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stderr == "0\n"


@pytest.mark.parametrize("flags", [["--once"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_output_is_one_line(flags: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "distmon.agent.main", *flags]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr == "distmon-agent: standard output cannot be written: No space left on device\n"


def test_any_other_failure_of_the_system_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_sample() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("distmon.agent.once.take_sample", no_sample)
    assert main(["--once"]) == 1
    assert capsys.readouterr().err == "distmon-agent: the system refused: Too many open files\n"
    with pytest.raises(OSError, match="Too many open files"):
        main(["--once", "--debug"])


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--bogus"], 2, "unrecognized arguments: --bogus"),
        (["--listen", "tcp://0.0.0.0:5555"], 2, "needs keys first"),
        (["--listen", "nonsense"], 2, "is no address"),
        (["--rate", "fast"], 2, "--rate"),
        (["--rate", "50"], 2, "out of bounds"),
        (["--rate", "nan"], 2, "out of bounds"),
        (["--json"], 2, "--json goes with --once"),
        (["--config", "/nowhere/agent.toml"], 1, "cannot read the config file /nowhere/agent.toml"),
        (["--rings", "/nowhere/rings"], 1, "there is no folder /nowhere/rings of rings"),
        (["--rings", "/dev/null"], 1, "there is no folder /dev/null of rings"),
        (["--listen", "ipc:///nowhere/agents/a.sock"], 1, "there is no folder /nowhere/agents"),
    ],
)
def test_refusals_are_one_line_with_the_right_code(
    flags: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_taken_address_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = subprocess.Popen([sys.executable, "-m", "distmon.agent.main", "--listen", address])
    received(address, lambda event: True)
    assert main(["--listen", address]) == 1
    agent.kill()
    agent.wait()
    assert capsys.readouterr().err == (
        f"distmon-agent: {address} is taken by a running process; stop it or choose another --listen address\n"
    )


def test_flags_go_before_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('listen = ["ipc:///run/distmon/agent.sock"]\nrings = ["/run/distmon/ranks"]\nrate_hz = 2\n')
    assert parse_arguments(["--config", str(path), "--rate", "5"]) == AgentConfig(
        listen=["ipc:///run/distmon/agent.sock"], rings=["/run/distmon/ranks"], rate_hz=5.0
    )


@pytest.mark.parametrize("text", ["rate_hz = 'often'", "no_such_setting = 1", "= broken", "rate_hz = 99"])
def test_a_wrong_config_file_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        parse_arguments(["--config", str(path)])
    assert "\n" not in str(caught.value)


def test_a_config_file_of_bytes_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DistmonError, match="not UTF-8"):
        parse_arguments(["--config", str(tmp_path / "agent.toml")])


def test_it_ends_with_its_parent_even_when_that_is_killed(address: str) -> None:
    command = [sys.executable, "-c", PARENT, "--listen", address, "--stop-with-parent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        agent = os.pidfd_open(int(parent.stdout.readline()))
        received(address, lambda event: isinstance(event, NodeSampled))
        parent.kill()
        (left,) = [event for event in received(address, lambda event: isinstance(event, NodeLeft)) if isinstance(event, NodeLeft)]
    assert left.reason == "the process that started it is gone"
    assert _ended(agent)


def _ended(pidfd: int) -> bool:
    import select

    try:
        return bool(select.select([pidfd], [], [], LIMIT_S)[0])
    finally:
        os.close(pidfd)


def test_the_last_records_leave_before_it_does(address: str, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    agent = subprocess.Popen([sys.executable, "-m", "distmon.agent.main", "--listen", address, "--rings", str(rings)])
    subscription = Subscription([address])
    events: list[AnyEvent] = []
    while not any(isinstance(event, NodeSampled) for event in events):
        events.extend(subscription.poll(0.2))
    ring = RingWriter.create(str(rings), capacity=64)
    ring.message({"type": "identity", "rank": 0, "size": 1, "local_rank": 0})
    ring.step(0, 0, -1, monotonic_ns(), 1000, UNSEEN, UNSEEN, UNSEEN, UNSEEN, 8, 1)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(LIMIT_S) == 0
    while not any(isinstance(event, NodeLeft) for event in events):
        events.extend(subscription.poll(0.2))
    subscription.close()
    assert [event.samples for event in events if isinstance(event, StepsRecorded)] == [[8]]
