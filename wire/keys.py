"""Keys: who an agent or a viewer is (a CURVE pair), whom an agent lets in, and which agents a viewer knows.

A key is 32 bytes, written as 64 hexadecimal digits: ZeroMQ's own text form has characters that shells and settings files change.
One folder of this user's holds three files: `own.key` (the secret), `viewers` (who may follow this user's agents) and `agents`
(agents of other machines that this user follows). Nobody else may read or write them; that is checked at every load.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple, Protocol

import msgspec
import zmq
from msgspec import Meta, Struct
from zmq.utils import z85

from distmon.core.errors import DistmonError, UsageError

OWN_KEY, VIEWERS, AGENTS = "own.key", "viewers", "agents"
_HEX = r"[0-9a-f]{64}"
_NAME = r"[A-Za-z0-9._@+-]{1,64}"
_LARGEST_FILE = 4 << 20
_LOOK_EVERY_S = 0.2

Key = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class KeyPair(Struct, frozen=True):
    """One identity. `public` may be known to everybody; whoever has `secret` is this identity."""

    public: Key
    secret: Key

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


class AgentKeys(Struct, frozen=True):
    """All that an agent needs: its own pair and the public keys that it lets in. Passed over a pipe for the length of one job."""

    own: KeyPair
    viewers: Annotated[list[Key], Meta(max_length=4096)]


class ViewerKeys(NamedTuple):
    """A viewer's own pair, and the public key of each agent by its address."""

    own: KeyPair
    agents: dict[str, str]
    names: Mapping[str, str] = MappingProxyType({})
    """Name -> address of the agents that the user has named."""


class Entry(NamedTuple):
    """A line of `viewers` or `agents`."""

    key: str
    name: str
    address: str = ""
    """Of an agent."""


def make_pair() -> KeyPair:
    """A new identity."""
    public, secret = (z85.decode(text).hex() for text in zmq.curve_keypair())
    return KeyPair(public, secret)


def public_of(secret: str) -> str:
    """The public key that belongs to a secret one."""
    return z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex()


def encode_agent_keys(keys: AgentKeys) -> bytes:
    """One line, with its end, for the standard input of `distmon-agent --keys-from-stdin`."""
    return msgspec.json.encode(keys) + b"\n"


def decode_agent_keys(line: bytes) -> AgentKeys:
    """Raises DistmonError, which never repeats what was given: it may hold a secret."""
    try:
        return msgspec.json.decode(line, type=AgentKeys)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DistmonError("what came on standard input are no keys; distmon run sends them, or see docs/keys.md") from None


