"""What the verbs that read recordings share: which file is meant, its summary, and warnings on standard error."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from distmon.core.errors import DistmonError
from distmon.core.printable import OBEYED, clean
from distmon.replay.paths import SUFFIXES, demo_session, find_session
from distmon.replay.session_file import Notes

SESSION_HELP = "a recording: its path, a part of its name in the recordings' folder, or `last`"


def resolve(argument: str | None, *, demo: bool) -> Path:
    """The file that an argument means."""
    return demo_session() if demo or argument is None else find_session(argument)


def resolve_all(arguments: list[str]) -> list[Path]:
    """The files that arguments mean, of which a folder means all its recordings. Raises DistmonError."""
    paths: list[Path] = []
    for argument in arguments:
        path = resolve(argument, demo=False)
        if not path.is_dir():
            paths.append(path)
            continue
        found = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
        if not found:
            raise DistmonError(f"{path} holds no recording (*.jsonl or *.jsonl.zst)")
        paths += found
    return paths


def label(path: Path) -> str:
    """A recording's name without its ending."""
    return next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.name)


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


def write_text(text: str) -> None:
    """What the locale cannot show becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
