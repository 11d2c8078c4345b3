"""Splitting a rank's raw output into pieces of text, whatever bytes it holds and whether or not its lines end.

Standard library only, and sent as source to other hosts: imports nothing of distmon.
"""

import codecs
import re
from typing import List, Tuple

Piece = Tuple[str, str]
"""Text and what ended it: a line feed, a carriage return (a progress bar), or "" for a part of a line."""

PART_LIMIT = 8192
_LINE_END = re.compile(r"(\r\n|\r(?!\Z)|\n)")


class LineSplitter:
    """Turns chunks of bytes into pieces. Holds at most one unfinished line of PART_LIMIT characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def unfinished(self) -> bool:
        """Whether text waits for its line to end."""
        return bool(self._rest)

    def feed(self, data: bytes, final: bool = False) -> List[Piece]:
        """Pieces that `data` completes; bytes that are not UTF-8 become U+FFFD."""
        text = self._rest + self._decoder.decode(data, final)
        *ended, self._rest = _LINE_END.split(text)
        pieces: List[Piece] = []
        for line, end in zip(ended[::2], ended[1::2]):
            pieces.extend(_parts(line))
            pieces[-1] = (pieces[-1][0], "\r" if end == "\r" else "\n")
        if len(self._rest) > PART_LIMIT:
            parts = _parts(self._rest)
            self._rest = parts.pop()[0]
            pieces.extend(parts)
        return pieces + self.flush() if final else pieces

    def flush(self) -> List[Piece]:
        """The unfinished line as it stands."""
        text, self._rest = self._rest, ""
        if text.endswith("\r"):
            return [(text[:-1], "\r")]
        return [(text, "")] if text else []


def _parts(text: str) -> List[Piece]:
    """At least one piece, none longer than PART_LIMIT."""
    return [(text[start : start + PART_LIMIT], "") for start in range(0, max(1, len(text)), PART_LIMIT)]
