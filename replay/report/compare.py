"""Two sessions, or two groups of repeated runs, side by side: what differs, with intervals, and what that shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct

from distmon.core.comparison import OF_STEPS, Effect, RunValues, Verdict, compare_runs, shown_difference
from distmon.core.energy import NEARLY_ALL
from distmon.core.epoch_comparison import EpochRun
from distmon.core.intervals import MIN_RUNS
from distmon.core.printable import clean
from distmon.replay.report import model
from distmon.replay.report.epochs import Epochs, epoch_sections, summarise_epochs
from distmon.replay.report.sections import PHASE_NAMES
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.words import DASH, count, number, seconds, unit

FORMAT = 1
_OF_THE_WHOLE = ("duration", "energy")
"""Of a run that was cut short, these say when that was."""
_SAME_WORK = 0.01
_OF_ENERGY = ("energy", "energy per sample")


@dataclass(frozen=True, slots=True)
class Compared:
    """One recording to compare."""

    session: model.Session
    values: RunValues
    epochs: EpochRun

    @property
    def ended_well(self) -> bool:
        """Whether its job did, as far as there was one."""
        return self.session.exit_code == 0 or (self.session.exit_code is None and not self.session.command)

    def until_its_end(self) -> Compared:
        """Without what tells of a run that was not cut short alone."""
        if self.ended_well:
            return self
        return replace(self, values={name: value for name, value in self.values.items() if name not in _OF_THE_WHOLE})


class Measure(Struct, kw_only=True):
    """`ratio` is other / base, with its 95 % interval; None where a side has no value."""

    name: str
    unit: str
    base: float | None
    other: float | None
    ratio: float | None
    ratio_ci95: tuple[float, float] | None
    no_interval: str
    """Why there is none; empty where there is."""
    verdict: Verdict | None


class Side(Struct, kw_only=True):
    """The first of a side's runs, and how many they are."""

    session_id: str
    started: str | None
    command: list[str]
    ranks: int | None
    file: str
    exit_code: int | None
    end_reason: str | None
    runs: int


class Size(Struct, kw_only=True):
    """The comparison of the runs with one number of ranks."""

    ranks: int | None
    base_runs: int
    other_runs: int
    basis: str | None
    """`between runs`, or `within this run` where one side has fewer than three; None where nothing can be compared."""
    verdict: Verdict | None
    """Of the first measure."""
    shown_percent: float | None
    """A true difference of the first measure by so much would be called one in four of five comparisons like this.

    None with fewer than three runs of a side, which never tell a difference.
    """
    other_work: str
    """How the work of the sides differs; empty where it does not, as far as they tell."""
    measures: list[Measure]


class Comparison(Struct, kw_only=True):
    """`measures` are those of the most ranks that both sides have; `sizes` has every number of ranks."""

    format: int = FORMAT
    base: Side
    other: Side
    measures: list[Measure]
    intervals_overlap: bool | None
    """Whether the 95 % intervals of the two mean throughputs meet; None where one is missing."""
    sizes: list[Size]
    epochs: Epochs | None
    """Of one run each."""
    ends: str
    """How runs of either side ended, where that was no good end; else empty."""
    notes: list[str]


def compare(base: Sequence[Compared], other: Sequence[Compared]) -> Comparison:
    """Both sides have a run at least. Runs with the same number of ranks are compared; where none agree, all with all.

    Runs that came to no good end are left out where a side has others.
    """
    base, other = ([one.until_its_end() for one in side] for side in (base, other))
    failed = [one for one in [*base, *other] if not one.ended_well]
    base, other = ([one for one in side if one.ended_well] or side for side in (base, other))
    ranks = sorted({size for one in base if (size := _ranks(one)) is not None} & {_ranks(one) for one in other})
    sizes = [_size(size, [b for b in base if _ranks(b) == size], [o for o in other if _ranks(o) == size]) for size in ranks]
    if not sizes:
        sizes = [_size(None, list(base), list(other))]
    first = base[0].session.throughput.ci95_samples_per_s, other[0].session.throughput.ci95_samples_per_s
    return Comparison(
        base=_side(base),
        other=_side(other),
        measures=sizes[-1].measures,
        intervals_overlap=_overlap(*first) if len(base) == len(other) == 1 else None,
        sizes=sizes,
        epochs=summarise_epochs(base[0].epochs, other[0].epochs) if len(base) == len(other) == 1 else None,
        ends=_ends(base, other),
        notes=_left_out([one for one in failed if one not in [*base, *other]]) + _notes(base, other, sizes),
    )


def _ranks(one: Compared) -> int | None:
    return one.session.world_size.last


