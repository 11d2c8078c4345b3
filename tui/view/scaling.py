"""Runs against a baseline: speedup, efficiency, and what the laws of scaling make of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from distmon.core.against import Against, against
from distmon.core.intervals import Interval
from distmon.core.printable import clean
from distmon.core.scaling import Fit, Scaling
from distmon.core.steady import SteadySpeed
from distmon.tui.format import MISSING, compact, fit
from distmon.tui.sweeps import Progress
from distmon.tui.theme import Palette
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.meter import meter
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

UNREAD = "Enter: read"
LIVE = ""
"""The key of the session on the screen; the others are paths of recordings."""
COLUMNS = (
    Column("run", "run", 13, "left", grow=4, widest=60, ends=True, narrow=9),
    Column("started", "started", 14, importance=5, figure="started_at_s"),
    Column("ranks", "ranks", 5, importance=1),
    Column("speed", "samples/s", 9, importance=2, figure="samples_per_s", narrow=7),
    Column("sure", "±", 6, importance=7, figure="half_interval_percent"),
    Column("speedup", "speedup", 8, importance=3, narrow=7),
    Column("ideal", "ideal", 6, importance=8, figure="ideal_speedup"),
    Column("efficiency", "effic.", 7, importance=4, figure="efficiency_percent", narrow=6),
    Column("state", "", 12, "left", importance=6, grow=1, widest=40),
)
IDEAL = "│"
LAWS = {"amdahl": "Amdahl", "gustafson": "Gustafson", "usl": "USL"}


@dataclass(frozen=True)
class Run:
    """A run in the list. `speed` is None until it was read, or where there is nothing to compare."""

    name: str
    speed: SteadySpeed | None = None
    state: str = UNREAD
    started: float | None = None
    file: str = ""
    program: tuple[str, ...] = ()
    """What it ran, and with which arguments; empty where that is not known."""


def unlike(base: Run, run: Run) -> str:
    """What a run's command has that the baseline's has not, in words; empty where they are the same, or one is not known."""
    if not base.program or not run.program or base.program == run.program:
        return ""
    return f"other program: {clean(run.program[0])}" if is_other_program(base, run) else "other arguments"


def is_other_program(base: Run, run: Run) -> bool:
    """Whether its speed says nothing about how the baseline's program scales."""
    return bool(base.program and run.program) and base.program[0] != run.program[0]


def compared(base: Run | None, run: Run) -> Against | None:
    """None where there is nothing to compare, or the programs are not the same."""
    if base is None or base.speed is None or run.speed is None or is_other_program(base, run):
        return None
    return against(base.speed, run.speed)


def _started(run: Run) -> str:
    return MISSING if run.started is None else time.strftime("%m-%d %H:%M:%S", time.localtime(run.started))


def told(run: Run) -> str:
    """A run's name, and which of that name."""
    return clean(run.name) + (f" of {_started(run)}" if run.started is not None else "")


def too_few(steps: int, needed: int) -> str:
    return f"too few steps yet: {steps} of {needed}"


def sweep_words(sweeps: Sequence[Progress]) -> list[tuple[str, str]]:
    """How far each sweep is that is not done."""
    words = []
    for sweep in sweeps:
        done = len(sweep.recorded) - (sweep.under_way is not None)
        if done < sweep.runs:
            now = f", {sweep.under_way} under way" if sweep.under_way is not None else ", at rest"
            words.append((f"{clean(sweep.folder.name)}: {done} of {sweep.runs} runs{now} · ", "accent"))
    return words


def cells(runs: dict[str, Run], baseline: str | None, key: str) -> Sequence[Cell]:
    run, base = runs[key], runs.get(baseline) if baseline is not None else None
    speed = run.speed
    name: Cell = (clean(run.name), "accent" if key == LIVE else "text")
    if speed is None:
        return (name, (_started(run), "text"), *[(MISSING, "muted")] * 6, (clean(run.state), "muted"))
    found = compared(base, run)
    role = "muted" if found is None else efficiency_role(found.efficiency)
    state = "baseline" if key == baseline else _state(base, run)
    return (
        name,
        (_started(run), "text"),
        (str(speed.ranks), "text"),
        (compact(speed.estimate), "text"),
        (_half_width(speed.samples_per_s), "muted"),
        (MISSING if found is None else f"{found.speedup:.2f}x", "text"),
        (MISSING if found is None else f"{found.ideal:.2f}x", "muted"),
        (MISSING if found is None else f"{100 * found.efficiency:.0f}%", role),
        (state if speed.found else f"{state} no steady state".strip(), "accent" if key == baseline else "warn"),
    )


def _state(base: Run | None, run: Run) -> str:
    """Of a run that was read and is not the baseline."""
    return unlike(base, run) if base is not None and base.speed is not None else run.state


def in_brief(runs: dict[str, Run], key: str) -> str:
    """Of a run without figures: when it began, which tells it from others of its name, and why it has none."""
    run = runs[key]
    return "" if run.speed is not None else f"{_started(run)} " * (run.started is not None) + clean(run.state)


def records(runs: dict[str, Run], baseline: str | None) -> dict[str, dict[str, object]]:
    """The same for a file; what was not read is None."""
    base = runs.get(baseline) if baseline is not None else None
    return {key: _record(run, base, key == baseline) for key, run in runs.items()}


