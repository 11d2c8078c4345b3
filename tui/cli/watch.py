"""`distmon` alone: watch this machine, through its agent where one runs, or else one that lives as long as the screen."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Never

from distmon.core.errors import DistmonError
from distmon.core.events import SessionStarted
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.launcher.agents import LocalAgent
from distmon.launcher.rundir import job_directory
from distmon.launcher.settings import load_settings
from distmon.replay.paths import passing_recording
from distmon.replay.recorder import Recorder
from distmon.tui.alerts import PlainAlerts
from distmon.tui.cli.onward import Left, go_on, left
from distmon.tui.format import clock as clock_words
from distmon.tui.job import new_session_id
from distmon.tui.live import TICK_S, LiveSession
from distmon.tui.plain import PlainView
from distmon.tui.terminal import can_show_app, run_app
from distmon.wire.addresses import default_address, is_served
from distmon.wire.clock import SteadyClock
from distmon.wire.subscription import Subscription

HISTORY_S = 600.0
"""An agent's journal may hold days; a screen begins with these."""


Opening = tuple[str, object]
"""A screen to begin with, and its subject."""


def watch(opening: Opening | None = None) -> int:
    """Runs until the user leaves."""
    if opening is not None and not can_show_app():
        raise DistmonError("a form needs a terminal to draw on; `distmon run --headless` takes the same as flags")
    return go_on(_watch(opening))


def _watch(opening: Opening | None) -> Left:
    if is_served(default_address()):
        return _show(default_address(), opening)
    with job_directory() as folder:
        agent = LocalAgent(folder)
        agent.start()
        try:
            return _show(agent.address, opening)
        finally:
            agent.stop()


def _show(address: str, opening: Opening | None) -> Left:
    from distmon.tui.app import DistmonApp
    from distmon.tui.rewind import Rewind

    clock, state = SteadyClock(), SessionState()
    started = SessionStarted(at=clock.now(), session_id=new_session_id(), distmon_version=version("distmon"))
    subscription = Subscription([address], history_s=HISTORY_S, clock=clock.now)
    with passing_recording() as path, Recorder(path) as recorder:
        # As a watcher, not as a sink: an agent must not take for kept what is gone with the screen.
        session = LiveSession(started, subscription, list, clock, watcher=recorder.write)
        session.start()
        rewind = Rewind(session, state, recorder)
        try:
            if not can_show_app():
                return _in_lines(session, state)
            app = DistmonApp(rewind, rewind, state=state, opening=opening)
            return left(app, run_app(app))
        finally:
            session.close()
            rewind.close()


def _in_lines(session: LiveSession, state: SessionState) -> Never:
    """Where there is no terminal to draw on: what happens, line by line, until it is interrupted."""
    view, calls = PlainView(), PlainAlerts(load_settings(Path.cwd()).alerts)
    while True:
        for event in session.poll():
            apply(state, event)
        for line in (*view.lines(state), *calls.lines(state)):
            sys.stdout.write(f"{clock_words(state.now)}  {line}\n")
        sys.stdout.flush()
        time.sleep(TICK_S)