def _size(ranks: int | None, base: list[Compared], other: list[Compared]) -> Size:
    left_out = _OF_ENERGY if len({_covered(one) for one in [*base, *other]}) > 1 else ()
    effects = compare_runs(*(
        [{name: value for name, value in one.values.items() if name not in left_out} for one in side] for side in (base, other)
    ))
    measures = [_measure(effect) for effect in effects]
    return Size(
        ranks=ranks,
        base_runs=len(base),
        other_runs=len(other),
        basis=effects[0].ratio.basis if effects else None,
        verdict=measures[0].verdict if measures else None,
        shown_percent=None if not effects or (shown := shown_difference(effects[0].ratio)) is None else 100 * shown,
        other_work=_other_work(base, other),
        measures=measures,
    )


def _covered(one: Compared) -> str:
    """The readings that a run's energy is the sum of, node by node where these differ."""
    by_host: dict[str, list[str]] = {}
    for reading in one.session.energy.readings if one.session.energy else []:
        if not reading.within:
            by_host.setdefault(reading.host, []).append(reading.name)
    return ", on other nodes ".join(sorted({" + ".join(names) for names in by_host.values()}))


def _other_work(base: list[Compared], other: list[Compared]) -> str:
    """Epochs and samples that counted, means over a side's runs, where they differ by more than a last step makes them differ."""
    sides = [
        [
            ("epoch", _mean([len(one.epochs.epochs) for one in side])),
            ("sample", _mean([(one.session.samples or 0) - (one.session.elastic.redone_samples or 0) for one in side])),
        ]
        for side in (base, other)
    ]
    known = [(what, a, b) for (what, a), (_, b) in zip(*sides, strict=True) if a and b]
    if all(abs(b / a - 1) <= _SAME_WORK for _, a, b in known):
        return ""
    base_did = " and ".join(_amount(what, a) for what, a, _ in known) + _of_runs(base)
    other_did = " and ".join(_amount(what, b) for what, _, b in known) + _of_runs(other)
    return f"the work differs: base trained {base_did}, other {other_did}; what the whole took says nothing of speed"


def _mean(values: list[int]) -> float | None:
    """None where one of them is not known, or nothing."""
    return math.fsum(values) / len(values) if all(value > 0 for value in values) else None


def _amount(what: str, mean: float) -> str:
    return f"{number(mean, 5)} {what}{'s' * (mean != 1)}"


def _of_runs(side: list[Compared]) -> str:
    return f" (means of {len(side)} runs)" if len(side) > 1 else ""


def _left_out(failed: list[Compared]) -> list[str]:
    names = ", ".join(f"{_name(one)} ({_end(one)})" for one in failed)
    return [f"left out, without a good end: {names}"] * bool(failed)


def _ends(base: Sequence[Compared], other: Sequence[Compared]) -> str:
    """A side's runs came all to a good end, or none did."""
    ends = [
        f"{name}: {_end(side[0])}, after {count(side[0].session.steps, 'step')}"
        + f" (the first of {len(side)} runs)" * (len(side) > 1)
        for name, side in (("base", base), ("other", other))
        if not side[0].ended_well
    ]
    return f"{'; '.join(ends)}; the figures are of what was done until then" if ends else ""


def _name(one: Compared) -> str:
    return clean(Path(one.session.file).name) or one.session.session_id


def _end(one: Compared) -> str:
    """Failed, exit 1."""
    code, reason = one.session.exit_code, one.session.end_reason
    if code is None:
        return "its end was not recorded"
    return f"{'failed' if reason in (None, 'finished') else reason}, exit {code}"


def _measure(effect: Effect) -> Measure:
    why = _no_interval(effect)
    return Measure(
        name=_label(effect.name),
        unit=effect.unit,
        base=effect.base.estimate,
        other=effect.other.estimate,
        ratio=effect.ratio.estimate,
        ratio_ci95=None if why else (effect.ratio.low, effect.ratio.high),
        no_interval=why,
        verdict=None if why else effect.verdict,
    )


def _no_interval(effect: Effect) -> str:
    """Why nothing says how well a ratio is known."""
    sides = [name for name, side in (("base", effect.base), ("other", effect.other)) if not side.known]
    if sides:
        steps = "too few steady steps for one, and " if effect.name in OF_STEPS else ""
        return f"{' and '.join(sides)} {'have' if len(sides) > 1 else 'has'} {steps}fewer than {MIN_RUNS} runs"
    return "" if effect.ratio.low < effect.ratio.high else "the values of each side are all the same"


def _side(runs: Sequence[Compared]) -> Side:
    first = runs[0].session
    return Side(
        session_id=first.session_id,
        started=first.started,
        command=first.command,
        ranks=first.world_size.last,
        file=first.file,
        exit_code=first.exit_code,
        end_reason=first.end_reason,
        runs=len(runs),
    )


