"""`make faults`: every fault several times; prints the table, and writes it into docs/faults.md."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.requirements import why_not
from tests.faults.matrix import FAULTS, Fault
from tests.faults.scene import Outcome, Scene

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- table: made by make faults -->\n", "<!-- end of table -->\n"
HEAD = """\
| fault | what happens | times | records made | recorded | lost | duplicated | out of order | told as lost | agent's events lost |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def main() -> int:
    """0 when every fault ended as it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--times", type=int, default=3, help="tries of each fault")
    parser.add_argument("--only", metavar="WORD", default="", help="faults whose name holds this")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    if reason := why_not():
        sys.stderr.write(f"{reason}\n")
        return 1
    chosen = [fault for fault in FAULTS if arguments.only in fault.name]
    rows, failed = [], []
    with Cluster() as cluster:
        cluster.up("node", "desk")
        for fault in chosen:
            outcomes = [_try(cluster, fault, arguments.seed + turn) for turn in range(arguments.times)]
            rows.append(_row(fault, outcomes))
            sys.stdout.write(rows[-1])
            sys.stdout.flush()
            failed += [f"{fault.name}: {outcome}" for outcome in outcomes if not _as_it_should(fault, outcome)]
    _write_page(rows)
    if failed:
        sys.stderr.write(f"not as it should be (seed {arguments.seed}):\n" + "".join(f"  {text}\n" for text in failed))
    return 1 if failed else 0


def _write_page(rows: list[str]) -> None:
    """Puts the rows into the table; faults that were not tried keep theirs."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    known = {_name(row): row for row in table.splitlines(keepends=True)[2:]}
    known |= {_name(row): row for row in rows}
    order = [fault.name for fault in FAULTS]
    PAGE.write_text(before + BEGIN + HEAD + "".join(known[name] for name in order if name in known) + END + after)


def _name(row: str) -> str:
    return row.split("|")[1].strip()


def _try(cluster: Cluster, fault: Fault, seed: int) -> Outcome:
    name = f"{fault.name.replace(' ', '-')}-{seed}"
    scene = Scene(cluster, "node", "desk", name, fault.disk_bytes, fault.journal_mb, fault.program)
    scene.begin(recorder=fault.recorder_from_start)
    fault.inject(scene, random.Random(seed))
    return scene.finish()


def _as_it_should(fault: Fault, outcome: Outcome) -> bool:
    if not fault.may_lose:
        return outcome.whole
    told = outcome.told_lost > 0 or outcome.lost == 0
    return told and not (outcome.duplicated or outcome.wrong or outcome.out_of_order or outcome.samples_duplicated)


def _row(fault: Fault, outcomes: list[Outcome]) -> str:
    total = [sum(column) for column in zip(*outcomes, strict=True)]
    sums = Outcome(*total)
    told = f"{sums.told_lost} events" if sums.told_lost else "–"
    what = (fault.inject.__doc__ or "").strip().rstrip(".")
    return (
        f"| {fault.name} | {what} | {len(outcomes)} | {sums.made} | {sums.recorded} | {sums.lost} | {sums.duplicated} "
        f"| {sums.out_of_order} | {told} | {sums.samples_lost} |\n"
    )


if __name__ == "__main__":
    sys.exit(main())
