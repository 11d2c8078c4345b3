"""Opening a large recording and moving in it. DISTMON_BENCH_SESSION_MB (default 1000) is its size; 1 GB takes minutes to make."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from figures import figure

from distmon.core.events import SessionEnded
from distmon.core.synthetic import Script, session
from distmon.replay.build_index import build_index
from distmon.replay.index import index_path
from distmon.replay.open_index import open_index
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session

SCRIPT = Script(ranks=16, nodes=4, seconds=1_000_000, gpus_per_node=2)
OPENINGS = 7
SEEKS = 60
REBUILT_MB = 20


def main() -> None:
    megabytes = int(os.environ.get("DISTMON_BENCH_SESSION_MB", "1000"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.jsonl"
        hours = record(path, megabytes) / 3600
        what = f"{megabytes} MB: {hours:.1f} h of {SCRIPT.ranks} ranks on {SCRIPT.nodes} nodes"
        share = index_path(path).stat().st_size / path.stat().st_size
        opening = [open_once(path) for _ in range(OPENINGS)]
        index = f"index made while recording, {share:.0%} of the recording's size"
        figure("session_open_s_1gb", statistics.median(opening), "s", f"{what}; {index}; median CPU time of {OPENINGS} openings")
        seeks = sorted(seek_times(path))
        how = f"{what}; median CPU time of {SEEKS} random seeks; p95 {seeks[int(0.95 * SEEKS)] * 1e3:.0f} ms"
        figure("session_seek_ms_1gb", statistics.median(seeks) * 1e3, "ms", how)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.jsonl"
        record(path, REBUILT_MB)
        begun = time.process_time()
        build_index(open_session(path)).close()
        rate = path.stat().st_size / 1e6 / (time.process_time() - begun)
        figure("session_index_mb_per_cpu_s", rate, "MB/s", f"making a missing index, once, of {REBUILT_MB} MB of the same job")


def record(path: Path, megabytes: int) -> float:
    """Records a synthetic job until the file has its size; returns the seconds that it lasted."""
    size, start, at = megabytes * 1_000_000, SCRIPT.start, SCRIPT.start
    with Recorder(path) as recorder:
        for count, event in enumerate(session(SCRIPT)):
            recorder.write(event)
            at = event.at
            if count % 5_000 == 0 and path.stat().st_size >= size:
                break
        recorder.write(SessionEnded(at=at))
    return at - start


def open_once(path: Path) -> float:
    """CPU seconds until the first events can be shown."""
    begun = time.process_time()
    player = Player(open_session(path))
    for _ in player.poll():
        pass
    spent = time.process_time() - begun
    player.close()
    return spent


def seek_times(path: Path) -> list[float]:
    """CPU seconds of each seek, the state included."""
    opened, source, spent = open_session(path), random.Random(1), []
    player = Player(opened, index=open_index(opened), beside=False)
    for _ in range(SEEKS):
        target = source.uniform(0, player.duration_s)
        begun = time.process_time()
        player.seek(target)
        player.take_state()
        spent.append(time.process_time() - begun)
    player.close()
    return spent


if __name__ == "__main__":
    main()
