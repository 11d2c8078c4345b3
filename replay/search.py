"""Looks for a line of the ranks' output in a recording of any size: what is on the disk, not what a state still holds.

The index says where each second begins, so that the recording is read block by block, the nearest first, in little memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from distmon.core.events import OutputWritten
from distmon.core.state import OutputLine
from distmon.replay.index import Index
from distmon.replay.lines import START, Position, read_lines
from distmon.replay.session_file import SessionFile

BLOCK_BYTES = 4 << 20
_OUTPUT = b'{"kind":"output_written"'
_decoder = msgspec.json.Decoder(OutputWritten)


class Block(NamedTuple):
    """A stretch of a recording; `end` is None for its last one."""

    begin: Position
    end: Position | None
    since: float = -math.inf
    """All before it is of this time or earlier; without any it is the start."""


class Stretch(NamedTuple):
    """What was looked through last of a recording, and the lines in it that pass, in order."""

    since: float
    """From when on all was looked through; endless where it was from the start."""
    lines: list[OutputLine]


class OutputSearch:
    """One search for a line that `passes`. It may run in a thread of its own; another may cancel it.

    One of each of `words`, in small letters, is in every line that passes: where none of them is, nothing is decoded.
    """

    def __init__(
        self, session: SessionFile, index: Index, passes: Callable[[OutputLine], bool], words: Sequence[Sequence[str]] = ()
    ) -> None:
        self._session, self._index, self._passes = session, index, passes
        self._words = [[word.encode() for word in either] for either in words]
        self._cancelled = False
        self.share = 0.0
        """How much of what lies in the direction was read, 0 to 1."""

    def cancel(self) -> None:
        self._cancelled = True

    def earlier(self, at: float) -> OutputLine | None:
        """The last line before a time (seconds since the epoch) that passes."""
        blocks = list(self._before(at))
        for count, block in enumerate(reversed(blocks), 1):
            found = [line for line in self._lines(block) if line.at < at and self._passes(line)]
            if found or self._cancelled:
                return found[-1] if found and not self._cancelled else None
            self.share = count / len(blocks)
        return None

    def later(self, at: float) -> OutputLine | None:
        """The first line after a time that passes."""
        blocks = list(self._after(at))
        for count, block in enumerate(blocks, 1):
            found = next((line for line in self._lines(block) if line.at > at and self._passes(line)), None)
            if found is not None or self._cancelled:
                return found
            self.share = count / len(blocks)
        return None

    def back_from(self, at: float, known: int) -> Iterator[Stretch]:
        """All lines up to a time that pass, the latest stretch first, but for the last `known` of that very moment."""
        for block in reversed(list(self._before(at))):
            found = [line for line in self._lines(block) if line.at <= at and self._passes(line)]
            if self._cancelled:
                return
            there = sum(line.at == at for line in found)
            kept = len(found) - min(known, there)
            known -= len(found) - kept
            yield Stretch(block.since, found[:kept])

    def _before(self, at: float) -> Iterator[Block]:
        """Of about BLOCK_BYTES each, in order, up to the time and a second beyond it."""
        begin, since = START, -math.inf
        for second in self._index.seconds():
            if second.at > at:
                yield Block(begin, second.position, since)
                return
            if _far(second.position) - _far(begin) >= BLOCK_BYTES:
                yield Block(begin, second.position, since)
                begin, since = second.position, second.at
        yield Block(begin, None, since)

    def _after(self, at: float) -> Iterator[Block]:
        begin = self._index.second_before(at).position
        for second in self._index.seconds():
            if second.at > at and _far(second.position) - _far(begin) >= BLOCK_BYTES:
                yield Block(begin, second.position)
                begin = second.position
        yield Block(begin, None)

    def _lines(self, block: Block) -> Iterator[OutputLine]:
        for line in read_lines(self._session.path, block.begin):
            if self._cancelled or (block.end is not None and line.position.line >= block.end.line):
                return
            if line.data is not None and line.data.startswith(_OUTPUT) and self._may_pass(line.data):
                yield from _output(line.data)

    def _may_pass(self, data: bytes) -> bool:
        if not self._words:
            return True
        small = data.lower()
        return all(any(word in small for word in either) for either in self._words)


def _far(position: Position) -> int:
    """Bytes from the start; in a compressed recording, of what is before its frame and of what is unfolded within it."""
    return position.frame + position.skip


def _output(data: bytes) -> Iterator[OutputLine]:
    try:
        event = _decoder.decode(data)
    except msgspec.DecodeError:
        return  # damaged, or half written: told of elsewhere
    for text in event.lines:
        yield OutputLine(event.at, event.rank, event.host, event.output, text)
