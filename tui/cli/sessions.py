"""What the verbs that read recordings share: which file is meant, its summary, and warnings on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from distmon.core.errors import DistmonError
from distmon.core.printable import OBEYED, clean
from distmon.replay.paths import SUFFIXES, demo_session, find_session
from distmon.replay.report.render import WIDTH, to_text
from distmon.replay.report.tables import Section
from distmon.replay.session_file import Notes

T = TypeVar("T")
SESSION_HELP = "a recording: its path, a part of its name in the recordings' folder, or `last`"


def resolve(argument: str | None, *, demo: bool) -> Path:
    """The file that an argument means."""
    return demo_session() if demo or argument is None else find_session(argument)


def resolve_all(arguments: list[str]) -> list[Path]:
    """The files that arguments mean, of which a folder means all its recordings. Raises DistmonError."""
    return [path for argument in arguments for path in _files(resolve(argument, demo=False))]


def load_all(arguments: list[str], load: Callable[[Path], T]) -> list[T]:
    """What `load` makes of the files that arguments mean, of which a folder means all its recordings. Raises DistmonError.

    Of a folder, a file that cannot be read is left out, and standard error says so.
    """
    loaded: list[T] = []
    for argument in arguments:
        path = resolve(argument, demo=False)
        if not path.is_dir():
            loaded.append(load(path))
            continue
        found = []
        for file in _files(path):
            try:
                found.append(load(file))
            except DistmonError as error:
                sys.stderr.write(f"distmon: warning: left out: {clean(str(error))}\n")
        if not found:
            raise DistmonError(f"{path} holds no recording that can be read")
        loaded += found
    return loaded


def _files(path: Path) -> list[Path]:
    """A file itself; of a folder the recordings in it, np2 before np16. Raises DistmonError where there is none."""
    if not path.is_dir():
        return [path]
    found = sorted((file for file in path.iterdir() if file.name.endswith(SUFFIXES)), key=_in_order)
    if not found:
        raise DistmonError(f"{path} holds no recording (*.jsonl or *.jsonl.zst)")
    return found


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers in a name count as such."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def warn(path: Path, notes: Notes) -> list[str]:
    """Says on standard error, and returns, what of a recording could not be read."""
    sentences = [clean(sentence) for sentence in notes.sentences()]
    for sentence in sentences:
        sys.stderr.write(f"distmon: warning: {clean(str(path))}: {sentence}\n")
    return sentences


def write_json(value: msgspec.Struct) -> None:
    """JSON is UTF-8 whatever the locale. What a terminal would obey, in the name of a file, is written as JSON's escapes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    sys.stdout.flush()
    sys.stdout.buffer.write(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n")
    sys.stdout.buffer.flush()


def as_text(sections: list[Section]) -> str:
    """For standard output: where that is a terminal, no wider than it is."""
    columns = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    return to_text(sections, min(columns or WIDTH, WIDTH), columns or None)


def write_text(text: str) -> None:
    """What the locale cannot show becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
