"""Horovod's timeline (HOROVOD_TIMELINE): what rank 0's coordinator saw of every tensor's collective.

As horovod/common/timeline.cc writes it, an event a line: `pid` is a tensor, not a process; an E event ends the last piece of its
tensor that is open and has no name; the X events of no length inside NEGOTIATE are named by rank, as each gets ready: the last
one is the one that was waited for. Pieces nest and tensors overlap, so times are unions on the clock and never sums. The array
is often not closed, and a killed job cuts it anywhere: what is open then ends at the last time seen, and is counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distmon.core.errors import DistmonError

_QUEUE = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA", "QUEUE")
_MEMCPY = ("MEMCPY_IN", "MEMCPY_OUT", "MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER")
_COLLECTIVES = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM")

Interval = tuple[float, float]


@dataclass(slots=True)
class TensorTimes:
    """One tensor over the whole file, in microseconds."""

    name: str
    operations: int = 0
    fused: int = 0
    """Operations that went through the fusion buffer, together with other tensors."""
    wait_for_last_us: float = 0.0
    """From the moment that all ranks but one were ready to the last one's, summed over operations."""
    last_ready: Counter[int] = field(default_factory=Counter)
    """Rank -> how often it was the last one."""
    incomplete: bool = False


@dataclass(slots=True)
class HorovodTimeline:
    """The whole file. Times in microseconds are unions over tensors: what the clock showed, not what pieces add up to."""

    tensors: list[TensorTimes]
    ranks: int
    first_us: float
    last_us: float
    negotiate_us: float
    queue_us: float
    memcpy_us: float
    reduce_us: float
    """Inside the collective's library: NCCL, MPI, Gloo."""
    collective_us: dict[str, float]
    """Kind, as ALLREDUCE -> time in which one was under way."""
    communication_us: float
    """Negotiation and collectives together."""
    closed: bool
    """Whether the array ends as JSON wants it."""
    damaged_lines: int

    @property
    def incomplete(self) -> int:
        """Tensors with a piece that was still open at the end."""
        return sum(tensor.incomplete for tensor in self.tensors)


@dataclass(slots=True)
class _Reader:
    names: dict[int, str] = field(default_factory=dict)
    tensors: dict[int, TensorTimes] = field(default_factory=dict)
    open: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    ready: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    pieces: dict[str, list[Interval]] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    first: float | None = None
    last: float = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError for an event of another shape."""
        kind, tensor = event["ph"], int(event["pid"])
        if kind == "M":
            if event["name"] == "process_name" and "name" in event["args"]:
                self.names[tensor] = str(event["args"]["name"])
            return
        at = float(event["ts"])
        self.first = at if self.first is None else self.first
        self.last = max(self.last, at)
        if kind == "B":
            self._begin(tensor, str(event["name"]), at)
        elif kind == "E" and self.open.get(tensor):
            self._end(tensor, at)
        elif kind == "X" and str(event["name"]).isdigit():
            self.ranks.add(int(event["name"]))
            self.ready.setdefault(tensor, []).append((at, int(event["name"])))

    def _begin(self, tensor: int, name: str, at: float) -> None:
        times = self.tensors.setdefault(tensor, TensorTimes(self.names.get(tensor, f"tensor {tensor}")))
        if name.startswith("NEGOTIATE_"):
            self.ready[tensor] = []
        elif name in _COLLECTIVES:
            times.operations += 1
        elif name == "MEMCPY_IN_FUSION_BUFFER":
            times.fused += 1
        self.open.setdefault(tensor, []).append((name, at))

    def _end(self, tensor: int, at: float) -> None:
        name, begun = self.open[tensor].pop()
        self.pieces.setdefault(name, []).append((begun, at))
        ready = sorted(self.ready.get(tensor, ()))
        if name.startswith("NEGOTIATE_") and len(ready) > 1:
            times = self.tensors[tensor]
            times.wait_for_last_us += ready[-1][0] - ready[-2][0]
            times.last_ready[ready[-1][1]] += 1

    def close(self) -> None:
        """Ends what is still open at the last time seen."""
        for tensor, pieces in self.open.items():
            self.tensors[tensor].incomplete = bool(pieces)
            while pieces:
                self._end(tensor, self.last)

    def union(self, *chosen: str) -> float:
        """Microseconds in which a piece of one of the names, or that begins with one that ends in _, was under way."""
        found = [piece for name, pieces in self.pieces.items() if any(_is(name, wanted) for wanted in chosen) for piece in pieces]
        return _union(found)


def _is(name: str, wanted: str) -> bool:
    return name.startswith(wanted) if wanted.endswith("_") else name == wanted


def _union(pieces: Iterable[Interval]) -> float:
    total, until = 0.0, float("-inf")
    for begun, ended in sorted(pieces):
        total += max(ended - max(begun, until), 0.0)
        until = max(until, ended)
    return total


def parse_horovod_timeline(text: str) -> HorovodTimeline:
    """Raises DistmonError when the text is empty or holds no event of a timeline."""
    if not text.strip():
        raise DistmonError("the file is empty: Horovod writes its timeline on rank 0 alone, and needs the path of a file")
    reader, damaged = _Reader(), 0
    for line in text.splitlines():
        event = line.strip().removeprefix("[").removesuffix("]").strip().rstrip(",")
        if not event:
            continue
        try:
            reader.take(json.loads(event))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged += 1
    if reader.first is None:
        raise DistmonError(
            "no events of a Horovod timeline in it: the job ended before its first collective, or it is another file"
        )
    reader.close()
    collectives = {name: us for name in _COLLECTIVES if (us := reader.union(name)) > 0}
    return HorovodTimeline(
        tensors=[reader.tensors[tensor] for tensor in sorted(reader.tensors)],
        ranks=len(reader.ranks),
        first_us=reader.first,
        last_us=reader.last,
        negotiate_us=reader.union("NEGOTIATE_"),
        queue_us=reader.union(*_QUEUE),
        memcpy_us=reader.union(*_MEMCPY, "MEMCPY_IN_", "MEMCPY_OUT_"),
        reduce_us=reader.union("NCCL_", "MPI_", "GLOO_", "CCL_"),
        collective_us=collectives,
        communication_us=reader.union("NEGOTIATE_", *_COLLECTIVES),
        closed=text.rstrip().endswith("]"),
        damaged_lines=damaged,
    )
