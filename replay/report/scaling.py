"""Several sessions of one job with different numbers of ranks: how it scales, and why not better."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distmon.core.intervals import Interval, over_runs, ratio
from distmon.core.reconcile import Reconciled, RunFigures, reconcile
from distmon.core.scaling import Fit, Kind, Point, nearest_kind, scaling
from distmon.replay.report.model import Karp, ScalingReport, Session
from distmon.replay.report.sections import PHASE_NAMES, overview
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.words import DASH, count, number, seconds, share

LAWS = {"amdahl": "Amdahl", "gustafson": "Gustafson", "usl": "USL"}
_PARAMETERS = {"serial": "serial share", "contention": "contention σ", "coherence": "coherence κ"}
_LEAST_TOLD_S = 0.0005
_KINDS = {
    "strong": "strong: an epoch has the same samples whatever the ranks",
    "weak": "weak: the samples of an epoch grow with the ranks",
}


def scaling_report(runs: Sequence[RunFigures], epochs: Sequence[tuple[int, int]], stated: Kind | None) -> ScalingReport | None:
    """The report of runs of one job; `epochs` are (ranks, samples of an epoch). None for fewer than two numbers of ranks."""
    rows = reconcile(runs)
    if len(rows) < 2:
        return None
    kind = stated or nearest_kind(epochs)
    found = scaling([Point(ranks=row.ranks, throughput=row.throughput_samples_per_s) for row in rows], kind)
    karp = [Karp(ranks=s.ranks, low=s.karp_flatt[0], estimate=s.karp_flatt[1], high=s.karp_flatt[2])
            for s in found.speedups if s.karp_flatt is not None]  # fmt: skip
    return ScalingReport(
        kind=kind,
        kind_from=None if kind is None else "stated" if stated else "samples of an epoch",
        basis=found.basis,
        points=rows,
        karp_flatt=karp,
        fits=found.fits,
        notes=_notes(rows, found.basis),
    )


def wall_speedups(walls: Sequence[tuple[int, float]]) -> str:
    """What wall times (ranks, seconds) tell of runs whose samples are not known; empty for fewer than two numbers of ranks."""
    sizes = sorted({ranks for ranks, _ in walls})
    joined = [over_runs([wall_s for ranks, wall_s in walls if ranks == size]) for size in sizes]
    if len(sizes) < 2:
        return ""
    took = [f"{seconds(wall.estimate)} with {count(size, 'rank')}" for size, wall in zip(sizes, joined, strict=True)]
    gained = [(size, ratio(wall, joined[0])) for size, wall in zip(sizes[1:], joined[1:], strict=True)]
    sure = " (95 %, between runs)" * any(gain.known for _, gain in gained)
    more = ", ".join(f"{_times(gain)} with {size}" for size, gain in gained)
    return f"By wall time alone: {', '.join(took)}; speedup{sure}, if all trained the same work: {more}"


def _notes(rows: list[Reconciled], basis: str) -> list[str]:
    notes = []
    if basis != "between runs":
        notes.append("fewer than three runs of some size: the intervals hold for these runs, another may differ by more")
    unknown = [str(row.ranks) for row in rows if not row.throughput_samples_per_s.known]
    if unknown:
        notes.append(f"no interval with {', '.join(unknown)} ranks: too few steady steps, and fewer than three runs")
    if (highest := _highest(rows)) is not None:
        notes.append(highest)
    above = [row for row in rows[1:] if row.speedup_by_speed.low > 1.01 * row.ranks / rows[0].ranks]
    if above:
        sizes = " and ".join(str(row.ranks) for row in above)
        notes.append(f"with {sizes} ranks the speedup is above ideal: a cache that fits, a clock that differs, or unequal work")
    notes += [sentence for row in rows[1:] if (sentence := _overhead(rows[0], row))]
    return notes


def _highest(rows: list[Reconciled]) -> str | None:
    """Whether more ranks make it slower, where fewer than the most had the highest throughput."""
    fastest = max(rows, key=lambda row: row.throughput_samples_per_s.estimate)
    if fastest is rows[-1]:
        return None
    said = f"throughput is highest with {count(fastest.ranks, 'rank')}"
    beyond = [ratio(fastest.throughput_samples_per_s, row.throughput_samples_per_s) for row in rows if row.ranks > fastest.ranks]
    if not all(found.known and found.high < 1 for found in beyond):
        return f"{said} in these runs; whether it falls beyond cannot be told: the intervals do not show it"
    if not all(found.basis == "between runs" for found in beyond):
        return f"{said} and falls beyond in these runs; whether it does in others is not known"
    return f"{said} and falls beyond: more ranks make it slower"


def _overhead(base: Reconciled, row: Reconciled) -> str:
    """What of the wall time is no steady training, where that is why speedup by wall time is less than by speed."""
    if row.share_factor > 0.9:
        return ""
    outside = {name: value for name, value in row.parts_s.items() if not name.startswith("steady") and value > 0}
    largest = sorted(outside.items(), key=lambda item: -item[1])[:2]
    named = " and ".join(f"{part_name(name)} {seconds(value)}" for name, value in largest)
    return (
        f"with {count(row.ranks, 'rank')} {share(_outside(row), row.wall_s.estimate)} of the wall time is no steady training "
        f"(most of it {named}), with {count(base.ranks, 'rank')} {share(_outside(base), base.wall_s.estimate)}: "
        "that is why the speedup by wall time is the lower one"
    )


def _outside(row: Reconciled) -> float:
    return math.fsum(value for name, value in row.parts_s.items() if not name.startswith("steady") and value > 0)


def common_sections(named: list[tuple[str, Session]], found: ScalingReport | None, no_scaling: str) -> list[Section]:
    """What several sessions have in common: the summary, and how they scale, or why that is not told."""
    first = overview(named) if len(named) > 1 else []
    if found is not None:
        return [*first, *scaling_sections(found)]
    return [*first, Section("Scaling", lines=[no_scaling])] if no_scaling else first


def scaling_sections(found: ScalingReport) -> list[Section]:
    """The report for people."""
    facts = [
        ("scaling", _KINDS.get(found.kind or "", "strong or weak is not known: distmon report takes --strong or --weak")),
        ("runs", ", ".join(f"{row.runs} with {count(row.ranks, 'rank')}" for row in found.points)),
        ("intervals", f"95 %, {found.basis}"),
    ]
    return [
        Section("Scaling", facts=facts, table=_speedups(found), lines=found.notes),
        Section("Why the two speedups differ", table=_factors(found)),
        Section("Wall time by number of ranks", table=_parts(found)),
        Section("Scaling laws", lines=[_fit(fit, found.basis) for fit in found.fits]),
    ]


def _speedups(found: ScalingReport) -> Table:
    karp = {each.ranks: each for each in found.karp_flatt}
    rows = [
        [
            str(row.ranks),
            f"{number(row.throughput_samples_per_s.estimate)} samples/s",
            _times(row.speedup_by_speed),
            share(row.efficiency_by_speed, 1),
            seconds(row.wall_s.estimate),
            _times(row.speedup_by_wall),
            share(row.efficiency_by_wall, 1),
            _karp(karp[row.ranks]) if row.ranks in karp else DASH,
        ]
        for row in found.points
    ]
    header = ["ranks", "throughput", "speedup by speed", "efficiency", "wall time", "speedup by wall", "efficiency", "Karp-Flatt"]
    return Table(header, rows)


def _karp(found: Karp) -> str:
    surely = f" ({found.low:z.3f} to {found.high:z.3f})" if found.low < found.high < math.inf else ""
    return f"{found.estimate:z.3f}{surely}"


def _times(interval: Interval) -> str:
    if not interval.known or interval.low == interval.high:
        return f"{interval.estimate:.3f}"
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def _factors(found: ScalingReport) -> Table:
    """The identity in numbers: the three factors multiply to the speedup by wall time."""
    rows = [
        [
            str(row.ranks),
            f"{row.work_factor:.3f}",
            f"{row.speed_factor:.3f}",
            f"{row.share_factor:.3f}",
            f"{row.speedup_by_wall.estimate:.3f}",
            share(row.steady_share, 1),
        ]
        for row in found.points
    ]
    header = ["ranks", "work W1/WN", "x speed vN/v1", "x steady share fN/f1", "= speedup by wall", "steady share f"]
    return Table(header, rows)


def _parts(found: ScalingReport) -> Table:
    names = dict.fromkeys(name for row in found.points for name, value in row.parts_s.items() if abs(value) >= _LEAST_TOLD_S)
    rows = [[part_name(name), *(seconds(row.parts_s.get(name, 0.0)) for row in found.points)] for name in names]
    whole = ["job", *(seconds(row.wall_s.estimate) for row in found.points)]
    return Table(["part, by mean shares", *(count(row.ranks, "rank") for row in found.points)], [*rows, whole])


def part_name(name: str) -> str:
    """`steady compute` as people say it."""
    steady, _, phase = name.partition(" ")
    known = PHASE_NAMES.get(phase, phase.replace("_", " "))
    return f"{steady}, {known}" if phase else name.replace("_", " ")


def law_name(fit: Fit) -> str:
    """`Amdahl`; `Amdahl, at most` where it is a bound."""
    return LAWS[fit.law] + ", at most" * bool(fit.assumes)


def _fit(fit: Fit, basis: str) -> str:
    if fit.refused:
        return f"{LAWS[fit.law]}: refused: {fit.refused}"
    sure = "90 %" if basis == "between runs" else f"90 % {basis}"
    known = [
        f"{_PARAMETERS[name]} {number(band.estimate, 3)} ({sure}: {number(band.low, 3)} to {number(band.high, 3)})"
        for name, band in fit.parameters.items()
        if name in _PARAMETERS
    ]
    ahead = ""
    if fit.next_gain is not None and fit.next_ranks is not None:
        gain = fit.next_gain
        most = "at most " * bool(fit.assumes)
        band = f"{sure}: {gain.low:.3f} to {gain.high:.3f}"
        ahead = f"; {fit.next_ranks} ranks would be {most}{gain.estimate:.3f} times as fast ({band})"
    peak = f"; fastest with {fit.peak_ranks:.0f} ranks" if fit.peak_ranks is not None else ""
    given = f", if {fit.assumes}" if fit.assumes else ""
    return f"{LAWS[fit.law]}{given}: {', '.join(known)}{ahead}{peak}"
