"""A day on the screen, as fast as it goes: how much memory the viewer grows. DISTMON_BENCH_HOURS (default 24) is its length."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from figures import figure

from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp, freeze_garbage

SIZE = (200, 50)
FRAME_EVERY_S = 10.0
"""Of session time."""
SCREENS = ("overview", "ranks", "nodes", "scaling", "timeline", "events", "logs", "verdicts")
WARM_SHARE = 0.1
"""Histories are full by then; what is there in memory is what growth counts from."""


class Told:
    """Gives the events up to a moment that is set from outside."""

    def __init__(self, script: Script) -> None:
        self._events: Iterator[AnyEvent] = session(script)
        self._pending = next(self._events, None)
        self.until = 0.0

    def poll(self) -> Iterator[AnyEvent]:
        while self._pending is not None and self._pending.at <= self.until:
            event, self._pending = self._pending, next(self._events, None)
            yield event


async def live_through(hours: float) -> tuple[float, float]:
    """(MB of growth, seconds of CPU): an app without a terminal, all screens in turn, a frame every FRAME_EVERY_S."""
    script = Script(ranks=8, nodes=2, seconds=int(hours * 3600), slow_rank=1, delay_s=0.03, gpus_per_node=2, epochs=10_000)
    source, begun = Told(script), time.process_time()
    app = DistmonApp(source, environment={"COLORTERM": "truecolor", "LANG": "C.UTF-8"})
    warm = 0.0
    async with app.run_test(size=SIZE) as pilot:
        for number in range(int(script.seconds / FRAME_EVERY_S)):
            source.until = script.start + number * FRAME_EVERY_S
            app._behind = True
            while app._behind:
                app.take_events()
                await asyncio.sleep(0)  # what measures in a thread comes back
            app.frame()
            if number % 60 == 0:
                app.cockpit.go(SCREENS[number // 60 % len(SCREENS)])
                await pilot.pause()
            await asyncio.sleep(0)
            if not warm and number > WARM_SHARE * script.seconds / FRAME_EVERY_S:
                freeze_garbage()
                warm = resident_mb()
    gc.collect()
    return resident_mb() - warm, time.process_time() - begun


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    hours = float(os.environ.get("DISTMON_BENCH_HOURS", "24"))
    grown, spent = asyncio.run(live_through(hours))
    how = f"{hours:g} h of 8 ranks on 2 nodes in {spent:.0f} s of CPU, a frame each {FRAME_EVERY_S:.0f} s on all screens in turn"
    figure("tui_growth_mb_24h", grown, "MB", f"{how}; resident memory at the end over that after a tenth of it")


if __name__ == "__main__":
    main()
