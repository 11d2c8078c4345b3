"""What the fold costs per event, beside decoding the same events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from figures import figure

from distmon.core.codec import decode_batch, encode_batch
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.measures import current_generation, rank_rows, throughput
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.verdicts import verdicts

ROUNDS = 5


def main() -> None:
    script = Script(ranks=64, nodes=8, seconds=60, gpus_per_node=8)
    events = list(session(script))
    body = encode_batch(events)
    fold_s = cpu(lambda: fold(events))
    decode_s = cpu(lambda: decode_batch(body))
    size = f"{len(events)} events of {script.ranks} ranks on {script.nodes} nodes over {script.seconds} s"
    how = f"{size}; median of {ROUNDS} runs, CPU time"
    figure(
        "fold_events_per_cpu_s",
        len(events) / fold_s,
        "events/s",
        how,
        peer="msgspec decoding of the same events",
        peer_value=len(events) / decode_s,
    )
    state = fold(events)
    steps = sum(r.totals.steps for g in state.generations.values() for r in g.ranks.values())
    figure("fold_us_per_rank_step", fold_s / steps * 1e6, "us", how)
    for name, measure in MEASURES.items():
        ms = cpu(partial(measure, state)) * 1e3
        figure(f"{name}_ms", ms, "ms", f"{script.ranks} ranks; median of {ROUNDS} calls, CPU time")


MEASURES: dict[str, Callable[[SessionState], object]] = {
    "verdicts": verdicts,
    "rank_rows": rank_rows,
    "throughput": lambda state: throughput(current_generation(state)),
}


def fold(events: list[AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def cpu(work: Callable[[], object]) -> float:
    """Median CPU seconds of a call."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
