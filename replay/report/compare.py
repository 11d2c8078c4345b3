"""Two sessions side by side, as ratios. It tells what differed between two runs, not whether it would again."""

from __future__ import annotations

from msgspec import Struct

from distmon.replay.report import model
from distmon.replay.report.sections import PHASE_NAMES, Section, Table
from distmon.replay.report.words import DASH, number, seconds

FORMAT = 1


class Measure(Struct, kw_only=True):
    """`ratio` is other / base; None where either is missing or the base is 0."""

    name: str
    unit: str
    base: float | None
    other: float | None
    ratio: float | None


class Side(Struct, kw_only=True):
    session_id: str
    started: str | None
    command: list[str]
    ranks: int | None
    file: str


class Comparison(Struct, kw_only=True):
    format: int = FORMAT
    base: Side
    other: Side
    measures: list[Measure]
    intervals_overlap: bool | None
    """Whether the 95 % intervals of the two mean throughputs meet; None where one is missing."""
    notes: list[str]


def compare(base: model.Session, other: model.Session) -> Comparison:
    """Ratios of what both sessions measured."""
    notes = ["one run of each: a difference smaller than what repeated runs show is not told from chance"]
    if base.command != other.command:
        notes.append("the commands differ")
    if base.world_size.last != other.world_size.last:
        notes.append("the numbers of ranks differ: a ratio of throughputs is then a speedup, not a change")
    notes += [f"{side.session_id}: the recording is not complete" for side in (base, other) if not side.complete]
    return Comparison(
        base=_side(base),
        other=_side(other),
        measures=[_measure(name, unit, a, b) for name, unit, a, b in _pairs(base, other)],
        intervals_overlap=_overlap(base.throughput.ci95_samples_per_s, other.throughput.ci95_samples_per_s),
        notes=notes,
    )


def _pairs(base: model.Session, other: model.Session) -> list[tuple[str, str, float | None, float | None]]:
    a, b = base, other
    pairs: list[tuple[str, str, float | None, float | None]] = [
        ("throughput mean", "samples/s", a.throughput.mean_samples_per_s, b.throughput.mean_samples_per_s),
        ("throughput median", "samples/s", a.throughput.median_samples_per_s, b.throughput.median_samples_per_s),
        ("session mean", "samples/s", a.throughput.session_mean_samples_per_s, b.throughput.session_mean_samples_per_s),
        ("duration", "s", a.duration_s, b.duration_s),
        ("warm-up", "s", a.warmup.duration_s, b.warmup.duration_s),
        ("steady step", "s", a.step_s, b.step_s),
    ]
    for key, label in PHASE_NAMES.items():
        pairs.append((f"step, {label}", "s", getattr(a.step_split_s, key), getattr(b.step_split_s, key)))
    pairs.append(("energy", "J", _energy(a), _energy(b)))
    return pairs


def _energy(session: model.Session) -> float | None:
    """Of all nodes; None unless every one was measured."""
    joules = [node.energy_j for node in session.nodes]
    known = [j for j in joules if j is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _measure(name: str, unit: str, base: float | None, other: float | None) -> Measure:
    ratio = other / base if base and other is not None else None
    return Measure(name=name, unit=unit, base=base, other=other, ratio=ratio)


def _side(session: model.Session) -> Side:
    return Side(
        session_id=session.session_id,
        started=session.started,
        command=session.command,
        ranks=session.world_size.last,
        file=session.file,
    )


def _overlap(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool | None:
    return None if a is None or b is None else a[0] <= b[1] and b[0] <= a[1]


def sections(comparison: Comparison) -> list[Section]:
    """The comparison for people."""
    rows = [[m.name, _shown(m, m.base), _shown(m, m.other), _ratio(m)] for m in comparison.measures]
    said = {
        True: "the 95 % intervals of the two throughputs overlap: these runs do not show a difference",
        False: "the 95 % intervals of the two throughputs do not overlap",
        None: "at least one throughput has no interval: too few steady steps",
    }[comparison.intervals_overlap]
    return [
        Section("", facts=[("base", _named(comparison.base)), ("other", _named(comparison.other))]),
        Section("Other against base", table=Table(["measure", "base", "other", "other / base"], rows)),
        Section("How far this goes", lines=[said, *comparison.notes]),
    ]


def _shown(measure: Measure, value: float | None) -> str:
    if value is None:
        return DASH
    return seconds(value) if measure.unit == "s" else f"{number(value, 5)} {measure.unit}"


def _ratio(measure: Measure) -> str:
    return DASH if measure.ratio is None else f"{measure.ratio:.3f}"


def _named(side: Side) -> str:
    ranks = DASH if side.ranks is None else str(side.ranks)
    return f"{side.session_id} ({ranks} ranks, {side.started or DASH}): {' '.join(side.command) or DASH}"
