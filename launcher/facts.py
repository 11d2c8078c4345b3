"""What has to be looked up on this machine before a job can be planned: the one impure step of planning."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil
from msgspec import Struct

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.hosts import Host, merged, parse_discovered, parse_hostfile, parse_hosts
from distmon.launcher.spec import JobSpec

DISCOVERY_LIMIT_S = 10.0
_HOROVOD_IMPORT = re.compile(r"^\s*(?:import|from)\s+horovod\.(torch|tensorflow|keras)\b", re.MULTILINE)
_PYTHON = re.compile(r"(python|pypy)[\d.]*")


class Facts(Struct, frozen=True, kw_only=True):
    """Of this machine, for one job."""

    python: str
    """The training's interpreter."""
    hosts: list[Host]
    """Hosts of the job as far as they are known before it starts; this machine where none was named."""
    local_hosts: frozenset[str]
    """Those of them that are this machine."""
    loopback: str
    """The interface that has 127.0.0.1."""
    repeated_hosts: list[str] = []
    """Hosts that were listed more than once; their slots are added up."""
    script: str = ""
    """The script that the command names, as a path; empty where it names none that is known as one."""
    missing_script: str = ""
    """That script in the user's words, where it is not there."""
    frameworks: list[str] = []
    """What the script uses through Horovod, by its own lines: torch, tensorflow."""


def gather(spec: JobSpec, *, ask_script: bool = True) -> Facts:
    """Look everything up; without `ask_script` the hosts of a discovery script stay unknown.

    Raises DistmonError or UsageError, one line each.
    """
    hosts, repeated = merged(hosts_of(spec) if ask_script or not spec.discovery_script else [])
    script = _script(spec)
    addresses = _local_addresses()
    return Facts(
        python=training_python(spec),
        hosts=hosts,
        local_hosts=frozenset(host.name for host in hosts if _address(host.name) in addresses),
        loopback=addresses.get("127.0.0.1", "lo"),
        repeated_hosts=repeated,
        script=script,
        missing_script=spec.command[1] if script and not Path(script).exists() else "",
        frameworks=_frameworks(script),
    )


def training_python(spec: JobSpec) -> str:
    """The interpreter that the command names: by itself, by its first line, or as the one that horovodrun belongs to.

    Raises UsageError when the command or every Python is missing.
    """
    path = spec.environment.get("PATH", os.defpath)
    command = _which(spec.command[0], spec)
    if command is None:
        raise UsageError(_why_not_run(spec))
    if _PYTHON.fullmatch(Path(command).name):
        return command
    for script in (command, shutil.which("horovodrun", path=path)):
        interpreter = _interpreter(script, path) if script else None
        if interpreter is not None:
            return interpreter
    found = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if found is None:
        raise UsageError("there is no Python on PATH; activate the environment that the training runs in")
    return found


def _which(word: str, spec: JobSpec) -> str | None:
    """The file that a command word runs in the job's folder and environment."""
    if "/" in word:
        path = Path(spec.cwd, word)
        return str(path) if os.access(path, os.X_OK) and not path.is_dir() else None
    return shutil.which(word, path=spec.environment.get("PATH", os.defpath))


def _why_not_run(spec: JobSpec) -> str:
    word = spec.command[0]
    path = Path(spec.cwd, word)
    if "/" not in word or not path.exists():
        return f"there is no command {word!r}; give its path, or check PATH"
    if path.is_dir():
        return f"{word!r} is a folder, which cannot be run; name the program in it"
    if not path.is_file():
        return f"{word!r} is there, but it is no program that could be run"
    return f"{word!r} is there, but cannot be run; run: chmod +x {shlex.quote(word)}, or name the program that runs it first"


def _interpreter(script: str, path: str) -> str | None:
    """The Python of a script's first line."""
    try:
        with Path(script).open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    return shutil.which(words[0], path=path)


def _script(spec: JobSpec) -> str:
    words = spec.command
    if len(words) < 2 or not _PYTHON.fullmatch(Path(words[0]).name) or words[1].startswith("-"):
        return ""
    return str(Path(spec.cwd, words[1]))


def _frameworks(script: str) -> list[str]:
    try:
        text = Path(script).read_text(encoding="utf-8", errors="replace") if script else ""
    except OSError:
        return []
    used = {"tensorflow" if name == "keras" else name for name in _HOROVOD_IMPORT.findall(text)}
    return sorted(used)


def hosts_of(spec: JobSpec) -> list[Host]:
    """The hosts that the job names, as it names them; this machine where it names none. Raises DistmonError or UsageError."""
    if spec.hosts:
        return parse_hosts(spec.hosts)
    if spec.hostfile:
        return parse_hostfile(_read(Path(spec.cwd, spec.hostfile), spec.hostfile), spec.hostfile)
    if spec.discovery_script:
        return _discover(spec.discovery_script, spec.cwd, spec.environment)
    return [Host("localhost", spec.np)]


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the hosts file {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the hosts file {name} is not text") from None


def _discover(script: str, cwd: str, environment: Mapping[str, str]) -> list[Host]:
    """Ask the script once, in a shell as Horovod does; there a script that hangs would hold the job for ever."""
    try:
        answer = subprocess.run(
            script, shell=True, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=DISCOVERY_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise DistmonError(
            f"the host discovery script {script!r} gave no answer in {DISCOVERY_LIMIT_S:g} s; Horovod would wait for ever"
        ) from None
    if answer.returncode != 0:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DistmonError(f"the host discovery script {script!r} failed with {answer.returncode}: {said[-1] if said else ''}")
    return parse_discovered(answer.stdout)


def is_local(host: str) -> bool:
    """Whether a name stands for this machine, as Horovod sees it."""
    return _address(host) in _local_addresses()


def _local_addresses() -> dict[str, str]:
    """IPv4 address -> interface."""
    return {
        address.address: interface
        for interface, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET
    }


def _address(host: str) -> str | None:
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError):  # a part of the name can be too long
        return None
