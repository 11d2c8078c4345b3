"""A job that this process launched, together with its agent and its recording."""

from __future__ import annotations

import secrets
import signal
import threading
from collections import deque
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import ActionTaken, AnyEvent, MembershipChanged, NoticeGiven, SessionStarted
from distmon.launcher.actions import AnyAction, RestartJob, SignalRank, StopJob, signal_number
from distmon.launcher.agents import LocalAgent
from distmon.launcher.check import told_of_host
from distmon.launcher.control import ControlSocket
from distmon.launcher.cycle import Cycle
from distmon.launcher.facts import is_local
from distmon.launcher.host_file import FILE_NAME, change_hosts, read_hosts
from distmon.launcher.hosts import Host
from distmon.launcher.living import LivingRanks
from distmon.launcher.plan import Plan
from distmon.launcher.prepare import HostPreparation
from distmon.launcher.remote_agents import RemoteAgents
from distmon.launcher.reports import Finding
from distmon.launcher.runner import Runner
from distmon.launcher.unmeasured import GRACE_S, LOADING_GRACE_S, RankWatch
from distmon.replay.recorder import Recorder
from distmon.tui.live import LiveSession
from distmon.wire.clock import SteadyClock
from distmon.wire.keys import ViewerKeys
from distmon.wire.subscription import Subscription

AGENT_GOODBYE_S = 3.0
AGENT_CHECK_S = 0.5
MAX_AGENT_STARTS = 5


