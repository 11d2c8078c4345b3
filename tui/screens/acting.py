"""The questions in which an operator acts on the job: each says what it will do, and does it when it is answered with yes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from distmon.core.errors import DistmonError
from distmon.core.printable import clean
from distmon.launcher.actions import AddHost, AnyAction, DrainHost, RestartJob, SignalRank, StopJob, signal_named
from distmon.launcher.living import BARRED, ONLY_HOST
from distmon.replay.background import Beside
from distmon.tui.ports import Job, Target
from distmon.tui.rights import Rights

if TYPE_CHECKING:
    from distmon.tui.screens.cockpit import Cockpit

NO_JOB = "no job of this session runs on this machine"
FIXED_HOSTS = "the hosts of this job are fixed; --min-np lets them change"
_IDLE = "Take {} out of the job? It has no rank:\nthe ranks go on as they are."
LOOKS_EVERY_S = 0.1
"""For a host's answer."""
_TOO_FEW = (
    "Take {host} out of the job? It needs {needed} slots, and {left} would be\n"
    "left: all wait for another host, and the job ends if none comes."
)
_OTHER_SLOTS = "Give {host} in place of {slots} slot{s}?\nAll ranks meet anew at their next commit."
_SIGNAL_KEYS = {"SIGUSR1": "1", "SIGUSR2": "2", "SIGINT": "i", "SIGTERM": "t", "SIGKILL": "k", "SIGSTOP": "s", "SIGCONT": "c"}


