"""The harness itself: hosts of their own, cuts that cut, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import requirements
from tests.cluster.cluster import ROOT, Cluster
from tests.launcher.driving import alive, within

QUICK = ("-o", "ConnectTimeout=2")


def test_hosts_have_names_ids_and_files_of_their_own(cluster: Cluster) -> None:
    one, two, _ = cluster.hosts.values()
    name = f"mine-{os.getpid()}"
    script = f"hostname; cat /etc/hostname /etc/machine-id; touch /tmp/{name} /run/{name}"
    said = [host.run("sh", "-c", script).stdout.split() for host in (one, two)]
    assert [words[:2] for words in said] == [["node1", "node1"], ["node2", "node2"]]
    assert said[0][2] != said[1][2]
    assert not Path("/run", name).exists() and not Path("/tmp", name).exists()
    assert one.run("sh", "-c", f"echo seen > {cluster.shared}/note").returncode == 0
    assert two.run("cat", f"{cluster.shared}/note").stdout == "seen\n"


def test_ssh_between_hosts_asks_nothing(cluster: Cluster) -> None:
    for source, target in (("node1", "node2"), ("node2", "node3"), ("node3", "node1"), ("node1", "node1")):
        assert cluster.hosts[source].run("ssh", "-o", "BatchMode=yes", target, "hostname").stdout == f"{target}\n"


def test_a_cut_host_is_out_of_reach_until_it_is_healed(cluster: Cluster) -> None:
    one = cluster.hosts["node1"]
    cluster.cut("node3")
    assert one.run("ssh", *QUICK, "node3", "true").returncode == 255
    assert one.run("ssh", *QUICK, "node2", "true").returncode == 0
    cluster.heal("node3")
    assert within(10, lambda: one.run("ssh", *QUICK, "node3", "true").returncode == 0)
    cut, healed = cluster.truth.last("cut", "node3"), cluster.truth.last("heal", "node3")
    assert cut.began <= cut.at <= healed.began <= healed.at


def test_a_killed_host_loses_every_process_and_can_come_back(cluster: Cluster) -> None:
    two = cluster.hosts["node2"]
    sleeper = two.popen("setsid", "sleep", "1000")
    assert within(10, lambda: bool(two.pids("sleep", "1000")))
    (pid,) = two.pids("sleep", "1000")
    cluster.kill("node2")
    sleeper.wait()
    assert not alive(pid)
    assert two.processes() == {}
    cluster.up("node2")
    # This time with a connection that nobody can close.
    connection = cluster.hosts["node1"].popen("ssh", *QUICK, "node2", "echo up; sleep 100", stdout=subprocess.PIPE, text=True)
    assert connection.stdout.readline() == "up\n"
    cluster.lose("node2")
    connection.kill()
    connection.communicate()
    (again,) = cluster.up("node2")
    assert within(10, lambda: again.run("hostname").stdout == "node2\n")
    assert within(10, lambda: cluster.hosts["node1"].run("ssh", *QUICK, "node2", "hostname").stdout == "node2\n")


def test_the_list_for_discovery_scripts_follows_who_joins_and_leaves(cluster: Cluster) -> None:
    cluster.join("node1", 2)
    cluster.join("node3")
    assert cluster.hosts["node2"].run("cat", str(cluster.listed)).stdout == "node1:2\nnode3:1\n"
    cluster.leave("node1")
    cluster.leave("node3")
    assert cluster.listed.read_text() == ""


KILLED = """
import os, sys, time
from tests.cluster.cluster import Cluster
cluster = Cluster()
(host,) = cluster.up("alone")
host.popen("setsid", "sleep", "1001")
stopped = host.popen("sh", "-c", "kill -STOP $$")
os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
print(cluster.folder, host.namespaces.pid, flush=True)
time.sleep(1000)
"""


def test_a_harness_that_is_killed_leaves_no_process_and_its_folder_goes_at_the_next_start() -> None:
    before = _links()
    harness = subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, env=_with_root(), stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    folder, init = harness.stdout.readline().split()
    namespace = Path(f"/proc/{init}/ns/pid").readlink()
    harness.kill()
    harness.communicate()
    assert within(10, lambda: not alive(int(init)))
    assert within(10, lambda: namespace not in _pid_namespaces())
    assert Path(folder).is_dir()
    with Cluster():
        assert not Path(folder).exists()
    assert _links() == before


def _with_root() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _links() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def _pid_namespaces() -> set[Path]:
    found: set[Path] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add((entry / "ns/pid").readlink())
            except OSError:
                continue
    return found


def test_a_harness_that_is_closed_leaves_nothing() -> None:
    with Cluster() as made:
        (host,) = made.up("alone")
        pid, folder = host.namespaces.pid, made.folder
    assert not alive(pid)
    assert not folder.exists()


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "program", lambda name: None if name in ("sshd", "ip") else f"/bin/{name}")
    assert "apt-get install --no-install-recommends iproute2 openssh-server" in requirements.why_not.__wrapped__()


CONSOLE = (sys.executable, "-m", "tests.cluster")


def tell(*words: str) -> tuple[int, str]:
    """What another terminal's command gives and says."""
    done = subprocess.run([*CONSOLE, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_the_console_plays_also_from_other_terminals_and_cleans_up() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*CONSOLE, "up", "2"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as playing:
        assert playing.stdout is not None
        first = playing.stdout.readline()
        assert first.startswith("node1, node2 are up")
        this = ("--cluster", str(Path(first.split()[-1]).parent))
        assert tell("in", *this, "node2", "hostname") == (0, "node2\n")
        assert tell("cut", *this, "nobody") == (1, "there is no host 'nobody'; there are node1, node2\n")
        assert tell("cut", *this, "node2") == (0, "")
        assert tell("in", *this, "node1", "ssh", *QUICK, "node2", "true")[0] == 255
        out, _ = playing.communicate("in node1 hostname\nkill node2\nlist\nnonsense\ncut nobody\nquit\n", timeout=60)
    assert playing.returncode == 0
    assert "node1\n" in out
    assert "node2  10.77.0.2  gone" in out
    assert "KeyError" in out
    assert tell("in", *this, "node1", "true")[0] == 1
