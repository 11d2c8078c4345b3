"""How fast a recording becomes a report: read, fold and summarise, beside decoding the same lines alone."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from figures import figure

from distmon.core.codec import decode_json
from distmon.core.held import FindingsHeld
from distmon.core.synthetic import Script, session
from distmon.replay.lines import read_lines
from distmon.replay.recorder import Recorder
from distmon.replay.report.render import to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state

ROUNDS = 5
SCRIPT = Script(ranks=16, nodes=4, seconds=300, gpus_per_node=2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.jsonl"
        with Recorder(path) as recorder:
            for event in session(SCRIPT):
                recorder.write(event)
        megabytes = path.stat().st_size / 1e6
        report_s, decode_s = alternating(lambda: report(path), lambda: decode(path))
    figure(
        "report_mb_per_cpu_s",
        megabytes / report_s,
        "MB/s",
        f"{megabytes:.1f} MB of {SCRIPT.ranks} ranks on {SCRIPT.nodes} nodes, plain JSON lines; median CPU time of {ROUNDS} runs",
        peer="reading and decoding the same lines, without fold or report",
        peer_value=megabytes / decode_s,
    )


def report(path: Path) -> None:
    held = FindingsHeld()
    state, notes = load_state(path, lambda state, _: held.look(state))
    to_text(sections(summarise(state, str(path), notes.sentences(), held=held)))


def decode(path: Path) -> None:
    for line in read_lines(path):
        decode_json(line.data or b"")


def alternating(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float]:
    """Median CPU seconds of each, run in turn."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for action, times in zip((first, second), spent, strict=True):
            begun = time.process_time()
            action()
            times.append(time.process_time() - begun)
    return statistics.median(spent[0]), statistics.median(spent[1])


if __name__ == "__main__":
    main()
