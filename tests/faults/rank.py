"""A rank that steps through the probe's own ring and logs each step itself: `python rank.py RINGS LOG RANK STEP_S`.

The log has a line per step that was handed over: its number, and the least and the most that it may have taken, which is the one
duration that was written. It ends on SIGTERM, or on SIGKILL at any moment.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from distmon.probe.ring import UNSEEN, RingWriter, monotonic_ns


def main() -> None:
    """Steps until it is ended."""
    rings, log_path, rank, step_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    going = [True]
    signal.signal(signal.SIGTERM, lambda number, frame: going.clear())
    ring = RingWriter.create(rings, capacity=65536)
    ring.message({"type": "identity", "rank": rank, "size": 2, "local_rank": rank, "local_size": 2, "generation": 0})
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    step = 0
    while going:
        begun = monotonic_ns()
        time.sleep(step_s)
        duration = monotonic_ns() - begun
        ring.step(step, 0, step // 500, begun, duration, UNSEEN, UNSEEN, UNSEEN, UNSEEN, 8, 1)
        os.write(log, b"%d %d %d\n" % (step, duration, duration))
        step += 1
    ring.close()


if __name__ == "__main__":
    main()
