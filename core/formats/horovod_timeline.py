"""Horovod's timeline (HOROVOD_TIMELINE): what rank 0's coordinator saw of every tensor's collective.

As horovod/common/timeline.cc writes it, an event a line or many on one: `pid` is a tensor, not a process; an E event ends the
last piece of its tensor that is open and has no name; the X events of no length inside NEGOTIATE are named by rank, as each gets
ready: the last one is the one that was waited for. Pieces nest and tensors overlap, so times of the file are unions on the clock
and never sums. Tensors that are copied into the fusion buffer right behind one another are reduced together. The array is often
not closed, and a killed job cuts it anywhere: what is open then ends at the last time seen, and is counted.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distmon.core.errors import DistmonError

_COLLECTIVES = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM")
_QUEUE = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA", "QUEUE")
_NEGOTIATE, _COPY_IN, _COPY_OUT = "NEGOTIATE_", "MEMCPY_IN_", "MEMCPY_OUT_"
_COPIED_IN, _COPIED_OUT = (_COPY_IN, "MEMCPY_IN"), (_COPY_OUT, "MEMCPY_OUT")
_LIBRARIES = ("NCCL_", "MPI_", "GLOO_", "CCL_")
_INTO_BUFFER = "MEMCPY_IN_FUSION_BUFFER"
_BITS = {"bool": 8}
"""Of types whose name does not end in them."""
_NEXT = re.compile(r'\n\s*\{|\{"ph"|\{"name": "process')
"""Where an event may begin again behind one that cannot be read."""

Interval = tuple[float, float]


@dataclass(slots=True)
class TensorTimes:
    """One tensor over the whole file, in microseconds. Its own operations follow one another, so its times are sums."""

    name: str
    operations: int = 0
    fused: int = 0
    """Operations that went through the fusion buffer, together with other tensors."""
    size_bytes: int | None = None
    """Of its last operation, where the file tells."""
    negotiate_us: float = 0.0
    queue_us: float = 0.0
    memcpy_us: float = 0.0
    reduce_us: float = 0.0
    collective_us: float = 0.0
    """The whole operation behind negotiation: queue, copies and reduction lie in it."""
    wait_for_last_us: float = 0.0
    """From the moment that all ranks but one were ready to the last one's, summed over operations."""
    last_ready: Counter[int] = field(default_factory=Counter)
    """Rank -> how often it was the last one."""
    incomplete: bool = False

    def add(self, name: str, us: float) -> None:
        """A piece that has ended."""
        if name.startswith(_NEGOTIATE):
            self.negotiate_us += us
        elif name in _COLLECTIVES:
            self.collective_us += us
        elif name in _QUEUE:
            self.queue_us += us
        elif name.startswith(("MEMCPY_IN", "MEMCPY_OUT")):
            self.memcpy_us += us
        elif name.startswith(_LIBRARIES):
            self.reduce_us += us


@dataclass(slots=True, frozen=True)
class FusionUse:
    """Reductions of several tensors at once, each through one filling of the fusion buffer."""

    fillings: int
    tensors: int
    """In all fillings together."""
    total_bytes: int | None
    """None where the size of a tensor in them is not told."""
    largest_bytes: int | None


