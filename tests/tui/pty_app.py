"""The app as a process of its own, for the tests in a real terminal: `job` starts with a running job, `error` fails inside, and
`linger` waits for a line once the app has ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.launcher.actions import AnyAction
from distmon.tui.app import DistmonApp
from distmon.tui.terminal import run_app


class Recorded:
    """All of a short session at once; then, if asked, an error."""

    def __init__(self, fail: bool) -> None:
        self._events = iter(list(session(Script(ranks=2, nodes=1, seconds=20)))[:-4])
        self._fail = fail
        self._polls = 0

    def poll(self) -> Iterator[AnyEvent]:
        self._polls += 1
        if self._fail and self._polls == 3:
            raise RuntimeError("planted failure")
        yield from self._events


class RunningJob:
    """Says so when it is told to stop; past Textual, which takes prints for itself."""

    running = True
    stopping = restarting = False
    hosts = None

    def act(self, action: AnyAction) -> str:
        return action.NAME

    def told_of_host(self, host: str) -> str:
        return f"{host} answers"

    def focus(self, node: str) -> None:
        pass

    def stop(self) -> None:
        self.running = False
        os.write(1, b"job stopped")


if __name__ == "__main__":
    app = DistmonApp(Recorded("error" in sys.argv), job=RunningJob() if "job" in sys.argv else None)
    try:
        code = run_app(app)
        if "linger" in sys.argv:
            os.write(1, b"left")
            os.read(0, 1)
        sys.exit(code)
    except DistmonError as error:
        sys.exit(f"distmon: {error}")
