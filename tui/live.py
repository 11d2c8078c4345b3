"""A session under way: agents' and launcher's events in one order, recorded as they come, for whoever draws them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from distmon.core.events import AnyEvent, NodeJoined, NodeLeft, NoticeGiven, SessionEnded, SessionStarted, Ticked
from distmon.tui.lateness import Lateness
from distmon.wire.clock import SteadyClock
from distmon.wire.subscription import LinkStatus, Subscription

TICK_S = 1.0
POLL_S = 0.1
MAX_WAITING = 500_000
"""Events that a screen that stands still may have waiting; it then skips the oldest, and says so. The recording has them all."""
_TELL_REFUSALS_EVERY_S = 60.0


class Sink(Protocol):
    """Where every event goes first: the recorder."""

    def write(self, event: AnyEvent) -> None: ...

    def flush(self) -> None: ...

    def sync(self) -> None:
        """Waits until what was flushed is on the disk. Called in a thread of its own."""
        ...

    def close(self) -> None: ...

    @property
    def failed(self) -> str:
        """Why it takes no more events, in one line; empty while it does."""
        ...


class _Syncer:
    """Brings the recording to the disk in a thread of its own, since a disk can take long: only then may agents hear of it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._asked: dict[str, int] | None = None
        self._stored: dict[str, int] = {}
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._run, name="distmon-syncer", daemon=True).start()

    def ask(self, position: dict[str, int]) -> None:
        """All before `position` is flushed."""
        if position != self._asked:
            self._asked = position
            self._wake.release()

    @property
    def stored(self) -> dict[str, int]:
        """The position before which all is on the disk."""
        return self._stored

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            asked = self._asked
            self._sink.sync()
            if self._sink.failed:
                return
            self._stored = asked or {}


