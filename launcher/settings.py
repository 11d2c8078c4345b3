"""`distmon.toml` in the folder where distmon is called: hosts, and flags that need not be typed each time (docs/hosts.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.flags import OWN_FLAGS, RunArguments, own_flags, split_arguments

FILE_NAME = "distmon.toml"
CallsFor = Literal["errors", "warnings", "verdicts"]
_SOURCES = ("-H", "--hosts", "--hostfile", "-hostfile", "--host-discovery-script")


class AlertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What calls for the user, and how besides a note on the screen."""

    on: tuple[CallsFor, ...] = ("errors", "verdicts")
    bell: bool = False
    desktop: bool = False
    """A notification of the terminal's desktop, where the terminal passes it on (OSC 9)."""
    command: str = ""
    """Is run without a shell, with the words of the alert in the variable DISTMON_ALERT."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file may hold."""

    hosts: list[str] = []
    """As in -H, an entry each; used where the command line names no hosts."""
    hostfile: str = ""
    """A hosts file, in place of `hosts`."""
    agent: str = ""
    """Path of distmon-agent on the other hosts, where it is not found by itself."""
    flags: list[str] = []
    """Flags of every `distmon run` here."""
    presets: dict[str, list[str]] = {}
    """Flags by a name that --preset gives; a command may follow them after --."""
    alerts: AlertSettings = AlertSettings()


def load_settings(folder: Path) -> Settings:
    """The folder's settings; none where there is no file. Raises DistmonError or UsageError, one line."""
    path = folder / FILE_NAME
    try:
        settings = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Settings)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise DistmonError(f"cannot read {FILE_NAME}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is wrong: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is wrong: {_said(str(error))}") from None
    if settings.hosts and settings.hostfile:
        raise UsageError(f"{FILE_NAME} has both hosts and hostfile; keep one of them")
    return settings


def _said(error: str) -> str:
    """What msgspec says is wrong with a value: where it stands in the file, and what may stand there."""
    what, _, where = error.partition(" - at `$")
    place = where.rstrip("`").removeprefix(".")
    said = f"{place}: {what}" if place else what
    if what.startswith("Invalid enum value"):
        return f"{said}; it may be {', '.join(get_args(CallsFor))}"
    if "unknown field" in what:
        fields = AlertSettings.__struct_fields__ if place else Settings.__struct_fields__
        return f"{said}; there may be {', '.join(fields)}"
    return said


def completed(words: Sequence[str], settings: Settings) -> RunArguments:
    """The words after `distmon run` with what the file adds: its flags and those of the preset before the user's, so that the
    user's count; the preset's command where there is none, and the hosts where none are named. Raises UsageError."""
    preset = preset_of(settings, _preset_named(split_arguments(words, OWN_FLAGS).own))
    at = preset.index("--") if "--" in preset else len(preset)
    split = split_arguments([*settings.flags, *preset[:at], *words], OWN_FLAGS)
    hosts = hosts_flags([flag.name for flag in split.horovod], settings)
    horovod = [*split.horovod, *split_arguments(hosts, {}).horovod]
    return RunArguments(split.own, horovod, split.command or preset[at + 1 :])


def preset_words(words: Sequence[str], settings: Settings) -> list[str]:
    """The words after `distmon run` as a preset is to hold them: a preset that they name is written out, and what the file
    gives to every run is left to the file. Raises UsageError."""
    split = completed(words, Settings(presets=settings.presets))
    flags = [flag for flag in own_flags(split.own) if flag.name != "--preset"] + split.horovod
    return [*(word for flag in flags for word in flag.words), *(["--", *split.command] if split.command else [])]


def preset_of(settings: Settings, name: str) -> list[str]:
    """The words of a preset; none without a name. Raises UsageError."""
    if name and name not in settings.presets:
        known = ", ".join(sorted(settings.presets)) or "none"
        raise UsageError(f"{FILE_NAME} has no preset {name!r}; it has {known}")
    return settings.presets.get(name, [])


def _preset_named(own: Sequence[str]) -> str:
    """The value of --preset; empty without it."""
    return next((flag.values[0] for flag in reversed(own_flags(own)) if flag.name == "--preset"), "")


def hosts_flags(given: Sequence[str], settings: Settings) -> list[str]:
    """The file's hosts as flags, where none of the `given` flags names hosts."""
    if any(flag in _SOURCES for flag in given):
        return []
    if settings.hostfile:
        return ["--hostfile", settings.hostfile]
    return ["-H", ",".join(settings.hosts)] if settings.hosts else []
