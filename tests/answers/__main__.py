"""`make answers`: twelve scripted jobs, and what the landing screen says of them, as docs/answers.md."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.answers.streams import FAULTS, HEALTHY
from tests.answers.watch import LIMIT_S, SIZES, Answer, healthy_alarms, watch

PAGE = Path(__file__).parents[2] / "docs" / "answers.md"
HOUR_S = 3_600
HEAD = """# What the landing screen says of a fault

`make answers` writes this page. Twelve scripted jobs (`tests/answers/streams.py`) of 8 ranks on 4 hosts, as uneven as real ones
are, go through the whole app, live and second by second: the fold, the verdicts, the screen. What counts is read from the cells
of the screen, in the one line under the header, at {sizes}; then the recording of the same job is opened at that moment, where it
must say it too. A fault is answered when the line names rank or host and cause within {limit} s of its onset, and there was no
alarm before.

| fault | what happens | onset | seen at | after | the line at {first} |
| --- | --- | ---: | ---: | ---: | --- |
"""


def row(answer: Answer) -> str:
    """Of the table."""
    fault = answer.fault
    seen = "–" if answer.seen_s is None else f"{fault.onset_s + answer.seen_s:.0f} s"
    after = "–" if answer.seen_s is None else f"{answer.seen_s} s"
    wrong = "".join(f"; **{text}**" for text in [*answer.missing, *answer.early])
    return f"| {fault.name} | {fault.happens} | {fault.onset_s:.0f} s | {seen} | {after} | `{answer.words or '–'}`{wrong} |"


async def answers(seed: int) -> list[Answer]:
    """Of every fault."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            found.append(await watch(fault, Path(folder) / f"{fault.name}.jsonl", seed))
            sys.stderr.write(row(found[-1]) + "\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the noise; the page is of seed 0")
    seed = parser.parse_args().seed
    found = asyncio.run(answers(seed))
    alarms = list(healthy_alarms(HOUR_S, seed))
    said = f"`{'`, `'.join(alarms)}`" if alarms else "nothing"
    right = sum(answer.right for answer in found) + (not alarms)
    names = [f"{width}x{height}" for width, height in SIZES]
    lines = [
        *(row(answer) for answer in found),
        f"| {HEALTHY.name} | {HEALTHY.happens} | – | – | – | {said} |",
        "",
        f"{right} of {len(found) + 1} are answered as they should be. The healthy hour is {HOUR_S:,} ticks of a second; its",
        "line, drawn by the screen's own function, and its event log are read at every one.",
    ]
    text = HEAD.format(sizes=" and ".join(names), limit=LIMIT_S, first=names[0]) + "\n".join(lines) + "\n"
    if seed == 0:
        PAGE.write_text(text, encoding="utf-8")
    print(text.partition("\n\n")[2].partition("\n\n")[2])  # noqa: T201
    return 0 if right >= len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
