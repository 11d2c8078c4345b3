"""`distmon timeline`: what a Horovod timeline says of communication."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from msgspec import Struct

from distmon.core.errors import DistmonError, told
from distmon.core.formats.horovod_timeline import HorovodTimeline, TensorTimes, parse_horovod_timeline
from distmon.replay.report.mask import plain
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.sections import Section, Table
from distmon.replay.report.words import count
from distmon.tui.cli.sessions import write_json, write_text

FORMAT = 1
_LARGEST = 1 << 30
_SHOWN = 20
EPILOG = """\
Horovod writes the timeline itself, on rank 0: distmon run --timeline-filename FILE -np 2 -- CMD. Times are what the clock showed
while at least one tensor was in that state: pieces nest and tensors overlap, so they do not add up.

  distmon timeline timeline.json
"""


class Tensor(Struct):
    name: str
    operations: int
    fused: int
    wait_for_last_rank_us: float
    last_ready_rank: int | None
    """The rank that was last most often."""
    incomplete: bool


class Report(Struct):
    format: int
    file: str
    ranks: int
    span_us: float
    communication_us: float
    negotiate_us: float
    queue_us: float
    memcpy_us: float
    reduce_us: float
    allreduce_us: float
    collective_us: dict[str, float]
    last_ready: dict[str, int]
    """Rank -> in how many operations it was the one that was waited for."""
    incomplete_tensors: int
    tensors: list[Tensor]
    notes: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="TIMELINE.json", help="as HOROVOD_TIMELINE or --timeline-filename made it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    found = report(arguments.file)
    if arguments.json:
        write_json(found)
    else:
        write_text((to_markdown if arguments.markdown else to_text)(sections(found)))
    return 0


def report(path: Path) -> Report:
    """Raises DistmonError."""
    try:
        if path.stat().st_size > _LARGEST:
            raise DistmonError(f"{path}: larger than {_LARGEST >> 30} GiB")
        timeline = parse_horovod_timeline(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise DistmonError(told(error)) from None
    except DistmonError as error:
        raise DistmonError(f"{path}: {error}") from None
    last: Counter[int] = Counter()
    for tensor in timeline.tensors:
        last += tensor.last_ready
    return Report(
        format=FORMAT,
        file=str(path),
        ranks=timeline.ranks,
        span_us=timeline.last_us - timeline.first_us,
        communication_us=timeline.communication_us,
        negotiate_us=timeline.negotiate_us,
        queue_us=timeline.queue_us,
        memcpy_us=timeline.memcpy_us,
        reduce_us=timeline.reduce_us,
        allreduce_us=timeline.collective_us.get("ALLREDUCE", 0.0),
        collective_us=timeline.collective_us,
        last_ready={str(rank): times for rank, times in last.most_common()},
        incomplete_tensors=timeline.incomplete,
        tensors=[_tensor(tensor) for tensor in timeline.tensors],
        notes=_notes(timeline),
    )


def _tensor(times: TensorTimes) -> Tensor:
    last = times.last_ready.most_common(1)
    return Tensor(
        plain(times.name), times.operations, times.fused, times.wait_for_last_us, last[0][0] if last else None, times.incomplete
    )


def _notes(timeline: HorovodTimeline) -> list[str]:
    notes = [] if timeline.closed else ["the file was not closed: the job was killed, or runs still"]
    if timeline.incomplete:
        tensors = count(timeline.incomplete, "tensor")
        notes.append(f"the file is cut; {tensors} incomplete: open pieces end at the last time seen, {timeline.last_us:.0f} us")
    if timeline.damaged_lines:
        notes.append(f"{count(timeline.damaged_lines, 'line')} could not be read")
    return notes


def sections(found: Report) -> list[Section]:
    """For people."""
    operations = sum(tensor.operations for tensor in found.tensors)
    fused = sum(tensor.fused for tensor in found.tensors)
    facts = [
        ("time line", f"{found.span_us / 1e6:.3f} s, {found.ranks} ranks, {len(found.tensors)} tensors, {operations} operations"),
        ("communication", _ms(found.communication_us, found.span_us)),
        ("negotiation", _ms(found.negotiate_us, found.span_us)),
        *((kind.lower(), _ms(us, found.span_us)) for kind, us in found.collective_us.items()),
        ("waiting for data", _ms(found.queue_us, found.span_us)),
        ("memory copies", _ms(found.memcpy_us, found.span_us)),
        ("reducing", _ms(found.reduce_us, found.span_us)),
        ("fusion", f"{fused} of {operations} operations went through the fusion buffer"),
    ]
    slowest = sorted(found.tensors, key=lambda tensor: -tensor.wait_for_last_rank_us)[:_SHOWN]
    rows = [
        [
            t.name,
            str(t.operations),
            f"{t.wait_for_last_rank_us / 1e3:.2f} ms",
            "–" if t.last_ready_rank is None else str(t.last_ready_rank),
        ]
        for t in slowest
    ]
    waited = [[rank, str(times)] for rank, times in found.last_ready.items()]
    return [
        Section("", facts=facts),
        Section("Who was waited for", table=Table(["rank", "last in"], waited)),
        Section(
            "Tensors, longest wait for the last rank first", table=Table(["tensor", "operations", "wait", "last rank"], rows)
        ),
        Section("Notes", lines=found.notes),
    ]


def _ms(us: float, span: float) -> str:
    return f"{us / 1e3:.2f} ms, {us / span:.1%} of the time" if span > 0 else f"{us / 1e3:.2f} ms"
