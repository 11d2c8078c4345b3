"""Several hosts on one machine: network namespaces joined by a bridge, each with a name, an sshd and files of its own.

Nothing has a name outside: the bridge lies in a namespace too, and all namespaces are held by processes that end when the harness
does, however it ends. What a killed harness leaves is a temporary folder, which the next start removes.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tests.cluster import memory, skew
from tests.cluster.host import Host, Namespaces, within
from tests.cluster.links import Links
from tests.cluster.requirements import UNSHARE, path, program, why_not
from tests.cluster.truth import TruthLog

ROOT = Path(__file__).resolve().parent.parent.parent
INIT = Path(__file__).with_name("init.py")
PREFIX = "distmon-cluster-"
NETWORK = "10.77.0."
MAX_HOSTS = 200
STATE = "state.json"
GONE_LIMIT_S = 30.0
_PRIVATE = ("/tmp", "/var/tmp")
_SWITCH = "ip link set dev lo up && ip link add name switch type bridge && ip link set dev switch up && echo ready && exec cat"


class Cluster:
    """A context manager. `shared` is the one folder that all hosts see as it is; /tmp, /run and ~/.ssh are each host's own."""

    def __init__(self) -> None:
        if reason := why_not():
            raise RuntimeError(reason)
        _remove_dead()
        self.name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = Path(tempfile.gettempdir()) / self.name
        self.folder.mkdir(mode=0o700)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.truth = TruthLog(self.folder / "truth.jsonl")
        self.hosts: dict[str, Host] = {}
        self.listed = self.folder / "shared" / "hosts"
        """name:slots of each host that takes part: `cat` of it is a host discovery script."""
        self.listed.touch()
        self._addresses: dict[str, str] = {}
        self._ssh = _SshFiles(self.folder / "ssh")
        self._names = self.folder / "etc-hosts"
        self._names.write_text("127.0.0.1 localhost\n")
        self._switch = Namespaces(["unshare", "--net", "--kill-child", "--fork", "sh", "-c", _SWITCH])
        self._switch.wait_ready()
        self._links = Links(self._switch.pid)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every process of every host, and remove what was made."""
        for host in self.hosts.values():
            if host.alive:
                host.namespaces.end()
                host.alive = False
        self._links.close()
        self._switch.end()
        memory.remove_all(self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- hosts ---

    def up(self, *names: str, memory_bytes: int | None = None, ahead_s: int = 0) -> list[Host]:
        """Start hosts, all at once; a name that was up before gets a new machine under its old address. Raises RuntimeError.

        With `ahead_s` their wall clocks are wrong by so much, and their monotonic clocks began at other moments (see skew.py).
        """
        began = time.time()
        own_clock = skew.environment(self.folder, ahead_s) if ahead_s else {}
        booting = {name: self._boot(name, memory_bytes, own_clock) for name in names}
        for name, namespaces in booting.items():
            namespaces.wait_ready()
            self.hosts[name] = Host(name, self._addresses[name], namespaces, {**environment(), **own_clock})
            self._plug(name)
            self.truth.add("up", name, began)
        self._remember()
        return [self.hosts[name] for name in names]

    def join(self, name: str, slots: int = 1) -> Host:
        """Let a host take part: up if it is not, and listed with `slots`."""
        began = time.time()
        if name not in self.hosts or not self.hosts[name].alive:
            self.up(name)
        self._list(name, slots)
        self.truth.add("join", name, began, f"{slots} slots")
        return self.hosts[name]

    def leave(self, name: str) -> None:
        """Take a host off the list. It stays up, and what runs on it runs on."""
        began = time.time()
        self._list(name, None)
        self.truth.add("leave", name, began)

    def cut(self, name: str) -> None:
        """Take its link down: nothing comes or goes, and nobody is told."""
        began = time.time()
        self._links.set(self._port(name), up=False)
        self.truth.add("cut", name, began)

    def heal(self, name: str) -> None:
        """Bring its link up again."""
        began = time.time()
        self._links.set(self._port(name), up=True)
        self.truth.add("heal", name, began)

    def part(self, *names: str) -> None:
        """Close the way between these hosts, both ways and for good: each still reaches all others. Nobody is told."""
        self._ip(*(f"link set dev {self._port(name)} type bridge_slave isolated on" for name in names))

    def kill(self, name: str) -> None:
        """End every process of a host at once; its kernel still closes their connections."""
        began = time.time()
        self.hosts[name].alive = False
        self.hosts[name].namespaces.end()
        self.truth.add("kill", name, began)

    def lose(self, name: str) -> None:
        """The host is gone without a word, as when its power fails."""
        began = time.time()
        self._links.set(self._port(name), up=False)
        self.hosts[name].alive = False
        self.hosts[name].namespaces.end()
        self.truth.add("lose", name, began)

    def signal(self, name: str, pids: Iterable[int], number: int) -> None:
        """Send a signal to processes of a host (numbers as this machine counts); after SIGKILL, wait until they are gone.

        It takes the kernel a while to take a large process apart, and only then its connections close.
        """
        began = time.time()
        watches = [os.pidfd_open(pid) for pid in pids]
        for watch in watches:
            signal.pidfd_send_signal(watch, number)
        for watch in watches:
            if number == signal.SIGKILL:
                select.select([watch], [], [], GONE_LIMIT_S)
            os.close(watch)
        self.truth.add("signal", name, began, signal.Signals(number).name)

    # --- parts ---

    def _boot(self, name: str, memory_bytes: int | None, own_clock: dict[str, str]) -> Namespaces:
        if name not in self._addresses:
            if len(self._addresses) == MAX_HOSTS:
                raise RuntimeError(f"a cluster has at most {MAX_HOSTS} hosts")
            self._addresses[name] = f"{NETWORK}{len(self._addresses) + 1}"
            # In place: a file that stands in for another is known by its inode.
            with self._names.open("a") as file:
                file.write(f"{self._addresses[name]} {name}\n")
        own = self.folder / name
        own.mkdir(exist_ok=True)
        (own / "machine-id").write_text(secrets.token_hex(16) + "\n")
        (own / "hostname").write_text(name + "\n")
        files = {"/etc/hosts": self._names, "/etc/hostname": own / "hostname", "/etc/machine-id": own / "machine-id"}
        private = [*_PRIVATE, str(Path.home() / ".ssh")]
        spec = {
            "name": name,
            "files": {at: str(source) for at, source in {**files, "/etc/ssh": self._ssh.client}.items() if Path(at).exists()},
            "keep": _kept(self.folder),
            "private": [folder for folder in private if Path(folder).is_dir()],
            "sshd_program": program("sshd"),
            "sshd": [str(self._ssh.server_configuration), *skew.sshd_options(own_clock)],
            "log": str(own / "sshd.log"),
        }
        group = memory.limit(f"{self.name}-{name}-{secrets.token_hex(2)}", memory_bytes) if memory_bytes is not None else None
        apart = [*UNSHARE, *(skew.UNSHARE if own_clock else ())]
        return Namespaces([*apart, sys.executable, "-I", "-S", str(INIT), json.dumps(spec)], group)

    def _remember(self) -> None:
        """For other terminals (see `attach`)."""
        hosts = {name: [host.namespaces.pid, self._port(name)] for name, host in self.hosts.items() if host.alive}
        (self.folder / STATE).write_text(json.dumps({"switch": self._switch.pid, "hosts": hosts}))

    def _plug(self, name: str) -> None:
        """A cable from the host's eth0 to the switch."""
        host = self.hosts[name]
        # Connections that a lost host never closed hold its namespace, and the old cable with it, for minutes.
        subprocess.run([*self._in_switch(), program("ip") or "ip", "link", "delete", self._port(name)], stderr=subprocess.DEVNULL)
        # The same card after a restart: its neighbours remember the address.
        card = f"02:00:00:00:00:{int(host.address.rpartition('.')[2]):02x}"
        self._ip(
            f"link add name {self._port(name)} type veth peer name eth0 address {card} netns {host.namespaces.pid}",
            f"link set dev {self._port(name)} master switch up",
        )
        _ip(_in_network_of(host.namespaces.pid), f"address add {host.address}/24 dev eth0", "link set dev eth0 up")

    def _port(self, name: str) -> str:
        return "port" + self._addresses[name].rpartition(".")[2]

    def _ip(self, *lines: str) -> None:
        _ip(self._in_switch(), *lines)

    def _in_switch(self) -> list[str]:
        return _in_network_of(self._switch.pid)

    def _list(self, name: str, slots: int | None) -> None:
        lines = [line for line in self.listed.read_text().splitlines() if line.partition(":")[0] != name]
        new = self.listed.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in [*lines, *([f"{name}:{slots}"] if slots is not None else [])]))
        # A discovery script that reads meanwhile sees the old list or the new one.
        new.replace(self.listed)


