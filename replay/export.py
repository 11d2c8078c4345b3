"""A recording as other tools read it: steps as CSV, the whole as a Chrome trace (chrome://tracing, Perfetto)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from typing import TextIO

from distmon.core import events as ev
from distmon.core.batches import PHASES, single_events
from distmon.core.fold import node_power_w

CSV_COLUMNS = (
    "generation",
    "rank",
    "step",
    "epoch",
    "started_s",
    "duration_s",
    *(f"{phase}_s" for phase in PHASES),
    "samples",
    "micro_batches",
)


def write_csv(events: Iterable[ev.AnyEvent], start: float, out: TextIO) -> int:
    """A row for each step of each rank; what was not measured is an empty cell. Times count from `start`. Returns the rows."""
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(CSV_COLUMNS)
    count = 0
    for event in events:
        for batch in single_events(event):
            for row in _csv_rows(batch, start):
                rows.writerow(row)
                count += 1
    return count


def _csv_rows(batch: ev.StepsRecorded, start: float) -> Iterator[list[object]]:
    columns = [getattr(batch, phase + "_ns") for phase in PHASES]
    for i, duration in enumerate(batch.duration_ns):
        begun = batch.origin - start + batch.start_ns[i] / 1e9
        phases = [None if column is None else _seconds(column[i]) for column in columns]
        samples = batch.samples[i] if batch.samples else None
        yield [
            batch.generation,
            batch.rank,
            batch.first_step + i,
            batch.epoch,
            f"{begun:.9f}",
            _seconds(duration),
            *phases,
            samples,
            batch.micro_batches[i] if batch.micro_batches else 1,
        ]


def _seconds(ns: int | None) -> str | None:
    return None if ns is None else f"{ns / 1e9:.9f}"


def write_chrome(events: Iterable[ev.AnyEvent], start: float, out: TextIO) -> int:
    """A trace with a process for each node and a thread for each rank. Returns the number of trace events.

    Of a phase only the length is measured: within a step they are drawn in their usual order.
    """
    trace = _Trace(start)
    out.write('{"displayTimeUnit":"ms","traceEvents":[')
    count = 0
    for event in events:
        for line in trace.lines(event):
            out.write((",\n" if count else "\n") + json.dumps(line, allow_nan=False))
            count += 1
    out.write("\n]}\n")
    return count


class _Trace:
    def __init__(self, start: float) -> None:
        self._start = start
        self._nodes: dict[str, int] = {}
        self._threads: set[tuple[int, int]] = set()

    def lines(self, event: ev.AnyEvent) -> Iterator[dict[str, object]]:
        match event:
            case ev.StepsRecorded() | ev.NodeStepsRecorded():
                for batch in single_events(event):
                    yield from self._place(batch.node, batch.rank)
                    yield from self._steps(batch)
            case ev.SpanRecorded():
                yield from self._place(event.node, event.rank)
                yield self._slice(event, event.name or event.span, event.span, event.started, 0, round(event.duration_s * 1e9))
            case ev.NodeJoined():
                yield from self._place(event.node, None)
                yield self._name("process_name", self._nodes[event.node], event.host)
            case ev.NodeSampled():
                yield from self._place(event.node, None)
                yield from self._counters(event)
            case ev.NoticeGiven() | ev.MarkSet():
                yield self._instant(event.at, event.text)
            case ev.MembershipChanged():
                yield self._instant(event.at, f"{event.change} {event.host}".rstrip())

    def _place(self, node: str, rank: int | None) -> Iterator[dict[str, object]]:
        """Names a node's process and a rank's thread the first time that they are seen."""
        if node not in self._nodes:
            self._nodes[node] = len(self._nodes) + 1
            yield self._name("process_name", self._nodes[node], node)
        if rank is not None and (self._nodes[node], rank) not in self._threads:
            self._threads.add((self._nodes[node], rank))
            yield self._name("thread_name", self._nodes[node], f"rank {rank}", rank)

    def _steps(self, batch: ev.StepsRecorded) -> Iterator[dict[str, object]]:
        columns = [(phase, getattr(batch, phase + "_ns")) for phase in PHASES]
        for i, duration in enumerate(batch.duration_ns):
            begun_ns = batch.start_ns[i]
            yield self._slice(batch, f"step {batch.first_step + i}", "step", batch.origin, begun_ns, duration)
            for phase, column in columns:
                if column is not None and column[i]:
                    yield self._slice(batch, phase, "phase", batch.origin, begun_ns, column[i])
                    begun_ns += column[i]

    def _counters(self, sample: ev.NodeSampled) -> Iterator[dict[str, object]]:
        values = {"cpu_percent": sample.cpu_percent, "power_w": node_power_w(sample)}
        values |= {f"gpu{gpu.index}_percent": gpu.utilization_percent for gpu in sample.gpus if gpu.instance is None}
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                yield {"ph": "C", "name": name, "pid": self._nodes[sample.node], "ts": self._us(sample.at), "args": {name: value}}

    def _slice(
        self, of: ev.StepsRecorded | ev.SpanRecorded, name: str, kind: str, origin: float, begun_ns: int, duration_ns: int
    ) -> dict[str, object]:
        """A length of time that begins `begun_ns` after `origin`."""
        return {
            "ph": "X",
            "name": name,
            "cat": kind,
            "pid": self._nodes[of.node],
            "tid": of.rank,
            "ts": round(self._us(origin) + begun_ns / 1e3, 3),
            "dur": duration_ns / 1e3,
        }

    def _instant(self, at: float, text: str) -> dict[str, object]:
        return {"ph": "i", "s": "g", "name": text, "pid": 0, "tid": 0, "ts": self._us(at)}

    def _name(self, what: str, process: int, name: str, thread: int = 0) -> dict[str, object]:
        return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}

    def _us(self, at: float) -> float:
        return round((at - self._start) * 1e6, 3)


KINDS = {"csv": write_csv, "chrome": write_chrome}