class LiveSession:
    """Collects in a thread of its own, so that no slow screen delays the recording; the order recorded is the order shown."""

    def __init__(
        self,
        started: SessionStarted | None,
        subscription: Subscription,
        launcher_events: Callable[[], list[AnyEvent]],
        clock: SteadyClock,
        sink: Sink | None = None,
        watcher: Callable[[AnyEvent], None] | None = None,
    ) -> None:
        """`started` is None where a recording goes on; `watcher` gets every event, in the collecting thread."""
        self._watcher = watcher
        self._new_agents: deque[tuple[str, str]] = deque()
        self._old_agents: deque[str] = deque()
        self._focus = ""
        self._lateness = Lateness()
        self._hosts: dict[str, str] = {}
        self.unheard: frozenset[str] = frozenset()
        """Addresses of agents from which nothing has come yet."""
        self._subscription = subscription
        self._launcher_events = launcher_events
        self._clock = clock
        self._sink = sink
        self._syncer = _Syncer(sink) if sink is not None else None
        self._told_stored: dict[str, int] = {}
        self._flush_soon = False
        """An agent says goodbye, and waits until all of it is on the disk."""
        self._waiting: deque[AnyEvent] = deque(maxlen=MAX_WAITING)
        self._skipped = 0
        """Events that no screen has had or will have."""
        self._refused = 0
        """Of what agents sent, as told last; and when it may be told again."""
        self._tell_refusals_after = 0.0
        self._ending = threading.Event()
        self._agents: set[str] = set()
        self._gone: set[str] = set()
        self._quiet = threading.Event()
        self._joined = threading.Semaphore(0)
        self._failure: Exception | None = None
        self._sink_failed = ""
        self._take([started] if started is not None else [])
        self._thread = threading.Thread(target=self._collect, name="distmon-collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poll(self) -> Iterator[AnyEvent]:
        """What has happened since the last call; never blocks."""
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            text = f"the screen stood still for too long and skipped {skipped:,} events; the recording has them"
            yield NoticeGiven(at=self._clock.now(), severity="warning", text=text, source="viewer")
        while self._waiting:
            yield self._waiting.popleft()

    def follow(self, address: str, agent_key: str, instead_of: str = "") -> None:
        """Follows one more agent, known by its public key; in place of the one at another address, which is gone."""
        if instead_of:
            self._old_agents.append(instead_of)
        self._new_agents.append((address, agent_key))

    def focus(self, node: str) -> None:
        """Where sums of steps were asked for, each step of this node comes all the same."""
        self._focus = node

    def wait_for_agents(self, timeout_s: float) -> bool:
        """Waits until every agent that was heard has said goodbye; False when one is silent for longer."""
        return self._quiet.wait(timeout_s)

    def forget_joins(self) -> None:
        """What joined so far does not count for `wait_for_join`."""
        while self._joined.acquire(blocking=False):
            pass

    def wait_for_join(self, timeout_s: float) -> bool:
        """Waits until an agent has joined; False when none does in time."""
        return self._joined.acquire(timeout=timeout_s)

    def close(self) -> None:
        """Takes what is still there, ends the recording in good order and stops collecting."""
        self._ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _collect(self) -> None:
        next_tick = self._clock.now()
        try:
            while not self._ending.is_set():
                self._change_agents()
                self._subscription.focus(self._focus)
                self._take(self._launcher_events())
                self._take(self._subscription.poll(POLL_S))
                now = self._clock.now()
                if now >= next_tick:
                    self._take([Ticked(at=now), *self._late(now)])
                    next_tick = max(next_tick + TICK_S, now)
                    self._flush_soon = True
                    links = self._subscription.status()
                    self.unheard = frozenset(link.address for link in links if link.heard is None)
                    self._tell_refusals(links, now)
                self._flush(now)
            self._take(self._launcher_events())
            self._take(self._subscription.poll(0))
            self._take([SessionEnded(at=self._clock.now())])
        except Exception as error:
            # Shown at once, and raised by whoever closes the session: a lost recording is never silent.
            self._failure = error
            text = f"the session is no longer recorded: {error}"
            self._waiting.append(NoticeGiven(at=self._clock.now(), severity="error", text=text))
        finally:
            self._subscription.close()
            if self._sink is not None:
                self._sink.close()

    def _late(self, now: float) -> list[AnyEvent]:
        lags = {self._hosts.get(node, node): lag for node, lag in self._subscription.lags().items()}
        text = self._lateness.look(now, lags)
        return [NoticeGiven(at=now, severity="warning", text=text)] if text else []

    def _tell_refusals(self, links: Sequence[LinkStatus], now: float) -> None:
        """What agents sent and nothing here understood, at most once a minute: a rogue one could send thousands a second."""
        bad = [link for link in links if link.bad_frames]
        if not bad or now < self._tell_refusals_after:
            return
        reasons: Counter[str] = Counter()
        for link in bad:
            reasons.update(link.bad_frames)
        if reasons.total() == self._refused:
            return
        self._refused, self._tell_refusals_after = reasons.total(), now + _TELL_REFUSALS_EVERY_S
        words = ", ".join(f"{count} for {reason}" for reason, count in sorted(reasons.items()))
        who = f"{bad[0].node or bad[0].address}{f' and {len(bad) - 1} more' if len(bad) > 1 else ''}"
        text = f"messages and events of {who} refused so far: {reasons.total()} ({words}); the last: {bad[0].last_refusal}"
        self._take([NoticeGiven(at=now, severity="warning", text=text, source="viewer")])

    def _change_agents(self) -> None:
        while self._old_agents:
            self._subscription.remove(self._old_agents.popleft())
        while self._new_agents:
            self._subscription.add(*self._new_agents.popleft())

    def _flush(self, now: float) -> None:
        """On disk each second, and then agents are told; a recording that fails says so on the screen, once."""
        if self._sink is None or self._syncer is None:
            return
        if self._flush_soon:
            self._flush_soon = False
            self._sink.flush()
            if not self._sink.failed:
                self._syncer.ask(self._subscription.position())
        if self._sink.failed and not self._sink_failed:
            self._sink_failed = self._sink.failed
            self._waiting.append(NoticeGiven(at=now, severity="error", text=self._sink_failed))
        if (stored := self._syncer.stored) is not self._told_stored:
            self._told_stored = stored
            self._subscription.stored(stored, tell_now=bool(self._gone))

    def _take(self, events: list[AnyEvent]) -> None:
        for event in events:
            if self._sink is not None:
                self._sink.write(event)
            if self._watcher is not None:
                self._watcher(event)
            self._skipped += len(self._waiting) == MAX_WAITING
            self._waiting.append(event)
            node = getattr(event, "node", "")
            if node:
                self._agents.add(node)
            if isinstance(event, NodeJoined):
                self._gone.discard(event.node)
                self._hosts[event.node] = event.host
                self._joined.release()
            elif isinstance(event, NodeLeft):
                self._gone.add(event.node)
                self._flush_soon = True
        if self._agents and self._agents == self._gone:
            self._quiet.set()
