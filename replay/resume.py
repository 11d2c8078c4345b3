"""Where a recording ends, for a recorder that goes on with it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from distmon.replay.lines import read_lines
from distmon.replay.session_file import open_session


class _Numbered(msgspec.Struct):
    stream: str = ""
    seq: int = 0


_decoder = msgspec.json.Decoder(_Numbered)


def last_position(path: Path) -> dict[str, int]:
    """Stream -> the number after its last event in the file. Raises DistmonError for what is no session of this version."""
    open_session(path)
    position: dict[str, int] = {}
    for line in read_lines(path):
        if line.data is None or not line.ended:
            continue
        try:
            event = _decoder.decode(line.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # it holds no event, and a reader says so
        if event.stream:
            position[event.stream] = max(position.get(event.stream, 0), event.seq + 1)
    return position