def keys_folder() -> Path:
    """This user's keys: $XDG_CONFIG_HOME/distmon/keys. Not made here."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "distmon" / "keys"


def has_own_key(folder: Path) -> bool:
    return os.path.lexists(folder / OWN_KEY)


def create_own(folder: Path) -> KeyPair:
    """Makes the folder and a new pair in it. Raises DistmonError where there is one already."""
    _private_folder(folder, make=True)
    pair = make_pair()
    try:
        descriptor = os.open(folder / OWN_KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise DistmonError(f"there is a key already in {folder}; to show it: distmon keys show") from None
    except OSError as error:
        raise DistmonError(f"cannot write the key {folder / OWN_KEY}: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(pair.secret + "\n")
    return pair


def load_own(folder: Path) -> KeyPair:
    """The pair of this user. Raises DistmonError where it is missing, damaged, or others could have read or changed it."""
    _private_folder(folder, make=False)
    path = folder / OWN_KEY
    text = _read_private(path)
    if text is None:
        raise DistmonError(f"there is no key in {folder}; make one: distmon keys init")
    secret = text.strip()
    if not re.fullmatch(_HEX, secret):
        raise DistmonError(f"{path} holds no key; move it away and make a new one: distmon keys init")
    return KeyPair(public_of(secret), secret)


def checked_key(text: str) -> str:
    """A public key as it was typed. Raises UsageError."""
    key = text.strip().lower()
    if not re.fullmatch(_HEX, key):
        raise UsageError("a public key is 64 hexadecimal digits, as `distmon keys show` prints it")
    return key


def checked_name(text: str) -> str:
    """A name for a key. Raises UsageError."""
    if not re.fullmatch(_NAME, text):
        raise UsageError(f"{text!r} is no name for a key: use up to 64 letters, digits and . _ @ + -")
    return text


def entries(folder: Path, which: str) -> list[Entry]:
    """What is listed in `viewers` or `agents`; [] without the file. Raises DistmonError for a file that is not to be trusted."""
    if not os.path.lexists(folder):
        return []
    _private_folder(folder, make=False)
    text = _read_private(folder / which)
    found: list[Entry] = []
    for number, line in enumerate((text or "").splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) not in (2, 3) or not re.fullmatch(_HEX, words[0]) or not re.fullmatch(_NAME, words[1]):
            raise DistmonError(f"{folder / which}, line {number}: expected KEY NAME{' ADDRESS' * (which == AGENTS)}; correct it")
        found.append(Entry(*words))
    return found


def save_entries(folder: Path, which: str, listed: Iterable[Entry]) -> None:
    """Replaces the file in one go: a reader sees the old list or the new one."""
    _private_folder(folder, make=True)
    text = "".join(" ".join(filter(None, entry)) + "\n" for entry in listed)
    new = folder / f".{which}.{os.getpid()}"
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / which)
    except OSError as error:
        raise DistmonError(f"cannot write {folder / which}: {error.strerror}") from None


def viewer_keys(folder: Path) -> ViewerKeys:
    """What this user needs to follow the agents that it knows."""
    known = [entry for entry in entries(folder, AGENTS) if entry.address]
    names = {entry.name: entry.address for entry in known}
    return ViewerKeys(load_own(folder), {entry.address: entry.key for entry in known}, names)


class Allowed(Protocol):
    """Whom an agent lets in, at this moment."""

    def allows(self, key: str) -> bool: ...

    def trouble(self) -> str:
        """Why nobody at all is let in, in one line; empty while the list is good."""
        ...


class FixedList:
    """The viewers of one job."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)

    def allows(self, key: str) -> bool:
        return key in self._keys

    def trouble(self) -> str:
        return ""


class FileList:
    """The file `viewers` of a folder, read again within 0.2 s of a change. A file that cannot be trusted lets nobody in."""

    def __init__(self, folder: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises DistmonError if the file is wrong now."""
        self._trouble = ""
        self._folder = folder
        self._monotonic = monotonic
        self._looked = monotonic()
        # Before it is read: a change meanwhile is then seen at the next look.
        self._seen = self._signature()
        self._keys = frozenset(entry.key for entry in entries(folder, VIEWERS))

    def allows(self, key: str) -> bool:
        self._look()
        return key in self._keys

    def trouble(self) -> str:
        self._look()
        return self._trouble

    def _look(self) -> None:
        now = self._monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = frozenset(entry.key for entry in entries(self._folder, VIEWERS))
            self._trouble = ""
        except DistmonError as error:
            self._keys, self._trouble = frozenset(), str(error)

    def _signature(self) -> tuple[int, ...]:
        try:
            found = os.lstat(self._folder / VIEWERS)
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid


def _private_folder(folder: Path, *, make: bool) -> None:
    try:
        if make:
            # Each by itself: the mode is not for what mkdir makes on the way, and there another user could put a folder in place.
            for needed in (*reversed(folder.parents), folder):
                needed.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except FileNotFoundError:
        raise DistmonError(f"there is no folder of keys {folder}; make one: distmon keys init") from None
    except OSError as error:
        raise DistmonError(f"cannot use the folder of keys {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise DistmonError(f"the folder of keys {folder} is no folder of its own (a link?)")
    _check_owner(folder, found, "700")


def _read_private(path: Path) -> str | None:
    """None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DistmonError(f"cannot read {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
            raise DistmonError(f"{path} is no file of keys")
        _check_owner(path, found, "600")
        return file.read(_LARGEST_FILE).decode("ascii", "replace")


def _check_owner(path: Path, found: os.stat_result, mode: str) -> None:
    """The superuser can read everything anyhow, and installs the keys of services."""
    if found.st_uid not in (os.geteuid(), 0):
        raise DistmonError(f"{path} belongs to another user, who could read or change it; make it yours")
    if found.st_mode & 0o077:
        raise DistmonError(f"{path} is open to other users; run: chmod {mode} {shlex.quote(str(path))}")
