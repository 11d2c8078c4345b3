"""Redoes five published benchmarks small, on this machine, and puts their figures into docs/redo_*.md: `make redo`.

Recordings are kept in build/redo, and what is there is not run again: `rm -r build/redo` begins anew. What fails is told at the
end, and the figures that need it stay as they were.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from distmon.core.communication import size_words
from distmon.core.errors import DistmonError
from distmon.core.events import NodeSampled
from distmon.core.quantiles import median
from distmon.replay.report import model
from distmon.replay.report.charts import session_charts
from distmon.replay.report.compare import compare
from distmon.replay.report.compare import sections as comparison_sections
from distmon.replay.report.drawing import Chart
from distmon.replay.report.pictures import write_pictures
from distmon.replay.report.render import to_markdown
from distmon.replay.report.scaling import scaling_sections
from distmon.replay.report.scaling_charts import scaling_charts
from distmon.replay.report.sections import overview, sections
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.words import DASH, number, seconds
from distmon.replay.session_file import Notes, open_session
from distmon.tui.cli.compare import runs_of
from distmon.tui.cli.reported import Reported, load_reported, scaling_of
from distmon.tui.cli.sessions import resolve_all

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "redo"
DISTMON = [sys.executable, "-m", "distmon.tui.cli.main"]
ONE_CORE = "exec taskset -c $HOROVOD_LOCAL_RANK python examples/"
"""Each rank has a core of its own, however many there are: else one rank alone would have them all."""
SWEEPS = {
    "torch": "torch_digits.py --epochs 20",
    "keras": "keras_digits.py --epochs 12",
    "mobilenet": "keras_models.py --model MobileNetV2 --steps 40",
    "resnet": "keras_models.py --model ResNet50 --steps 40",
    "vgg": "keras_models.py --model VGG19 --steps $((64 / HOROVOD_SIZE))",
    "inception": "keras_models.py --model InceptionV3 --steps $((64 / HOROVOD_SIZE))",
}
ELASTIC = {
    "fixed": ["--min-np", "2", "--max-np", "2", "-H", "localhost:2"],
    "elastic": ["--min-np", "1", "--max-np", "2", "--cycle", "1:1@20s"],
}


PAGES = {
    "digits": ("torch", "keras"),
    "communication": ("mobilenet", "resnet"),
    "speedups": ("vgg", "inception"),
    "measuring": ("torch", "keras"),
    "elastic": ("fixed.jsonl.zst", "elastic.jsonl.zst"),
}
"""Page -> the recordings that it is about."""


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build", "redo")
    folder.mkdir(parents=True, exist_ok=True)
    done = {name: _told(name, _sweep(folder / name, script)) for name, script in SWEEPS.items()}
    done |= {name: _told(name, _elastic(folder / f"{name}.jsonl.zst", flags)) for name, flags in ELASTIC.items()}
    failed = [name for name, good in done.items() if not good]
    for name in ELASTIC.keys() & set(failed):
        (folder / f"{name}.jsonl.zst").unlink(missing_ok=True)  # a sweep knows itself what is missing of it
    blocks, missing = figures(folder), list[str]()
    for page in sorted(DOCS.glob("redo_*.md")):
        page.write_text(_filled(page.read_text(encoding="utf-8"), blocks, missing), encoding="utf-8")
    if failed or missing:
        sys.exit(f"failed: {', '.join(failed) or 'none'}; figures left as they were: {', '.join(missing) or 'none'}")


def _told(name: str, command: list[str] | None) -> bool:
    """Runs a command, if there is one, and says on stderr how long it took; whether it went well."""
    if command is None:
        return True
    sys.stderr.write(f"{name}\n")
    begun = time.monotonic()
    good = subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    sys.stderr.write(f"{name}: {'done' if good else 'FAILED'} in {time.monotonic() - begun:.0f} s\n")
    return good


def _sweep(folder: Path, script: str) -> list[str]:
    """What runs what is missing of a sweep of one and two ranks."""
    if folder.exists():
        return [*DISTMON, "sweep", "--resume", str(folder), "--headless"]
    words = ["-np", "1,2", "--repeat", "3", "--folder", str(folder), "--headless"]
    return [*DISTMON, "sweep", *words, "--", "sh", "-c", ONE_CORE + script]


def _elastic(recording: Path, flags: list[str]) -> list[str] | None:
    """What records an elastic job, if that is to be done."""
    if recording.exists():
        return None
    words = ["-np", "2", *flags, "--network-interface", "lo", "--headless", "--record", str(recording)]
    return [*DISTMON, "run", *words, "--", "python", "examples/torch_elastic.py", "--seconds", "70"]


def figures(folder: Path) -> dict[str, Callable[[], str]]:
    """Name of a block -> what makes its Markdown; plots go into docs/redo on the way."""
    swept = {name: lambda name=name: _scaling(folder / name, name) for name in SWEEPS}
    machine = {
        f"machine {page}": lambda parts=parts: _machine([folder / part for part in parts]) for page, parts in PAGES.items()
    }
    return {
        **swept,
        **machine,
        "torch over time": lambda: _over_time(folder / "torch" / "np2-run1.jsonl.zst", "torch", ("throughput", "node1_load")),
        "keras over time": lambda: _over_time(folder / "keras" / "np2-run1.jsonl.zst", "keras", ("throughput", "node1_load")),
        "steps of models": lambda: _steps({name: folder / name for name in ("mobilenet", "resnet")}),
        "warm-up": lambda: _warm_up([folder / name for name in ("torch", "keras")]),
        "elastic": lambda: _elastic_figures(folder),
    }


def _load(folder: Path) -> list[Reported]:
    return [load_reported(path, drawn=True) for path in resolve_all([str(folder)])]


def _machine(places: list[Path]) -> str:
    """How busy the machine was, in a sentence."""
    loads = [load for place in places for path in resolve_all([str(place)]) if (load := _load_of(path)) is not None]
    cores = os.cpu_count() or 1
    if not loads:
        return f"Measured on a machine of {cores} cores.\n"
    said = (
        f"Measured on a machine of {cores} cores. Its load, the ranks themselves included, was {min(loads):.1f} to "
        f"{max(loads):.1f} (the median of each run)"
    )
    crowded = ": other programs used it too, and the speeds below tell of them as well" if max(loads) > cores + 1 else ""
    return f"{said}{crowded}.\n"


def _load_of(path: Path) -> float | None:
    events = open_session(path).events(Notes())
    return median(e.load_1m for e in events if isinstance(e, NodeSampled) and e.load_1m is not None)


def _scaling(folder: Path, name: str) -> str:
    """Summary and scaling of a sweep, with two of its plots."""
    reported = _load(folder)
    found = scaling_of(reported, None)
    summary = overview([(one.name, one.session) for one in reported])
    if found is None:
        return to_markdown(summary, level=3)
    charts = [chart for chart in scaling_charts(found) if chart.name in ("scaling_speedup", "scaling_parts")]
    return to_markdown([*summary, *scaling_sections(found)[:3]], level=3) + _pictures(charts, f"{name}_")


def _pictures(charts: list[Chart], prefix: str) -> str:
    write_pictures(PICTURES, charts, prefix, kinds=("svg",))
    return "\n" + "\n\n".join(f"![{chart.title}](redo/{prefix}{chart.name}.svg)" for chart in charts) + "\n"


def _over_time(path: Path, prefix: str, names: tuple[str, ...]) -> str:
    one = load_reported(path, drawn=True)
    assert one.drawn is not None
    charts = [chart for chart in session_charts(one.session, one.drawn) if chart.name in names]
    kept = [s for s in sections(one.session) if s.title.startswith(("Findings", "A step", "A steady step", "Nodes"))]
    return to_markdown(kept, level=3) + _pictures(charts, f"{prefix}_")


def _steps(folders: dict[str, Path]) -> str:
    """A step with two ranks, model by model: what is computed against what is waited for, and why."""
    rows, said = [], []
    for name, folder in folders.items():
        of_two = [one for one in _load(folder) if one.session.communication is not None]
        for one in of_two:
            found = one.session.communication
            assert found is not None
            ratio = f"{found.compute_to_communication:.1f} : 1" if found.compute_to_communication else DASH
            times = (found.step_s, found.compute_s, found.exposed_s, found.waiting_s, found.transfer_s)
            size = DASH if found.bytes_per_step is None else size_words(found.bytes_per_step)
            rows.append([f"{name} {one.name}", *map(seconds, times), ratio, size])
        if of_two and (last := of_two[-1].session.communication) is not None:
            said.append(f"{name}: {last.text}")
    header = ["run", "step", "forward + backward", "exposed communication", "of it: for the last rank", "transfer"]
    table = Table([*header, "computation : communication", "reduced"], rows)
    return to_markdown([Section("", table=table), Section("", lines=said)], level=3)


def _warm_up(folders: list[Path]) -> str:
    """How long each run took to get steady, in each unit that people have used."""
    rows = []
    for folder in folders:
        for one in _load(folder):
            warm, speed = one.session.warmup, one.session.throughput
            rows.append([f"{folder.name} {one.name}", warm.shape.replace("_", " "), *_units(warm), *_speeds(speed)])
    header = ["run", "shape", "warm-up, steps", "seconds", "of them lost", "steady or all", "95 %", "whole session"]
    return to_markdown([Section("", table=Table(header, rows, left=(0, 1)))], level=3)


def _units(warm: model.Warmup) -> list[str]:
    return [DASH if warm.steps is None else str(warm.steps), seconds(warm.duration_s), seconds(warm.excess_s)]


def _speeds(speed: model.Throughput) -> list[str]:
    interval = speed.ci95_samples_per_s
    between = f"{number(interval[0])} to {number(interval[1])}" if interval else DASH
    return [number(speed.mean_samples_per_s), between, number(speed.session_mean_samples_per_s)]


def _elastic_figures(folder: Path) -> str:
    """The elastic run by itself, and against the fixed one."""
    elastic, fixed = folder / "elastic.jsonl.zst", folder / "fixed.jsonl.zst"
    one = load_reported(elastic, drawn=True)
    assert one.drawn is not None
    charts = [chart for chart in session_charts(one.session, one.drawn) if chart.name in ("elastic", "throughput")]
    named = ("Findings", "Where the time went", "Time lost", "Generations")
    kept = [s for s in sections(one.session) if s.title.startswith(named)]
    held = comparison_sections(compare(runs_of(str(fixed)), runs_of(str(elastic))))
    return to_markdown([*kept, *held], level=3) + _pictures(charts, "elastic_")


def _filled(text: str, blocks: dict[str, Callable[[], str]], missing: list[str]) -> str:
    """A page with what stands between `<!-- figures: NAME -->` and `<!-- end -->` made anew; else its name goes to `missing`."""

    def made(match: re.Match[str]) -> str:
        try:
            return f"<!-- figures: {match[1]} -->\n\n{blocks[match[1]]()}\n<!-- end -->"
        except DistmonError:
            missing.append(match[1])
            return match[0]

    return re.sub(r"<!-- figures: ([\w -]+) -->.*?<!-- end -->", made, text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
