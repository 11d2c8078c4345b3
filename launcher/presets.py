"""Presets in distmon.toml, written without a change to anything else in the file: comments, order and layout stay."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.settings import FILE_NAME, load_settings

_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)
_TABLE = "presets"


def save_preset(folder: Path, name: str, words: Sequence[str]) -> None:
    """Keep the words of `distmon run` under a name, in place of those that it had. Raises DistmonError or UsageError."""
    if not _NAME.fullmatch(name):
        allowed = "letters from a to z, digits, dots, dashes and underscores, at most 40 of them"
        raise UsageError(f"a preset's name has {allowed}; it cannot be {name!r}")

    def save(document: tomlkit.TOMLDocument) -> None:
        if _TABLE not in document:
            document[_TABLE] = tomlkit.table()
        document[_TABLE][name] = _array(words)

    _change(folder, save)


def delete_preset(folder: Path, name: str) -> None:
    """Raises DistmonError, or UsageError where there is none of that name."""

    def delete(document: tomlkit.TOMLDocument) -> None:
        if name not in document.get(_TABLE, {}):
            raise UsageError(f"{FILE_NAME} has no preset {name!r}")
        del document[_TABLE][name]

    _change(folder, delete)


def _array(words: Sequence[str]) -> Array:
    array = tomlkit.array()
    array.extend(words)
    return array


def _change(folder: Path, change: Callable[[tomlkit.TOMLDocument], None]) -> None:
    """In one step: whoever reads the file meanwhile sees the old one or the new one. A wrong file is left as it is."""
    load_settings(folder)
    path = folder / FILE_NAME
    path = path.resolve() if path.is_symlink() else path
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
        change(document)
        temporary.write_text(tomlkit.dumps(document), encoding="utf-8")
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise DistmonError(f"{FILE_NAME} cannot be written: {error.strerror}") from None
    except TOMLKitError as error:
        raise UsageError(f"{FILE_NAME} is wrong: {error}") from None
