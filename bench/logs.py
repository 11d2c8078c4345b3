"""Output of very long jobs: what it costs to record, open and filter it, and to look for a line that only the disk still has.

DISTMON_BENCH_LOGS_MB (default 2000) is the size of the recording, at 5,000 lines a second; 1 GB takes a minute to make.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from figures import figure

from distmon.core.events import AnyEvent, JobStarted, OutputWritten, SessionEnded, SessionStarted, Ticked
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.screens.logs import KEPT_LINES
from distmon.tui.view.filters import literal_words
from distmon.tui.view.logs import OUTPUT_FIELDS, Feed, full_output_line

LINES_PER_S, RANKS = 5_000, 8
SEEKS, PAGE_LINES = 20, 50
NEEDLE = "CUDA error: an illegal memory access"
START = 1_700_000_000.0


def main() -> None:
    megabytes = int(os.environ.get("DISTMON_BENCH_LOGS_MB", "2000"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.jsonl"
        # In a process of its own, so that the peak of this one's memory is that of a viewer.
        with ProcessPoolExecutor(1, get_context("spawn")) as recording:
            seconds, lines, cpu, grown = recording.submit(record, path, megabytes).result()
        what = f"{megabytes:,} MB of output: {lines:,} lines in {seconds / 3600:.1f} h"
        how = f"{what}; recording, fold and the log's feed, at {LINES_PER_S:,} lines/s"
        figure("logs_record_core_percent", 100 * cpu / seconds, "%", how)
        figure("logs_growth_mb", grown, "MB", f"{what}; of the peak of memory from a tenth of it to its end")
        begun = time.process_time()
        player = Player(open_session(path), beside=False)
        for _ in player.poll():
            pass
        figure("logs_open_s", time.process_time() - begun, "s", f"{what}; CPU time until its first events can be shown")
        view(player, what)
        for name, text in (("word", "illegal memory"), ("regex", "/illegal .* access/")):
            begun = time.process_time()
            found = look(player, text, START + seconds)
            spent = time.process_time() - begun
            assert found, text
            rate = megabytes / spent
            figure(f"logs_search_{name}_mb_per_cpu_s", rate, "MB/s", f"{what}; from the end back to a line in its first second")
        player.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        figure("logs_view_peak_mb", peak, "MB", f"{what}; peak of memory of opening, moving, filtering and searching")


def view(player: Player, what: str) -> None:
    """A page of the log at moments all over the recording, and a filter that is typed there."""
    dice, seeks, filters = random.Random(1), list[float](), list[float]()
    for _ in range(SEEKS):
        begun = time.process_time()
        player.seek(dice.uniform(0, player.duration_s))
        state = player.take_state()
        assert state is not None
        feed = Feed(partial(full_output_line, str), KEPT_LINES, collapse=True)
        page = feed.update(state.output)
        assert [page[number] for number in range(len(page) - PAGE_LINES, len(page))]
        seeks.append(time.process_time() - begun)
        begun = time.process_time()
        feed.set_filter(None, f"{state.now:.0f}"[-2:])
        feed.update(state.output)
        filters.append(time.process_time() - begun)
    how = f"{what}; median CPU time of {SEEKS} random seeks, with a page of {PAGE_LINES} lines; worst {max(seeks) * 1e3:.0f} ms"
    figure("logs_page_ms", statistics.median(seeks) * 1e3, "ms", how)
    how = f"{what}; median CPU time of a filter over the lines that are held"
    figure("logs_filter_ms", statistics.median(filters) * 1e3, "ms", how)


def second(number: int) -> Iterator[AnyEvent]:
    each = LINES_PER_S // RANKS
    for rank in range(RANKS):
        head = f"[{number:>6} rank {rank}] batch"
        lines = [f"{head} {i} of {each}: loss {(number * 7 + i) % 997 / 997:.4f}, 32 samples" for i in range(each)]
        if number == 0 and rank == 3:
            lines[5] = NEEDLE
        at, host = START + number + rank / 10, f"node-{rank // 2}"
        yield OutputWritten(at=at, rank=rank, host=host, local_rank=rank % 2, output="stdout", lines=lines)
    yield Ticked(at=START + number + 0.9)


def record(path: Path, megabytes: int) -> tuple[int, int, float, float]:
    """(seconds, lines, CPU seconds, growth of the peak in MB)."""
    state, feed, number, early = SessionState(), Feed(partial(full_output_line, str), KEPT_LINES, collapse=True), 0, 0
    begun, size = time.process_time(), megabytes * 1_000_000
    with Recorder(path) as recorder:
        first: list[AnyEvent] = [
            SessionStarted(at=START, session_id="logs", distmon_version="0"),
            JobStarted(at=START, job="job", command=["python", "train.py"], np=RANKS),
        ]
        while not path.exists() or path.stat().st_size < size:
            for event in [*first, *second(number)]:
                recorder.write(event)
                apply(state, event)
            first = []
            feed.update(state.output)
            number += 1
            if not early and path.stat().st_size > size / 10:
                early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        recorder.write(SessionEnded(at=START + number))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early
    return number, state.output_lines, time.process_time() - begun, grown / 1e3


def look(player: Player, text: str, at: float) -> bool:
    matcher = Feed(partial(full_output_line, str), 1)
    matcher.set_filter(None, text)
    return player.output_search(matcher.passes, literal_words(text, OUTPUT_FIELDS)).earlier(at) is not None


if __name__ == "__main__":
    main()