@dataclass(slots=True)
class HorovodTimeline:
    """The whole file. Times in microseconds are unions over tensors: what the clock showed, not what pieces add up to."""

    tensors: list[TensorTimes]
    ranks: int
    started: float | None
    """When its times begin, in seconds since the epoch; None in files of before Horovod 0.21."""
    first_us: float
    last_us: float
    negotiate_us: float
    queue_us: float
    memcpy_in_us: float
    memcpy_out_us: float
    memcpy_us: float
    reduce_us: float
    """Inside the collective's library: NCCL, MPI, Gloo."""
    collective_us: dict[str, float]
    """Kind, as ALLREDUCE -> time in which one was under way."""
    communication_us: float
    """Negotiation and collectives together."""
    fusion: FusionUse
    closed: bool
    """Whether the array ends as JSON wants it."""
    damaged_events: int

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
    fillings: Counter[tuple[int, ...]] = field(default_factory=Counter)
    filling: list[int] = field(default_factory=list)
    """The tensors that are being put into the fusion buffer."""
    started: float | None = None
    first: float | None = None
    last: float = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError for an event of another shape."""
        kind = event["ph"]
        if kind == "i":  # a cycle's start, of no tensor
            return
        tensor = int(event["pid"])
        if kind == "M":
            self._describe(tensor, event)
            return
        at = float(event["ts"])
        if not math.isfinite(at):
            raise ValueError("no time")
        self.first = at if self.first is None else min(self.first, at)
        self.last = max(self.last, at)
        if kind == "B":
            self._begin(tensor, str(event["name"]), at)
        elif kind == "E" and self.open.get(tensor):
            self._filled()
            self._end(tensor, at, event.get("args"))
        elif kind == "X" and str(event["name"]).isdigit():
            self.ranks.add(int(event["name"]))
            self.ready.setdefault(tensor, []).append((at, int(event["name"])))

    def _describe(self, tensor: int, event: dict[str, Any]) -> None:
        if event["name"] != "process_name":
            return
        if "name" in event["args"]:
            self.names[tensor] = str(event["args"]["name"])
        elif "start_time_since_epoch_in_micros" in event["args"]:
            self.started = float(event["args"]["start_time_since_epoch_in_micros"]) / 1e6

    def _begin(self, tensor: int, name: str, at: float) -> None:
        times = self.tensors.setdefault(tensor, TensorTimes(self.names.get(tensor, f"tensor {tensor}")))
        if name.startswith(_NEGOTIATE):
            self.ready[tensor] = []
        elif name in _COLLECTIVES:
            times.operations += 1
        if name == _INTO_BUFFER:
            times.fused += 1
            if tensor in self.filling:
                self._filled()
            self.filling.append(tensor)
        else:
            self._filled()
        self.open.setdefault(tensor, []).append((name, at))

    def _filled(self) -> None:
        if self.filling:
            self.fillings[tuple(self.filling)] += 1
            self.filling.clear()

    def _end(self, tensor: int, at: float, arguments: object = None) -> None:
        name, begun = self.open[tensor].pop()
        if at < begun:
            raise ValueError("it ends before it begins")
        self.pieces.setdefault(name, []).append((begun, at))
        times = self.tensors[tensor]
        times.add(name, at - begun)
        if name in _COLLECTIVES:
            times.size_bytes = _size(arguments) or times.size_bytes
        ready = sorted(self.ready.get(tensor, ()))
        if name.startswith(_NEGOTIATE) and len(ready) > 1:
            times.wait_for_last_us += ready[-1][0] - ready[-2][0]
            times.last_ready[ready[-1][1]] += 1

    def close(self) -> None:
        """Ends what is still open at the last time seen."""
        self._filled()
        for tensor, pieces in self.open.items():
            self.tensors[tensor].incomplete = bool(pieces)
            while pieces:
                self._end(tensor, self.last)

    def fusion(self) -> FusionUse:
        """Of all fillings."""
        sizes = [self._size_of(tensors) for tensors in self.fillings]
        known = [size for size in sizes if size is not None]
        whole = len(known) == len(sizes) > 0
        times = self.fillings.values()
        return FusionUse(
            fillings=self.fillings.total(),
            tensors=sum(len(tensors) * count for tensors, count in self.fillings.items()),
            total_bytes=sum(size * count for size, count in zip(known, times, strict=True)) if whole else None,
            largest_bytes=max(known) if whole else None,
        )

    def _size_of(self, tensors: Iterable[int]) -> int | None:
        sizes = [self.tensors[tensor].size_bytes for tensor in tensors]
        return None if None in sizes else sum(size or 0 for size in sizes)

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


def _size(arguments: object) -> int | None:
    """Bytes of a tensor of `{"dtype": "float32", "shape": "[10, 128]"}`."""
    if not isinstance(arguments, dict):
        return None
    kind, shape = str(arguments.get("dtype", "")), str(arguments.get("shape", ""))
    bits = _BITS.get(kind) or (int(digits[0]) if (digits := re.findall(r"[0-9]{1,3}$", kind)) else None)
    if bits is None or not re.fullmatch(r"\[[0-9, ]*\]", shape):
        return None
    return math.prod(int(length) for length in re.findall(r"[0-9]{1,15}", shape)) * bits // 8


def _events(text: str) -> Iterator[object]:
    """Each event of the file; None for a stretch that cannot be read."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            event, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            following = _NEXT.search(text, at + 1)
            at = text.find("{", following.start()) if following else -1
        else:
            yield event
            at = text.find("{", end)


def parse_horovod_timeline(text: str) -> HorovodTimeline:
    """Raises DistmonError when the text is empty or holds no event of a timeline."""
    if not text.strip():
        raise DistmonError("the file is empty: Horovod writes its timeline on rank 0 alone, and needs the path of a file")
    reader, damaged = _Reader(), 0
    for event in _events(text):
        try:
            if not isinstance(event, dict):
                raise TypeError
            reader.take(event)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
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
        started=reader.started,
        first_us=reader.first,
        last_us=reader.last,
        negotiate_us=reader.union(_NEGOTIATE),
        queue_us=reader.union(*_QUEUE),
        memcpy_in_us=reader.union(*_COPIED_IN),
        memcpy_out_us=reader.union(*_COPIED_OUT),
        memcpy_us=reader.union(*_COPIED_IN, *_COPIED_OUT),
        reduce_us=reader.union(*_LIBRARIES),
        collective_us=collectives,
        communication_us=reader.union(_NEGOTIATE, *_COLLECTIVES),
        fusion=reader.fusion(),
        closed=text.rstrip().endswith("]"),
        damaged_events=damaged,
    )
