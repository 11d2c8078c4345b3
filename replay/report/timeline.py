"""What a Horovod timeline says of communication: for `distmon timeline`, and as a part of a session's report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from distmon.core.errors import DistmonError, told
from distmon.core.formats.horovod_timeline import FusionUse, HorovodTimeline, TensorTimes, parse_horovod_timeline
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.replay.report import model
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.words import DASH, count, number

_LARGEST = 1 << 30
_APART_S = 60.0
"""So far the clock of rank 0's host may be from the session's."""
_SHOWN = 12
"""Tensors in a text; the JSON has all."""


def read_horovod_timeline(path: Path) -> HorovodTimeline:
    """Raises DistmonError."""
    try:
        if not path.is_file() and path.exists():
            raise DistmonError(f"{path}: not a plain file")
        if path.stat().st_size > _LARGEST:
            raise DistmonError(f"{path}: larger than {_LARGEST >> 30} GiB")
        return parse_horovod_timeline(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise DistmonError(told(error)) from None
    except DistmonError as error:
        raise DistmonError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def add_timeline(session: model.Session, state: SessionState, named: Path | None) -> None:
    """Puts Horovod's timeline into a session's report: the `named` file, or the one that the job was told to write.

    Raises DistmonError for a named file that cannot be read.
    """
    job = state.job.started
    path = named or (Path(job.timeline) if job is not None and job.timeline else None)
    if path is None:
        return
    try:
        found = read_horovod_timeline(path)
    except DistmonError as error:
        if named is not None:
            raise
        session.reasons["horovod_timeline"] = clean(f"{error}; Horovod writes it on rank 0's host: report --timeline FILE")
        return
    own = _is_of(found, state)
    if named is None and own is False:
        session.reasons["horovod_timeline"] = clean(f"{path} is of another run, which has written over this one's")
        return
    told = summarise_timeline(found, str(path), job.fusion_threshold_bytes if job is not None else None)
    if own is False:
        told.notes.append("it was not written while this session ran")
    if len(state.generations) > 1:
        told.notes.append("Horovod begins it anew at every reset: it has the last generation of ranks alone")
    session.horovod_timeline = told


def _is_of(timeline: HorovodTimeline, state: SessionState) -> bool | None:
    """Whether it was begun while the session ran; None where either does not tell when."""
    begun = state.job.started.at if state.job.started else state.started
    if timeline.started is None or begun is None:
        return None
    return begun - _APART_S <= timeline.started <= state.now + _APART_S


def summarise_timeline(timeline: HorovodTimeline, file: str, threshold_bytes: int | None = None) -> model.HorovodTimeline:
    """`threshold_bytes` is the size of the fusion buffer, where it is known."""
    last: Counter[int] = Counter()
    for tensor in timeline.tensors:
        last += tensor.last_ready
    return model.HorovodTimeline(
        file=clean(file),
        ranks=timeline.ranks,
        span_us=timeline.last_us - timeline.first_us,
        communication_us=timeline.communication_us,
        negotiate_us=timeline.negotiate_us,
        queue_us=timeline.queue_us,
        memcpy_in_us=timeline.memcpy_in_us,
        memcpy_out_us=timeline.memcpy_out_us,
        memcpy_us=timeline.memcpy_us,
        reduce_us=timeline.reduce_us,
        allreduce_us=timeline.collective_us.get("ALLREDUCE", 0.0),
        collective_us=timeline.collective_us,
        fusion=_fusion(timeline.fusion, threshold_bytes),
        last_ready={str(rank): times for rank, times in last.most_common()},
        incomplete_tensors=timeline.incomplete,
        tensors=[_tensor(tensor) for tensor in timeline.tensors],
        notes=_notes(timeline, last.total()),
    )


def _fusion(use: FusionUse, threshold_bytes: int | None) -> model.HorovodFusion:
    return model.HorovodFusion(
        reductions=use.fillings,
        tensors_per_reduction=use.tensors / use.fillings if use.fillings else None,
        bytes_per_reduction=use.total_bytes / use.fillings if use.total_bytes is not None else None,
        largest_bytes=use.largest_bytes,
        threshold_bytes=threshold_bytes,
    )


def _tensor(times: TensorTimes) -> model.HorovodTensor:
    last = times.last_ready.most_common(1)
    return model.HorovodTensor(
        name=clean(times.name),
        operations=times.operations,
        fused=times.fused,
        size_bytes=times.size_bytes,
        negotiate_us=times.negotiate_us,
        queue_us=times.queue_us,
        memcpy_us=times.memcpy_us,
        reduce_us=times.reduce_us,
        total_us=times.negotiate_us + times.collective_us,
        wait_for_last_rank_us=times.wait_for_last_us,
        last_ready_rank=last[0][0] if last else None,
        incomplete=times.incomplete,
    )


def _notes(timeline: HorovodTimeline, told_of: int) -> list[str]:
    """`told_of` operations have told which rank was last."""
    notes = [] if timeline.closed else ["the file was not closed: the job was killed, or runs still"]
    if timeline.incomplete:
        tensors = count(timeline.incomplete, "tensor")
        notes.append(f"the file is cut; {tensors} incomplete: open pieces end at the last time seen, {timeline.last_us:.0f} us")
    if timeline.damaged_events:
        notes.append(f"{count(timeline.damaged_events, 'event')} could not be read")
    operations = sum(tensor.operations for tensor in timeline.tensors)
    if told_of < operations:
        cached = "Horovod tells it only until a tensor is in its cache, and of one rank never"
        notes.append(f"who was waited for is told of {told_of:,} of {count(operations, 'operation')}: {cached}")
    return notes


def timeline_sections(found: model.HorovodTimeline) -> list[Section]:
    """For people."""
    operations = sum(tensor.operations for tensor in found.tensors)
    facts = [
        ("file", found.file),
        ("covers", f"{found.span_us / 1e6:.3f} s, {count(len(found.tensors), 'tensor')}, {count(operations, 'operation')}"),
        ("communication", _ms(found.communication_us, found.span_us)),
        ("negotiation", _ms(found.negotiate_us, found.span_us)),
        *((kind.lower(), _ms(us, found.span_us)) for kind, us in found.collective_us.items()),
        ("queue", _ms(found.queue_us, found.span_us)),
        ("copies into the buffer", _ms(found.memcpy_in_us, found.span_us)),
        ("copies out of it", _ms(found.memcpy_out_us, found.span_us)),
        ("reduction", _ms(found.reduce_us, found.span_us)),
        ("fusion", _fusion_words(found.fusion, sum(tensor.fused for tensor in found.tensors), operations)),
    ]
    waited = [[rank, str(times)] for rank, times in found.last_ready.items()][:_SHOWN]
    found_sections = [
        Section("Horovod's timeline, time in which at least one tensor was in that state", facts=facts, lines=found.notes),
        Section("Tensors that took longest, summed over their operations", table=_tensor_table(found)),
        Section("Who was waited for, of Horovod's timeline", table=Table(["rank", "last in"], waited)),
    ]
    return [section for section in found_sections if section.table is None or section.table.rows]


def _fusion_words(fusion: model.HorovodFusion, fused: int, operations: int) -> str:
    through = f"{fused:,} of {count(operations, 'operation')} went through the fusion buffer"
    if not fusion.reductions:
        return through
    together = number(fusion.tensors_per_reduction, 3)
    said = f"{through}, {together} tensor{'s' * (together != '1')} a time"
    if fusion.bytes_per_reduction is None or fusion.largest_bytes is None:
        return said
    said += f" with {_size(fusion.bytes_per_reduction)}, at most {_size(fusion.largest_bytes)}"
    if fusion.threshold_bytes:
        said += f": {100 * fusion.largest_bytes / fusion.threshold_bytes:.2g} % of its {_size(fusion.threshold_bytes)}"
    return said


def _size(amount: float) -> str:
    return f"{number(amount / 2**20)} MiB" if amount >= 2**20 else f"{number(amount / 2**10)} KiB"


def _tensor_table(found: model.HorovodTimeline) -> Table:
    longest = sorted(found.tensors, key=lambda tensor: -tensor.total_us)[:_SHOWN]
    rows = [
        [
            tensor.name,
            f"{tensor.operations:,}",
            f"{tensor.fused:,}",
            *(f"{us / 1e3:.2f} ms" for us in (tensor.total_us, tensor.negotiate_us, tensor.queue_us)),
            *(f"{us / 1e3:.2f} ms" for us in (tensor.memcpy_us, tensor.reduce_us, tensor.wait_for_last_rank_us)),
            DASH if tensor.last_ready_rank is None else str(tensor.last_ready_rank),
        ]
        for tensor in longest
    ]
    header = ["tensor", "operations", "fused", "in all", "negotiation", "queue", "copies", "reduction", "for the last", "last"]
    return Table(header, rows)


def _ms(us: float, span: float) -> str:
    return f"{us / 1e3:.2f} ms, {us / span:.1%} of the time" if span > 0 else f"{us / 1e3:.2f} ms"