class Attached:
    """A cluster that another process has: its hosts can be entered, cut and healed. The youngest, unless `folder` names one.

    Raises RuntimeError where there is none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        found = [folder / STATE] if folder else Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{STATE}")
        states = [path for path in found if path.exists() and _owner_lives(path.parent)]
        if not states:
            raise RuntimeError("there is no cluster up; start one with: python -m tests.cluster up 3")
        state = json.loads(max(states, key=lambda path: path.stat().st_mtime).read_text())
        self._switch: int = state["switch"]
        self._hosts: dict[str, tuple[int, str]] = state["hosts"]

    def _host(self, name: str) -> tuple[int, str]:
        if name not in self._hosts:
            raise RuntimeError(f"there is no host {name!r}; there are {', '.join(self._hosts)}")
        return self._hosts[name]

    def run(self, name: str, *command: str) -> int:
        """Run a command in a host, on this terminal, and give its exit code."""
        return subprocess.run(within(self._host(name)[0], *command, cwd=ROOT), env=environment()).returncode

    def set_link(self, name: str, *, up: bool) -> None:
        """Take a host's link down, or up again."""
        links = Links(self._switch)
        links.set(self._host(name)[1], up=up)
        links.close()


def _in_network_of(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net"]


class _SshFiles:
    """What stands at /etc/ssh on every host: one key for all hosts and one for the user, who is known and knows them all."""

    def __init__(self, folder: Path) -> None:
        self.client = folder / "client"
        server = folder / "server"
        self.client.mkdir(parents=True)
        server.mkdir()
        for key in (server / "host_key", self.client / "user_key"):
            subprocess.run([program("ssh-keygen") or "", "-q", "-t", "ed25519", "-N", "", "-C", "cluster", "-f", key], check=True)
        host_key = (server / "host_key.pub").read_text()
        (self.client / "ssh_known_hosts").write_text(f"* {host_key}")
        (self.client / "ssh_config").write_text("Host *\n  IdentityFile /etc/ssh/user_key\n  IdentitiesOnly yes\n")
        (server / "authorized_keys").write_text((self.client / "user_key.pub").read_text())
        self.server_configuration = server / "sshd_config"
        self.server_configuration.write_text(
            f"HostKey {server / 'host_key'}\nAuthorizedKeysFile {server / 'authorized_keys'}\n"
            "PidFile none\nUsePAM no\nUseDNS no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
            "MaxStartups 100\nPrintMotd no\nPrintLastLog no\n"
        )


def _ip(where: list[str], *lines: str) -> None:
    """Several commands of `ip` in one process. Raises CalledProcessError."""
    command = [*where, program("ip") or "ip", "-batch", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", check=True, capture_output=True, text=True)


def _kept(folder: Path) -> list[str]:
    """Folders that a host must see though they lie where it has files of its own."""
    needed = {folder, ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    return [str(path) for path in sorted(needed) if any(path.is_relative_to(own) for own in ("/run", *_PRIVATE))]


def environment() -> dict[str, str]:
    """Of a fresh login on a host, with this environment's programs first on PATH."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{path()}",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}",
        "XDG_STATE_HOME": "/tmp/state",
        # Hosts share this machine's few cores, and each would take them all.
        "OMP_NUM_THREADS": "1",
    }


def _owner_lives(folder: Path) -> bool:
    return Path("/proc", folder.name.removeprefix(PREFIX).partition("-")[0]).exists()


def _remove_dead() -> None:
    """What harnesses left that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if not _owner_lives(folder):
            memory.remove_all(folder.name)
            shutil.rmtree(folder, ignore_errors=True)