def _notes(base: Sequence[Compared], other: Sequence[Compared], sizes: list[Size]) -> list[str]:
    notes = []
    if any(size.basis != "between runs" for size in sizes):
        notes.append(
            f"fewer than {MIN_RUNS} runs of a side: the intervals hold for these runs, and how others would differ is not known; "
            f"record {MIN_RUNS} to 5 of each, and name their folders (distmon sweep --repeat {MIN_RUNS})"
        )
    for one in [*base, *other]:
        used = one.session.energy
        if used is not None and used.measured_percent is not None and used.measured_percent < 100 * NEARLY_ALL:
            part = f"{_name(one)}: power was measured for {number(used.measured_percent, 3)} % of the time"
            notes.append(f"{part}, and its energy, {unit(used.energy_j, 'J')}, is of that alone: none is compared")
    covered = {covers: one for one in [*other, *base] if "energy" in one.values and (covers := _covered(one))}
    if len(covered) > 1:
        said = "; ".join(f"{covers} ({_name(one)})" for covers, one in covered.items())
        notes.append(f"energies that cover other things are not compared: {said}")
    commands = {tuple(one.session.command) for one in [*base, *other]}
    if len(commands) > 1:
        notes.append("the commands differ")
    if sizes[0].ranks is None:
        notes.append("the numbers of ranks differ: a ratio of throughputs is then a speedup, not a change")
    notes.append(
        "the rows are judged together: of comparisons of equals at most one in twenty calls any of them different, most of which "
        "is left to the first; another may show no difference though its interval leaves out 1"
    )
    if len(sizes) > 1:
        notes.append("each number of ranks is judged by itself: of twenty comparisons of equals about one differs by chance")
    dropped = [one for one in [*base, *other] if sizes[0].ranks is not None and _ranks(one) not in {s.ranks for s in sizes}]
    if dropped:
        notes.append(f"{count(len(dropped), 'run')} left out, with a number of ranks that the other side does not have")
    cut = [one.session.session_id for one in [*base, *other] if not one.session.complete]
    return notes + [f"{name}: the recording is not complete" for name in cut]


def _overlap(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool | None:
    return None if a is None or b is None else a[0] <= b[1] and b[0] <= a[1]


def sections(comparison: Comparison) -> list[Section]:
    """The comparison for people."""
    found = [Section("", facts=[("base", _named(comparison.base)), ("other", _named(comparison.other))])]
    if comparison.ends:
        found[0].facts.append(("note", comparison.ends))
    for size in comparison.sizes:
        several = f" with {count(size.ranks or 0, 'rank')}" if len(comparison.sizes) > 1 else ""
        if size.other_work:
            found[0].facts.append((f"note{several}", size.other_work))
        found.append(Section(f"Other against base{several}", lines=[said(size)], table=_table(size) if size.measures else None))
    epochs = epoch_sections(comparison.epochs) if comparison.epochs is not None else []
    return [*found, *epochs, Section("How far this goes", lines=comparison.notes)]


def said(size: Size) -> str:
    """The answer in a sentence."""
    first = size.measures[0] if size.measures else None
    if first is None or first.ratio is None:
        return "nothing was measured on both sides"
    if first.ratio_ci95 is None:
        change = f"{first.name} of other is {_change(first.ratio)}"
        return f"no difference can be told from chance: {change}, no interval: {first.no_interval}"
    low, high = first.ratio_ci95
    change = f"{first.name} of other is {_change(first.ratio)} (95 %: {_percent(low)} to {_percent(high)})"
    if size.verdict == "no difference shown":
        if size.shown_percent is None:
            return f"no difference shown within these runs: {change}"
        return f"no difference shown: {change}; one of about {size.shown_percent:.1f} % would be shown in four of five cases"
    runs = f"{size.base_runs} and {size.other_runs} runs"
    if size.verdict == "not told":
        return f"these runs differ, whether others would is not told: {change}"
    return f"different, over {runs}: {change}"


def _change(ratio: float) -> str:
    return f"{abs(100 * (ratio - 1)):.1f} % {'higher' if ratio >= 1 else 'lower'}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _table(size: Size) -> Table:
    rows = []
    for m in size.measures:
        interval = f"{m.ratio_ci95[0]:.3f} to {m.ratio_ci95[1]:.3f}" if m.ratio_ci95 else DASH
        ratio = DASH if m.ratio is None else f"{m.ratio:.3f}"
        rows.append([m.name, _shown(m, m.base), _shown(m, m.other), ratio, interval, m.verdict or DASH])
    return Table(["measure", "base", "other", "other / base", "95 %", "difference"], rows, left=(0, 5))


def _label(name: str) -> str:
    step, comma, phase = name.partition(", ")
    return f"{step}, {PHASE_NAMES.get(phase, phase)}" if comma else name


def _shown(measure: Measure, value: float | None) -> str:
    if value is None:
        return DASH
    return seconds(value) if measure.unit == "s" else f"{number(value, 5)} {measure.unit}"


def _named(side: Side) -> str:
    if side.runs > 1:
        return f"{side.runs} runs, the first {side.session_id} ({side.started or DASH}): {' '.join(side.command) or DASH}"
    ranks = DASH if side.ranks is None else count(side.ranks, "rank")
    return f"{side.session_id} ({ranks}, {side.started or DASH}): {' '.join(side.command) or DASH}"
