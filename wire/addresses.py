"""Which addresses an agent may listen on and a viewer may connect to, with keys and without."""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError

_MAX_SOCKET_PATH = 107
_TCP = r"tcp://(\[[0-9a-fA-F:.]+\]|[^:/\s]+):(\d{1,5}|\*)"


def check_address(address: str, *, binding: bool, keyed: bool = False) -> str:
    """The address, if it is a unix socket or, where there are keys for it, TCP. Raises UsageError, one line, for anything else.

    Loopback is no exception: every user of the machine can connect to it.
    """
    if address.startswith("ipc://"):
        _check_socket_path(address)
    elif address.startswith("tcp://"):
        _check_tcp(address, binding, keyed)
    else:
        raise UsageError(f"{address!r} is no address; write ipc:///PATH or tcp://HOST:PORT")
    return address


def prepare_socket(address: str, group: int | None = None) -> None:
    """Makes the folder of a unix socket that is about to be bound, in a private one, and refuses a socket that is in use.

    Raises DistmonError, also for a folder that others than a given `group` can enter, or that is missing elsewhere.
    """
    if not address.startswith("ipc://"):
        return
    path = Path(address.removeprefix("ipc://"))
    if not (os.path.lexists(path.parent) or _may_make(path.parent)):
        raise DistmonError(f"there is no folder {path.parent}; {_advice()}")
    private_directory(path.parent, group)
    if _answers(path):
        raise DistmonError(f"{address} is taken by a running process; stop it or choose another --listen address")


def give_to_group(address: str, group: int | None) -> None:
    """Lets the group use a unix socket that was just bound. Raises DistmonError where this user may not."""
    if group is None or not address.startswith("ipc://"):
        return
    path = address.removeprefix("ipc://")
    try:
        os.chown(path, -1, group)
        os.chmod(path, 0o660)  # noqa: PTH101
    except OSError as error:
        raise DistmonError(f"cannot let the group use {path}: {error.strerror}; is this user one of it?") from None


def private_directory(path: Path, group: int | None = None) -> Path:
    """The folder, made if missing. Raises DistmonError unless it is a real folder of this user that nobody else can enter.

    Users of `group` may enter it, and look at it, where one is given.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise DistmonError(f"cannot use the folder {path}: {error.strerror}; choose another address") from None
    if not stat.S_ISDIR(status.st_mode):
        raise DistmonError(f"{path} is not a folder of its own (a link?); choose another address")
    if status.st_uid != os.getuid():
        raise DistmonError(f"the folder {path} belongs to another user; {_advice()}")
    others = 0o027 if group is not None and status.st_gid == group else 0o077
    if status.st_mode & others:
        advice = f"run: chmod 700 {shlex.quote(str(path))}" if _may_be_closed(path, status.st_mode) else _advice()
        raise DistmonError(f"the folder {path} is open to other users; {advice}")
    return path


def _may_make(folder: Path) -> bool:
    """Whether a missing folder is made without asking: distmon's own, or one inside a folder that is this user's alone."""
    if folder.is_relative_to(runtime_directory()):
        return True
    try:
        status = folder.parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _may_be_closed(folder: Path, mode: int) -> bool:
    """Whether nobody else needs to enter a folder of this user: for root's own, /tmp or /usr/lib, that would break the system."""
    real, home, ours = folder.resolve(), _home(), runtime_directory().resolve()
    inside = (home in real.parents and home != Path("/")) or real.is_relative_to(ours)
    return inside and len(real.parts) > 2 and not mode & (stat.S_ISVTX | stat.S_IWOTH)


def _home() -> Path:
    """Where there is none, a folder that nothing is in."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path(os.devnull)


def _advice() -> str:
    return f"choose a folder of your own, like ipc://{runtime_directory()}/NAME.sock, or make one: mkdir -m 700 DIR"


def runtime_directory() -> Path:
    """Where this user's sockets are: $XDG_RUNTIME_DIR/distmon, or a folder under /tmp. Not made here."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "distmon" if runtime else Path(f"/tmp/distmon-{os.getuid()}")


def default_address() -> str:
    """Where this user's agent listens when nothing else is said."""
    return f"ipc://{runtime_directory() / 'agent.sock'}"


def _check_socket_path(address: str) -> None:
    path = address.removeprefix("ipc://")
    if not path.startswith("/"):
        raise UsageError(f"{address!r}: a unix socket needs an absolute path, like ipc:///run/distmon/agent.sock")
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise UsageError(f"the path of {address!r} is longer than the {_MAX_SOCKET_PATH} bytes that a unix socket may have")


def _check_tcp(address: str, binding: bool, keyed: bool) -> None:
    match = re.fullmatch(_TCP, address)
    if match is None or (match[2] == "*" and not binding):
        raise UsageError(f"{address!r} is no TCP address; write tcp://HOST:PORT")
    if match[2] != "*" and not 0 < int(match[2]) < 65536:
        raise UsageError(f"{address!r}: a port is a number from 1 to 65535")
    if not keyed:
        advice = "make them with `distmon keys init` and `distmon keys add` (docs/keys.md), or use ipc:///PATH"
        raise UsageError(f"{address} can be reached by other users, and that needs keys first: {advice}")


def is_served(address: str) -> bool:
    """Whether something listens on a unix socket's address."""
    return _answers(Path(address.removeprefix("ipc://")))


def _answers(path: Path) -> bool:
    """Whether a process listens on this socket; ZeroMQ would take the path away from it without a word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:
            raise DistmonError(f"cannot use {path}: {error.strerror or error}; choose another address") from None
    return True
