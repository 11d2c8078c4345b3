"""A job that this process launched, together with its agent and its recording."""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from distmon.core.events import AnyEvent, SessionStarted
from distmon.launcher.agents import LocalAgent
from distmon.launcher.plan import Plan
from distmon.launcher.runner import Runner
from distmon.replay.recorder import Recorder
from distmon.tui.live import LiveSession
from distmon.wire.clock import SteadyClock
from distmon.wire.subscription import Subscription

AGENT_GOODBYE_S = 3.0


class LaunchedJob:
    """Runs a plan. When the job ends, the agent passes on what the ranks recorded last, and the recording is closed."""

    def __init__(self, plan: Plan, job_folder: Path, recording: Path, session_id: str, *, debug: bool = False) -> None:
        """Raises DistmonError when the recording cannot be made or the agent does not start."""
        self.recording = recording
        clock = SteadyClock()
        started = SessionStarted(at=clock.now(), session_id=session_id, distmon_version=version("distmon"))
        self._recorder = Recorder(recording)
        self._agent = LocalAgent(job_folder)
        self._agent.start()
        self._runner = Runner(plan, debug=debug)
        subscription = Subscription([self._agent.address], since_start=True)
        self._session = LiveSession(started, subscription, self._launcher_events, clock, self._recorder)
        self._closer = threading.Thread(target=self._close_when_ended, name="distmon-closer", daemon=True)

    def start(self) -> None:
        """Starts the job. Raises DistmonError when its Python cannot be run."""
        self._session.start()
        try:
            self._runner.start()
        except BaseException:
            self._agent.stop()
            self._session.close()
            raise
        self._closer.start()

    def poll(self) -> Iterator[AnyEvent]:
        """What has happened since the last call."""
        return self._session.poll()

    def stop(self, signum: int = signal.SIGINT) -> None:
        """Ends the job: politely the first time, at once the second; returns at once."""
        self._runner.stop(signum)

    @property
    def running(self) -> bool:
        """Until the job has ended and its recording is closed."""
        return self._closer.is_alive()

    def wait(self) -> int:
        """Waits for the end of the job and of its recording, and gives the job's exit code."""
        self._closer.join()
        code = self._runner.exit_code
        assert code is not None
        return code

    @property
    def recording_failed(self) -> str:
        """Why the recording is not whole, in one line; empty when it is."""
        return self._recorder.failed

    def _launcher_events(self) -> list[AnyEvent]:
        return list(self._runner.poll())

    def _close_when_ended(self) -> None:
        self._runner.join()
        self._agent.stop()
        self._session.wait_for_agents(AGENT_GOODBYE_S)
        self._session.close()


def new_session_id() -> str:
    return secrets.token_hex(6)