def _record(run: Run, base: Run | None, is_baseline: bool) -> dict[str, object]:
    speed, found = run.speed, compared(base, run)
    interval = speed.samples_per_s if speed is not None and isinstance(speed.samples_per_s, Interval) else None
    return {
        "run": run.name,
        "file": run.file or None,
        "started_at_s": run.started,
        "ranks": speed.ranks if speed is not None else None,
        "samples_per_s": speed.estimate if speed is not None else None,
        "samples_per_s_low": interval.low if interval is not None else None,
        "samples_per_s_high": interval.high if interval is not None else None,
        "half_interval_percent": _half_percent(interval),
        "speedup": found.speedup if found is not None else None,
        "ideal_speedup": found.ideal if found is not None else None,
        "efficiency_percent": 100 * found.efficiency if found is not None else None,
        "steady_state": speed.found if speed is not None else None,
        "state": "baseline" if is_baseline else _state(base, run) if speed is not None else run.state,
    }


def law_records(found: Scaling | None) -> list[dict[str, object]]:
    """The laws for a file: a row per parameter, with its interval."""
    rows: list[dict[str, object]] = []
    for law in found.fits if found is not None else ():
        bands = {**law.parameters, **({"next_samples_per_s": law.next_throughput} if law.next_throughput is not None else {})}
        rows += [
            {"law": law.law, "parameter": name, "estimate": band.estimate, "low": band.low, "high": band.high}
            for name, band in bands.items()
        ]
        if law.peak_ranks is not None:
            rows.append({"law": law.law, "parameter": "peak_ranks", "estimate": law.peak_ranks})
        rows += [{"law": law.law, key: text} for key, text in (("refused", law.refused), ("assumes", law.assumes)) if text]
    return rows


def efficiency_role(efficiency: float) -> str:
    return "good" if efficiency >= 0.9 else "warn" if efficiency >= 0.6 else "bad"


def _half_width(speed: Interval | float) -> str:
    half = _half_percent(speed if isinstance(speed, Interval) else None)
    return MISSING if half is None else f"{half:.1f}%"


def _half_percent(speed: Interval | None) -> float | None:
    """Half of the interval, in percent of the estimate."""
    return None if speed is None or speed.estimate <= 0 else 100 * (speed.high - speed.low) / 2 / speed.estimate


def bar_lines(runs: dict[str, Run], baseline: str | None, palette: Palette, width: int, height: int) -> list[Line]:
    """A bar of efficiency per run, all on one scale with a mark at what is ideal; by number of ranks."""
    style, base = palette.style, runs.get(baseline) if baseline is not None else None
    live = runs.get(LIVE, Run(""))
    why = wrapped(f"{live.name}: {live.state}", width, style("warn")) if live.name and live.speed is None and live.state else []
    if base is not None:
        for run in runs.values():
            if run.speed is not None and is_other_program(base, run):
                why += wrapped(f"{told(run)}: {unlike(base, run)}", width, style("warn"))
    if base is None or base.speed is None:
        return [*why, *wrapped("Enter reads a recording; b makes the selected run the baseline", width, style("muted"))]
    found_of = [(run.speed, key, compared(base, run)) for key, run in runs.items()]
    known = [(speed, key, found) for speed, key, found in found_of if speed is not None and found is not None]
    top = max(1.0, *(found.efficiency for *_, found in known))
    ideal = f"full is {100 * top:.0f}%, {IDEAL} is ideal" if top > 1 else "full is ideal"
    lines = [Line([(fit("ranks", 6, "right") + f"  efficiency against the baseline; {ideal}", style("muted"))])]
    longest = max(len(f"{found.speedup:.2f}x") for *_, found in known)
    for speed, key, found in sorted(known, key=lambda item: (item[0].ranks, item[1])):
        figures = f" {100 * found.efficiency:4.0f}% {found.speedup:.2f}x"
        line = Line([(fit(str(speed.ranks), 6, "right") + "  ", style("accent" if key == LIVE else "text"))])
        line.extend(_bar(palette, found.efficiency, top, max(width - 15 - longest, 8)))
        lines.append(line.add(figures, style("text", bold=key == LIVE)))
    return lines + why


def _bar(palette: Palette, efficiency: float, top: float, width: int) -> Line:
    """From 0 to `top`, with a mark where the efficiency is 1 if the bar goes past it."""
    role = efficiency_role(efficiency)
    if top <= 1:
        return meter(palette, 100 * efficiency, width, role)
    within = min(max(round(width / top), 1), width - 2)
    beyond = 100 * max(efficiency - 1, 0.0) / (top - 1)
    line = meter(palette, 100 * min(efficiency, 1.0), within, role).add(IDEAL, palette.style("accent", bold=True))
    return line.extend(meter(palette, beyond, width - within - 1, role))


def law_lines(found: Scaling | None, palette: Palette, width: int, height: int) -> list[Line]:
    """Each law: its parameters and what it foresees, or why it is refused."""
    style = palette.style
    if found is None:
        return wrapped("the laws of scaling need runs with three numbers of ranks or more", width, style("muted"))
    lines = []
    for law in found.fits:
        lines.append(Line([(LAWS[law.law], style("accent", bold=True))]))
        lines += wrapped(clean(law.refused or _law_words(law)), width - 2, style("muted" if law.refused else "text"), "  ")
    return [*lines, Line([(f"intervals {found.basis}", style("muted"))])]


def _law_words(law: Fit) -> str:
    parts = [f"{name} {band.estimate:.3g} ({band.low:.3g} to {band.high:.3g})" for name, band in law.parameters.items()]
    if law.next_throughput is not None and law.next_ranks is not None:
        ahead = law.next_throughput
        band = f"{compact(ahead.estimate)} samples/s ({compact(ahead.low)} to {compact(ahead.high)})"
        parts.append(f"{law.next_ranks} ranks: {'at most ' * bool(law.assumes)}{band}")
    if law.peak_ranks is not None:
        parts.append(f"fastest near {law.peak_ranks:.0f} ranks")
    if law.assumes:
        parts.append(f"if {law.assumes}")
    return ", ".join(parts)
