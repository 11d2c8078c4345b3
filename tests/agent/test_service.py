"""The agent as a service: what the manager is told, the unit's score, and the sensors without any privilege."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from distmon.agent.config import parse_arguments
from distmon.agent.notify import ServiceManager
from distmon.probe.ring import RingError, RingReader, RingWriter
from distmon.wire.keys import VIEWERS, Entry, create_own, make_pair, save_entries

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "distmon-agent.service"
NOBODY = 65534


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        yield listening


def test_ready_alive_and_stopping_are_told(tmp_path: Path, manager: socket.socket) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    command = [sys.executable, "-m", "distmon.agent.main", "--listen", f"ipc://{tmp_path}/run/a.sock", "--rate", "10"]
    with subprocess.Popen(command, env=environment) as agent:
        try:
            assert manager.recv(1000).decode() == f"READY=1\nSTATUS=listening on ipc://{tmp_path}/run/a.sock"
            assert [manager.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            agent.send_signal(signal.SIGSTOP)
            time.sleep(0.05)  # what was sent before it stopped
            while _waiting(manager):
                manager.recv(1000)
            manager.settimeout(0.5)
            with pytest.raises(TimeoutError):
                manager.recv(1000)
            manager.settimeout(30)
            agent.send_signal(signal.SIGCONT)
            agent.terminate()
            while (told := manager.recv(1000)) == b"WATCHDOG=1":
                pass
            assert told == b"STOPPING=1"
        finally:
            agent.kill()


def _waiting(listening: socket.socket) -> bool:
    listening.setblocking(False)
    try:
        return bool(listening.recv(1000, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        listening.settimeout(30)


def test_without_a_manager_nothing_is_told(manager: socket.socket, tmp_path: Path) -> None:
    ServiceManager({}).ready("x")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "absent")}).ready("x")
    watched = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"})
    watched.alive()  # meant for another process
    watched.stopping()
    assert manager.recv(1000) == b"STOPPING=1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt install systemd")
def test_the_unit_is_well_formed_and_closed() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    found = subprocess.run(command, capture_output=True, text=True)
    last = found.stdout.strip().splitlines()[-1]
    assert float(last.split(":")[1].split()[0]) <= 2.0, found.stdout
    assert "Unknown" not in found.stderr, found.stderr


def test_the_unit_keeps_open_what_sensors_read() -> None:
    lines = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#"))
    assert "ProcSubset" not in lines
    assert lines["ProtectProc"] == "default"
    assert "PrivateDevices" not in lines
    assert lines["PrivateUsers"] == "no"
    assert "AF_NETLINK" in lines["RestrictAddressFamilies"]
    assert lines["CapabilityBoundingSet"] == lines["AmbientCapabilities"] == ""


def test_the_example_settings_are_understood() -> None:
    config = parse_arguments(["--config", str(PACKAGING / "agent.toml")])
    assert config.journal == "/var/lib/distmon/journal"
    shown = (PACKAGING / "agent.toml").read_text()
    from distmon.agent.config import _FileSettings

    assert [name for name in msgspec.structs.asdict(_FileSettings()) if f"{name} = " not in shown] == []


def _may_become_nobody() -> bool:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*AS_NOBODY, sys.executable, "-c", "import distmon.agent.main"], capture_output=True).returncode == 0


AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--no-new-privs", "--"]


def test_without_privileges_every_sensor_of_a_plain_node_still_reads() -> None:
    if not _may_become_nobody():
        pytest.skip("needs the superuser and setpriv (apt install util-linux), and a Python that others can read")
    command = [sys.executable, "-m", "distmon.agent.main", "--once", "--json"]
    ours, theirs = (
        json.loads(subprocess.run([*prefix, *command], capture_output=True, check=True).stdout) for prefix in ([], AS_NOBODY)
    )
    allowed = {"power"}  # RAPL is the superuser's: docs/agent_service.md
    lost = {name for name, value in ours.items() if value not in (None, [], {}, "") and theirs[name] in (None, [], {}, "")}
    assert lost <= allowed | {"age_s", "unavailable"}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent with a socket, a journal, a folder of rings, and keys for TCP."""
    keys = tmp_path / "keys"
    create_own(keys)
    save_entries(keys, VIEWERS, [Entry(make_pair().public, "anna")])
    (tmp_path / "rings").mkdir(mode=0o700)
    words = ["--listen", f"ipc://{tmp_path}/run/agent.sock", "--listen", "tcp://127.0.0.1:*", "--keys", str(keys), "--rate", "10"]
    words += ["--rings", str(tmp_path / "rings"), "--journal", str(tmp_path / "journal"), "--ready-fd", "1"]
    command = [sys.executable, "-m", "distmon.agent.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(b"ipc://")
        yield process
        process.terminate()


STRANGER = """
import os, socket, sys
folder = sys.argv[1]
for what in (
    lambda: socket.socket(socket.AF_UNIX).connect(f"{folder}/run/agent.sock"),
    lambda: os.listdir(f"{folder}/rings"),
    lambda: open(f"{folder}/rings/1-1.ring", "wb"),
    lambda: os.listdir(f"{folder}/journal"),
    lambda: os.listdir(f"{folder}/keys"),
):
    try:
        what()
        print("let in")
    except PermissionError:
        print("refused")
"""


def test_another_user_of_the_machine_neither_reads_nor_injects(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    if not _may_become_nobody():
        pytest.skip("needs the superuser and setpriv (apt install util-linux), and a Python that others can read")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)  # the machine's own folders, which others may enter
    asked = [*AS_NOBODY, sys.executable, "-S", "-c", STRANGER, str(tmp_path)]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["refused"] * 5
    # Had the folder of rings been left open, a ring of another user's would still be none.
    rings = tmp_path / "rings"
    ring = RingWriter.create(str(rings))
    ring.message({"type": "identity", "rank": 0, "size": 1, "local_rank": 0, "local_size": 1})
    os.chown(ring.path, NOBODY, NOBODY)
    with pytest.raises(RingError, match="not a ring of this user"):
        RingReader(ring.path)


def test_a_list_of_keys_that_can_no_longer_be_trusted_is_told(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert serving.stderr is not None
    viewers = tmp_path / "keys" / VIEWERS
    viewers.chmod(0o644)
    assert b"no viewer is let in over the network: " in (line := serving.stderr.readline()) and b"open to other users" in line
    viewers.chmod(0o600)
    assert b"viewers are let in over the network again" in serving.stderr.readline()
