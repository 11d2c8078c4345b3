"""Which hosts answer: a network that is cut, or a host that is gone without a word, ends no connection for many minutes."""

import threading
import time
from typing import Callable, Dict, NamedTuple, Optional

SILENT_S = 9.0
"""As long as distmon gives an agent before it calls its node lost."""


class _Host(NamedTuple):
    heard_at: float
    """CLOCK_MONOTONIC in seconds, as all times here."""
    told: bool
    """That it is silent."""


class Liveness:
    """Thread-safe: the workers of one host are looked after by a thread each, and any of them may hear of it.

    `tell(host, "silent" | "back", seconds of silence)` is called once per change.
    """

    def __init__(self, limit_s: float, tell: Callable[[str, str, float], None]) -> None:
        """`limit_s` of silence is the end of a host; 0: never."""
        self.limit_s = limit_s
        self._tell = tell
        self._hosts: Dict[str, _Host] = {}
        self._lock = threading.Lock()

    def heard(self, host: str, at: float) -> None:
        """Something came from it at `at`."""
        with self._lock:
            known = self._hosts.get(host)
            if known is not None and at <= known.heard_at:
                return
            self._hosts[host] = _Host(at, False)
            silence = at - known.heard_at if known is not None and known.told else None
        if silence is not None:
            self._tell(host, "back", silence)

    def look(self, host: str) -> None:
        """Tell of a silence that has become too long."""
        with self._lock:
            known = self._hosts[host]
            silence = time.monotonic() - known.heard_at
            if known.told or silence < SILENT_S:
                return
            self._hosts[host] = known._replace(told=True)
        self._tell(host, "silent", silence)

    def silent_since(self, host: str) -> Optional[float]:
        """When it was last heard, where it counts as silent now."""
        with self._lock:
            known = self._hosts.get(host)
            return known.heard_at if known is not None and known.told else None

    def lost(self, host: str) -> bool:
        """Whether it has been silent for so long that it is given up."""
        with self._lock:
            known = self._hosts.get(host)
            return known is not None and bool(self.limit_s) and time.monotonic() - known.heard_at > self.limit_s

    def expect(self, host: str) -> None:
        """A new connection to it begins, whatever was before."""
        with self._lock:
            self._hosts[host] = _Host(time.monotonic(), False)