class Acting:
    """For one cockpit. Nothing is done without a question, and nothing at all where the rights forbid it."""

    def __init__(self, cockpit: Cockpit, job: Job | None, rights: Rights) -> None:
        self._cockpit, self._job, self._rights = cockpit, job, rights
        self.said = ""
        """What the job has said that it is about to do."""

    def begin(self, kind: str) -> None:
        """`stop`, `restart`, `signal`, `add_host` or `drain_host`."""
        job = self._target()
        if self._rights.refusal or job is None:
            self._cockpit.say(self._rights.refusal or (NO_JOB if self._job is None else "the job has ended"))
            return
        begin: dict[str, Callable[[Target], None]] = {
            "stop": lambda job: self._ask(job, StopJob(firm=job.stopping or self._cockpit.facts.state.job.told_to_end)),
            "restart": lambda job: self._ask(job, RestartJob()),
            "signal": self._signal,
            "add_host": self._add_host,
            "drain_host": self._drain_host,
        }
        begin[kind](job)

    def _target(self) -> Target | None:
        """The job that was started here, or the one of this session, where another distmon on this machine runs it."""
        if self._job is not None:
            return self._job if self._job.running else None
        from distmon.tui.remote_job import remote_job  # brings psutil, which the first paint need not wait for

        started = self._cockpit.facts.state.job.started
        return remote_job(started.job) if started is not None else None

    def _ask(self, job: Target, action: AnyAction, effect: str = "") -> None:
        self._cockpit.ask(effect or action.effect, partial(self._do, job, action))

    def _ask_of_host(self, job: Target, action: AddHost | DrainHost, effect: str = "") -> None:
        """Whether the host answers is not waited for: the question says it once it is known."""
        question, host = effect or action.effect, action.host.partition(":")[0]
        self._ask(job, action, f"{question}\nWhether {clean(host)} answers is not known yet: it is asked.")
        self._cockpit.app.run_worker(self._tell_of_host(job, action, question, host), name="host", group="host", exclusive=True)

    async def _tell_of_host(self, job: Target, action: AnyAction, question: str, host: str) -> None:
        asked, answer = self._cockpit.question, Beside(partial(job.told_of_host, host))
        while not answer.done:
            await asyncio.sleep(LOOKS_EVERY_S)
        said = answer.result()
        if said is not None and self._cockpit.question == asked:
            self._ask(job, action, f"{question}\n{clean(said)}")

    def _do(self, job: Target, action: AnyAction) -> None:
        self._cockpit.app.run_worker(self._done(job, action), name="act")

    async def _done(self, job: Target, action: AnyAction) -> None:
        """In a thread: a host's name may have to be looked up."""
        try:
            said = self.said = await asyncio.to_thread(job.act, action)
        except DistmonError as error:
            said = str(error)
        self._cockpit.say(said)

    def _read(self, what: str, proposed: str, then: Callable[[str], str | None]) -> None:
        """What is typed takes the place of what is proposed."""
        self._cockpit.read_line(what, proposed, then)
        self._cockpit.prompt.action_select_all()

    # --- one rank -------------------------------------------------------------------------------------------------

    def _signal(self, job: Target) -> None:
        ranks = sorted(self._cockpit.facts.state.ranks)
        if not ranks:
            self._cockpit.say("no rank runs yet")
            return
        numbers = "0" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
        selected = self._cockpit.page.selected_rank
        self._read(f"signal which rank ({numbers})?", "" if selected is None else str(selected), partial(self._which_signal, job))

    def _which_signal(self, job: Target, text: str) -> str | None:
        """What is wrong with the answer, which is asked for again then; so with hosts."""
        if not (text.isascii() and text.isdigit() and int(text) in self._cockpit.facts.state.ranks):
            return f"there is no rank {text}" if text else "which rank? Esc for none"
        rank = self._cockpit.facts.state.ranks[int(text)]
        answers = {
            key: (name.removeprefix("SIG"), partial(self._ask, job, SignalRank(int(text), signal_named(name))))
            for name, key in _SIGNAL_KEYS.items()
        }
        question = f"Send rank {int(text)} on {clean(rank.host)} which signal?\nWhat it does is said before it is sent."
        self._cockpit.choose(question, answers)
        return None

    # --- hosts ----------------------------------------------------------------------------------------------------

    def _add_host(self, job: Target) -> None:
        if job.hosts is None:
            self._cockpit.say(FIXED_HOSTS)
            return
        self._read("add which host, with how many slots (NAME:SLOTS)?", "", partial(self._host_to_add, job))

    def _host_to_add(self, job: Target, text: str) -> str | None:
        if not re.fullmatch(r"[\w.-]+(:[1-9]\d*)?", text):
            return f"{text!r} is not of the form NAME:SLOTS" if text else "which host, as NAME:SLOTS? Esc for none"
        name = text.partition(":")[0]
        if (known := self._cockpit.facts.state.elastic.hosts.get(name)) is not None and known.barred_for_good:
            return f"{clean(name)} {BARRED}"
        slots = (job.hosts or {}).get(name)
        effect = _OTHER_SLOTS.format(host=clean(text), slots=slots, s="s" * (slots != 1)) if slots else ""
        self._ask_of_host(job, AddHost(text), effect)
        return None

    def _drain_host(self, job: Target) -> None:
        hosts = job.hosts
        if hosts is None:
            self._cockpit.say(FIXED_HOSTS)
            return
        only = next(iter(hosts)) if len(hosts) == 1 else ""
        known = self._cockpit.facts.state.elastic.hosts
        barred = {name for name in hosts if name in known and known[name].barred_until is not None}
        named = ", ".join(name + " (barred)" * (name in barred) for name in hosts)
        self._read(f"drain which host ({named})?", only, partial(self._host_to_drain, job))

    def _host_to_drain(self, job: Target, text: str) -> str | None:
        if text not in (job.hosts or {}):
            return f"the job has no host {text}" if text else "which host? Esc for none"
        hosts, state = dict(job.hosts or {}), self._cockpit.facts.state
        del hosts[text]
        if not hosts:
            return f"{clean(text)} {ONLY_HOST}"
        rounds, started = state.elastic.rounds, state.job.started
        needed = (started.min_np if started is not None else None) or 1
        effect = ""
        if rounds and text not in (host for _, host, _ in rounds[-1].places):
            effect = _IDLE.format(clean(text))
        elif sum(hosts.values()) < needed:
            effect = _TOO_FEW.format(host=clean(text), left=sum(hosts.values()), needed=needed)
        self._ask_of_host(job, DrainHost(text), effect)
        return None
