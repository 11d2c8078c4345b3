"""A thousand agents that fall silent and come back, and the screen meanwhile: `python -m tests.faults.returning`.

Their processes are stopped for a while, as by a machine that is suspended, and go on. Measured in the viewer's process: when the
last one is heard again, and the longest time in which the screen's loop did not turn, as a key would have found it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from distmon.core.events import SessionStarted
from distmon.tui.app import DistmonApp
from distmon.tui.live import LiveSession
from distmon.wire.clock import SteadyClock
from distmon.wire.keys import ViewerKeys, make_pair
from distmon.wire.subscription import LinkStatus, Subscription

FEEDERS = 4
_FEED = Path(__file__).parents[2] / "bench" / "wire.py"
_TURN_S = 0.01
_SETTLE_S = 8.0
_LIMIT_S = 120.0


class Stall(NamedTuple):
    """Times in which the screen's loop did not turn, in milliseconds."""

    p50: float
    p99: float
    longest: float


class Return(NamedTuple):
    agents: int
    stopped_s: float
    before: Stall
    during: Stall
    """From the stop until ten seconds after the last one was heard again."""
    heard_again_s: float
    """After they went on, until the last one was heard."""
    refused: int


class _Watched(Subscription):
    """One that tells how it fares to another thread."""

    links: list[LinkStatus]

    def poll(self, timeout_s: float) -> list[object]:  # type: ignore[override]
        found = super().poll(timeout_s)
        self.links = self.status()
        return list(found)


class _Loop:
    """How late the loop of asyncio turns."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def watch(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_TURN_S)
            self.late_ms.append((time.perf_counter() - begun - _TURN_S) * 1e3)

    def taken(self) -> Stall:
        ordered, self.late_ms = sorted(self.late_ms), []
        return Stall(*(round(ordered[min(int(q * len(ordered)), len(ordered) - 1)], 1) for q in (0.5, 0.99, 1.0)))


async def come_back(folder: Path, agents: int, stopped_s: float) -> Return:
    """Agents' publishing code in some processes, and the screen over them."""
    agent, own = make_pair(), make_pair()
    share = agents // FEEDERS
    with contextlib.ExitStack() as stack:
        feeders = []
        for first in range(0, share * FEEDERS, share):
            # They would run on other machines: what this one has left is theirs.
            words = [str(_FEED), str(folder), str(first), str(share), agent.secret, own.public]
            feeders.append(stack.enter_context(subprocess.Popen(["nice", "-n", "19", sys.executable, *words])))
            stack.callback(feeders[-1].kill)
        while len(found := sorted(folder.glob("*.addresses"))) < FEEDERS:
            assert all(process.poll() is None for process in feeders), "an agents' process died"
            await asyncio.sleep(0.1)
        addresses = [address for path in found for address in path.read_text().split()]
        subscription = _Watched(addresses, keys=ViewerKeys(own, dict.fromkeys(addresses, agent.public)))
        clock = SteadyClock()
        started = SessionStarted(at=clock.now(), session_id="returning", distmon_version=version("distmon"))
        session = LiveSession(started, subscription, list, clock)
        session.start()
        stack.callback(session.close)
        app = DistmonApp(session)
        loop = _Loop()
        async with app.run_test(size=(120, 40)):
            watching = asyncio.create_task(loop.watch())
            await _heard_since(subscription, 0.0)
            await asyncio.sleep(_SETTLE_S)
            loop.taken()
            await asyncio.sleep(_SETTLE_S)
            before = loop.taken()
            _signal(feeders, signal.SIGSTOP)
            await asyncio.sleep(stopped_s)
            _signal(feeders, signal.SIGCONT)
            begun = time.monotonic()
            heard_again_s = await _heard_since(subscription, begun) - begun
            await asyncio.sleep(10.0)
            during = loop.taken()
            watching.cancel()
        refused = sum(sum(link.bad_frames.values()) for link in subscription.links)
        return Return(len(addresses), stopped_s, before, during, round(heard_again_s, 1), refused)


async def _heard_since(subscription: _Watched, since: float) -> float:
    """Waits until every agent was heard after a time; gives when the last one was."""
    limit = time.monotonic() + _LIMIT_S
    while True:
        await asyncio.sleep(0.1)
        heard = [link.heard or 0.0 for link in getattr(subscription, "links", [])]
        if heard and min(heard) > since:
            return time.monotonic()
        assert time.monotonic() < limit, f"{sum(at <= since for at in heard)} agents are not heard"


def _signal(processes: list[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--stopped", type=float, default=14.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(come_back(Path(folder), arguments.agents, arguments.stopped))
    sys.stdout.write(json.dumps(found._asdict()) + "\n")


if __name__ == "__main__":
    main()
