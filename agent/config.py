"""What an agent is told: its command line, and a TOML file for the same settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from distmon.core.errors import DistmonError, UsageError

SLOWEST_HZ, FASTEST_HZ = 0.1, 10.0


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `distmon-agent` can be told. A config file holds what is not marked as a flag's alone."""

    listen: list[str] = []
    """Addresses as ZeroMQ writes them; empty: this user's own socket."""
    rings: list[str] = []
    """Folders where ranks leave their ring files."""
    rate_hz: float = 1.0
    """Samples per second."""
    steps_hz: float = 1.0
    """Most StepsRecorded events per second and worker."""
    journal: str = ""
    """Folder of the journal; empty: none, and only the last minutes are kept, in memory."""
    journal_mb: float = 256.0
    journal_hours: float = 48.0
    """Beyond either the oldest goes."""
    keys: str = ""
    """Folder of the keys that TCP needs; empty: this user's own."""
    group: str = ""
    """Users of this group may connect to unix sockets as well."""
    keys_from_stdin: bool = False
    """A flag's alone, as all below: keys for one job, a line on standard input."""
    once: bool = False
    json: bool = False
    stop_with_parent: bool = False
    ready_fd: int | None = None
    debug: bool = False


class _FileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen: list[str] = []
    rings: list[str] = []
    rate_hz: float | None = None
    steps_hz: float | None = None
    journal: str | None = None
    journal_mb: float | None = None
    journal_hours: float | None = None
    keys: str | None = None
    group: str | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see distmon-agent --help")


def parse_arguments(arguments: Sequence[str] | None) -> AgentConfig:
    """Flags over the file's settings. Raises UsageError or DistmonError, one line each."""
    flags = vars(_parser().parse_args(arguments))
    path = flags.pop("config")
    settings = _read_file(Path(path)) if path else {}
    settings.update({name: value for name, value in flags.items() if value is not None})
    config = AgentConfig(**settings)
    for name, value in (("rate", config.rate_hz), ("steps rate", config.steps_hz)):
        if not SLOWEST_HZ <= value <= FASTEST_HZ:
            raise UsageError(f"a {name} of {value:g} Hz is out of bounds; choose {SLOWEST_HZ:g} to {FASTEST_HZ:g}")
    if not (0.1 <= config.journal_mb <= 1e6 and 0 < config.journal_hours <= 1e5):
        raise UsageError("a journal holds 0.1 to 1000000 MB and up to 100000 hours; correct journal_mb or journal_hours")
    if config.json and not config.once:
        raise UsageError("--json goes with --once; a running agent is read by connecting a viewer to it")
    return config


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="distmon-agent",
        description="Samples this node, takes over what its ranks time, and lets viewers follow.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="settings in TOML; packaging/agent.toml shows them all")
    parser.add_argument(
        "--listen", metavar="ADDRESS", action="append", help="ipc:///PATH, or with keys tcp://HOST:PORT; may be given again"
    )
    parser.add_argument(
        "--rings", metavar="DIR", action="append", help="existing folder of the ranks' ring files; may be given again"
    )
    parser.add_argument("--rate", metavar="HZ", type=float, dest="rate_hz", help="samples per second (1)")
    parser.add_argument("--steps-rate", metavar="HZ", type=float, dest="steps_hz", help="step batches per second and rank (1)")
    parser.add_argument("--journal", metavar="DIR", help="folder for what viewers have not had yet (none: in memory alone)")
    parser.add_argument("--journal-mb", metavar="N", type=float, help="most megabytes in the journal (256)")
    parser.add_argument("--journal-hours", metavar="N", type=float, help="oldest in the journal (48)")
    parser.add_argument("--keys", metavar="DIR", help="folder of keys for TCP (distmon keys; this user's own)")
    parser.add_argument("--keys-from-stdin", action="store_true", help="one job's keys come as a line on standard input")
    parser.add_argument("--group", metavar="NAME", help="users of this group may connect to unix sockets too")
    parser.add_argument("--once", action="store_true", help="print one sample and end")
    parser.add_argument("--json", action="store_true", help="with --once: as JSON, units in the key names")
    parser.add_argument("--stop-with-parent", action="store_true", help="end when the process that started this one is gone")
    parser.add_argument(
        "--ready-fd", metavar="N", type=int, help="write the addresses, one a line, to this descriptor when ready"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib  # only where there is a file: it costs start-up time

    try:
        settings = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _FileSettings)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DistmonError(f"cannot read the config file {path}: {reason}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"the config file {path} is wrong: {error}") from None
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None}
