"""`distmon audit`: a published table of measurements against itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec import Struct

from distmon.core.audit.audit import DERIVED, Audit, audit
from distmon.core.audit.table import Table, parse_table
from distmon.core.errors import DistmonError, told
from distmon.core.printable import clean
from distmon.replay.report.render import to_markdown
from distmon.replay.report.tables import Section
from distmon.replay.report.tables import Table as Grid
from distmon.replay.report.words import count
from distmon.tui.cli.sessions import as_text, write_json, write_text

FORMAT = 1
_LARGEST = 16 << 20
CONTRADICTED = 3
EPILOG = """\
The table has a line of column names, and cells apart by commas, semicolons or tabs. What is understood, as Images/sec, # GPUs or
Time (s) too: workers (processes, ranks, gpus, nodes, cards ...), images_per_s (samples_per_s, throughput ...; that of each with
_per_gpu), speedup (speedup_speed, speedup_time), efficiency, communication (18% or 10:3), seconds of a task and of its phases
(NAME_s), images_per_task, images (in all), epoch with RUN_s of two runs, seconds and minutes, epochs, power_w, energy_j. A column
NAME_printed holds what was published. Numbers may be written as 1,024.5 (in quotes between commas), 1.5x or 83%, and with decimal
commas between semicolons or tabs. Tables that belong together, as epochs and the events between them, are named together.

  distmon audit speed.csv
  distmon audit epochs.csv events.csv

Exit code 0 if nothing contradicts itself, 3 if something does, 1 if a table cannot be read or
nothing follows from it.
"""


class Said(Struct):
    kind: str
    where: str
    text: str


class Audited(Struct):
    file: str
    findings: list[Said]
    derived: list[dict[str, str]]
    left_out: list[str]


class Report(Struct):
    format: int
    tables: list[Audited]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("table", type=Path, nargs="+", metavar="TABLE.csv", help="a table as it was published")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    found = audit([_read(path) for path in arguments.table])
    if arguments.json:
        write_json(Report(FORMAT, [_as_json(one) for one in found]))
    else:
        render = to_markdown if arguments.markdown else as_text
        write_text(render([section for one in found for section in _sections(one)]))
    if any(finding.kind == "contradicts" for one in found for finding in one.findings):
        return CONTRADICTED
    return 0 if all(_is_understood(one) for one in found) else 1


def _is_understood(one: Audit) -> bool:
    return bool(one.known and (one.findings or one.derived))


def _read(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise DistmonError(told(error)) from None
    if len(data) > _LARGEST:
        raise DistmonError(f"{path} is larger than {_LARGEST >> 20} MiB: no table that people publish")
    return parse_table(data.decode("utf-8", "replace"), str(path))


def _as_json(one: Audit) -> Audited:
    return Audited(
        file=one.name,
        findings=[Said(f.kind, clean(f.where), clean(f.text)) for f in one.findings],
        derived=[dict(zip(DERIVED, map(clean, row), strict=True)) for row in one.derived],
        left_out=list(map(clean, one.left_out)),
    )


def _sections(one: Audit) -> list[Section]:
    """Contradictions first; what agrees is counted."""
    kinds = {"contradicts": "Contradicts itself", "caution": "To be read with care", "derived": "Follows from it"}
    sections = [Section(clean(Path(one.name).name), lines=[_verdict(one), *_left_out(one)])]
    for kind, title in kinds.items():
        lines = [f"{clean(f.where)}: {clean(f.text)}" for f in one.findings if f.kind == kind]
        if lines:
            sections.append(Section(title, lines=lines))
    if one.derived:
        header = [name.replace("_percent", ", %") for name in DERIVED]
        sections.append(Section("Derived", table=Grid(header, [[clean(cell) for cell in row] for row in one.derived])))
    return sections


def _left_out(one: Audit) -> list[str]:
    """Of a table of which nothing is understood that is told already."""
    told = ", ".join(map(clean, one.left_out))
    return [f"not understood, and left out: {told}"] if told and _is_understood(one) else []


def _verdict(one: Audit) -> str:
    contradict, agree = (sum(f.checked for f in one.findings if f.kind == kind) for kind in ("contradicts", "agrees"))
    if not _is_understood(one):
        known = f"nothing follows from {', '.join(map(clean, one.known))} alone" if one.known else "no column here is understood"
        return f"{known}: see distmon audit --help for names"
    found = count(contradict, "contradiction") if contradict else "no contradiction"
    checked = count(contradict + agree, "printed number or sum", "printed numbers and sums")
    return f"{found} in {checked} that could be checked" if contradict + agree else "nothing is printed that could be checked"