class LaunchedJob:
    """Runs a plan. When the job ends, the agents pass on what the ranks recorded last, and the recording is closed."""

    def __init__(
        self,
        plan: Plan,
        job_folder: Path,
        recording: Path,
        session_id: str,
        *,
        check: bool = True,
        agent: str = "",
        cycle: Cycle | None = None,
        summaries: bool = False,
        debug: bool = False,
    ) -> None:
        """Other hosts are checked first, unless `check` is false; `agent` is where distmon-agent is there, if the user says so.
        `cycle` lets hosts come and go; with `summaries` nodes send sums of steps.

        Raises DistmonError when the recording cannot be made or the agent of this machine does not start.
        """
        self.recording = recording
        self.restarting = False
        """Whether the same command is to run again once this job has ended."""
        self._plan = plan
        self._hosts_file = job_folder / FILE_NAME
        self._cycle = cycle
        clock = self._clock = SteadyClock()
        started = SessionStarted(at=clock.now(), session_id=session_id, distmon_version=version("distmon"))
        self._recorder = Recorder(recording)
        self._agent = LocalAgent(job_folder)
        self._agent.start()
        self._notices: deque[AnyEvent] = deque()
        self._addresses: dict[str, str] = {}
        self._agents = RemoteAgents(plan, agent, self._on_agent, self._on_agent_trouble)
        self._preparation = HostPreparation(plan, self._agents, check=check, agent=agent) if plan.others else None
        self._runner = Runner(plan, self._preparation, debug=debug)
        self._ranks = RankWatch(self._why_silent, GRACE_S if plan.backend == "horovod" else LOADING_GRACE_S)
        self._living = LivingRanks()
        self._ranks_lock = threading.Lock()
        keys = ViewerKeys(self._agents.viewer, {})
        subscription = Subscription([self._agent.address], since_start=True, keys=keys, summed=summaries)
        self._session = LiveSession(started, subscription, self._launcher_events, clock, self._recorder, self._observe)
        self._control: ControlSocket | None = None
        self._closer = threading.Thread(target=self._close_when_ended, name="distmon-closer", daemon=True)

    def start(self) -> None:
        """Starts the job. Raises DistmonError when its Python cannot be run."""
        self._session.start()
        try:
            self._control = ControlSocket(self._hosts_file.parent, self.act)
            self._runner.start()
        except BaseException:
            self._close_control()
            self._agent.stop()
            self._session.close()
            raise
        self._closer.start()

    def poll(self) -> Iterator[AnyEvent]:
        """What has happened since the last call."""
        return self._session.poll()

    def focus(self, node: str) -> None:
        """Of this node each step is asked for, also where the others send sums."""
        self._session.focus(node)

    def stop(self, signum: int = signal.SIGINT) -> None:
        """Ends the job: politely the first time, at once the second; returns at once. It does not start again then."""
        self.restarting = False
        self._tell(StopJob(firm=self.stopping))
        self._runner.stop(signum)

    def act(self, action: AnyAction) -> str:
        """Does it, has it recorded, and says what happens now. Raises DistmonError or UsageError where it cannot be done."""
        if not self._runner.running:
            raise DistmonError("the job has ended")
        match action:
            case StopJob(firm=firm):
                return self._told_to_stop(firm)
            case RestartJob():
                if self.stopping:
                    raise DistmonError("the job is ending already")
                self.restarting = True
                self._tell(action)
                self._runner.stop(signal.SIGTERM)
                return "the job is ending, and starts again then"
            case SignalRank(rank=rank, signal=name):
                with self._ranks_lock:
                    self._living.expect(rank)
                self._runner.signal(rank, signal_number(name))
                self._tell(action)
                return f"{name} is on its way to rank {rank}"
        if self.hosts is None:
            raise UsageError("the hosts of this job do not change: --min-np lets them, without a discovery script of its own")
        with self._ranks_lock:
            said = change_hosts(self._hosts_file, action, self._living)
        self._tell(action)
        return said

    @property
    def hosts(self) -> dict[str, int] | None:
        """Slots by host of an elastic job whose hosts distmon keeps; None of any other."""
        return read_hosts(self._hosts_file) if self._plan.own_hosts else None

    def told_of_host(self, host: str) -> str:
        """In words whether a host answers; waits for it."""
        return told_of_host(host, self._plan)

    def _told_to_stop(self, firm: bool) -> str:
        if self.stopping and not firm:
            return "the job is ending already; K or distmon stop --now kills every rank at once"
        if firm and not self.stopping:
            self._runner.stop(signal.SIGTERM)  # which is polite, whoever calls it first
        firm = self.stopping
        self.stop(signal.SIGTERM)
        return "every rank is killed now" if firm else "the job is ending: SIGTERM to every rank, SIGKILL after 5 s"

    def _tell(self, action: AnyAction) -> None:
        self._notices.append(ActionTaken(at=self._clock.now(), action=action.NAME, detail=action.detail))

    @property
    def stopping(self) -> bool:
        """Whether it has been told to end."""
        return self._runner.stopping

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
    def recorder(self) -> Recorder:
        """What writes its recording."""
        return self._recorder

    @property
    def recording_failed(self) -> str:
        """Why the recording is not whole, in one line; empty when it is."""
        return self._recorder.failed

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the hosts, once they were checked."""
        return self._preparation.findings if self._preparation is not None else []

    # --- agents of other hosts ---

    def _on_agent(self, host: str, address: str, key: str) -> None:
        before = self._addresses.get(host, "")
        self._addresses[host] = address
        if address != before:
            self._session.follow(address, key, instead_of=before)

    def _on_agent_trouble(self, host: str, text: str) -> None:
        self._notice("warning", f"the agent of {host}: {text}")

    def _why_silent(self, host: str) -> str:
        """Why nothing comes from the agent of a host, as far as is known."""
        trouble = self._agents.trouble(host)
        address = self._addresses.get(host, "")
        if trouble:
            return f"its host has no agent: {trouble}"
        if address and address in self._session.unheard:
            return f"nothing comes from its host's agent at {address}; does a firewall lie between?"
        return ""

    def _observe(self, event: AnyEvent) -> None:
        """In the collecting thread."""
        with self._ranks_lock:
            self._ranks.observe(event)
            self._living.observe(event)
        if isinstance(event, MembershipChanged) and event.change == "host_joined":
            known = any(member.name == event.host for member in self._plan.members)
            if not known and not is_local(event.host):
                self._agents.start([Host(event.host, event.slots)])

    def _tell_unmeasured(self, *, at_end: bool = False) -> None:
        with self._ranks_lock:
            self._notices.extend(self._ranks.unmeasured(self._clock.now(), at_end=at_end))

    # --- the end ---

    def _launcher_events(self) -> list[AnyEvent]:
        notices = [self._notices.popleft() for _ in range(len(self._notices))]
        events = [*notices, *self._runner.poll()]
        if self._cycle is not None and not self._runner.stopping:
            self._cycle.see(events)
            events += self._cycle.turn(self._clock.now())
        return events

    def _close_when_ended(self) -> None:
        starts = 1
        while not self._runner.wait_for_end(AGENT_CHECK_S):
            self._tell_unmeasured()
            if not self._agent.running and starts <= MAX_AGENT_STARTS:
                starts += 1
                self._start_agent_again(f"the agent of this machine died ({self._agent.death})")
        self._close_control()
        self._agents.stop()
        if not self._agent.stop():
            # The ranks' rings outlive the agent: what it did not pass on is still there.
            self._session.forget_joins()
            self._start_agent_again("the agent of this machine did not end in good order")
            self._session.wait_for_join(AGENT_GOODBYE_S)
            self._agent.stop()
        self._session.wait_for_agents(AGENT_GOODBYE_S)
        self._tell_unmeasured(at_end=True)
        self._session.close()

    def _close_control(self) -> None:
        if self._control is not None:
            self._control.close()

    def _start_agent_again(self, why: str) -> None:
        try:
            self._agent.start()
            self._notice("warning", f"{why}; it was started again, and reads what the ranks recorded meanwhile")
        except DistmonError as error:
            self._notice("error", f"{why}, and cannot be started again: {error}")

    def _notice(self, severity: Literal["warning", "error"], text: str) -> None:
        self._notices.append(NoticeGiven(at=self._clock.now(), severity=severity, text=text, source="distmon"))


def new_session_id() -> str:
    return secrets.token_hex(6)
