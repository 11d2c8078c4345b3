"""Agents on a job's other hosts: started over the user's own ssh, with keys made for this job alone, and gone with it."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from distmon.launcher.conversation import Conversation, Silent
from distmon.launcher.driver import remote
from distmon.launcher.hosts import Host
from distmon.launcher.inspect import cannot_run
from distmon.launcher.plan import Plan
from distmon.wire.keys import AgentKeys, KeyPair, encode_agent_keys, make_pair

MODULES = ("guest", "keeper")
START_LIMIT_S = 15.0
STOP_LIMIT_S = 8.0
RETRY_S = 5.0
ALIVE_EVERY_S = 3.0
"""A keeper ends its agent when it hears nothing for the job's `lost_after_s`, of which this is a fraction."""
_PROBE = Path(__file__).resolve().parent.parent / "probe"

OnReady = Callable[[str, str, str], None]
"""Called with the host, the agent's address and its public key, from any thread."""
OnTrouble = Callable[[str, str], None]
"""Called with the host and what is wrong, in one line, from any thread."""


class RemoteAgents:
    """A thread for each host holds its ssh. Where that breaks it is made again, and the agent goes on with the rings."""

    def __init__(self, plan: Plan, agent: str, on_ready: OnReady, on_trouble: OnTrouble) -> None:
        """`agent` is where distmon-agent is on the hosts, if the user says so."""
        self.viewer: KeyPair = make_pair()
        """The viewer's own keys: all agents of the job let it in, and nobody else."""
        self._plan = plan
        self._agent = agent
        self._on_ready, self._on_trouble = on_ready, on_trouble
        self._hosts: dict[str, _HostAgent] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def start(self, hosts: Iterable[Host]) -> None:
        """Start the agents of hosts that have none yet; returns at once."""
        with self._lock:
            if self._ending.is_set():
                return
            for host in hosts:
                if host.name not in self._hosts:
                    agent = self._hosts[host.name] = _HostAgent(self._plan, host, self._agent, self.viewer.public, self._ending)
                    agent.begin(self._on_ready, self._on_trouble)

    def wait(self, limit_s: float) -> dict[str, str]:
        """Wait until each agent listens or has failed; host -> why it does not listen, for those that do not."""
        deadline = time.monotonic() + limit_s
        with self._lock:
            agents = list(self._hosts.values())
        missing = {}
        for agent in agents:
            if not agent.settled.wait(max(0.0, deadline - time.monotonic())):
                missing[agent.host.name] = f"no answer in {limit_s:g} s"
            elif agent.trouble:
                missing[agent.host.name] = agent.trouble
        return missing

    def trouble(self, host: str) -> str:
        """Why the agent of a host does not listen now; empty where it does, or has never been asked to."""
        agent = self._hosts.get(host)
        return agent.trouble if agent is not None else ""

    def cancel(self) -> None:
        """Have `wait` return at once; what was started ends by itself."""
        self._ending.set()

    def stop(self) -> None:
        """Let all pass on what the ranks recorded last, and end them; whoever does not end in time is left to end by itself."""
        self._ending.set()
        with self._lock:
            agents = list(self._hosts.values())
        deadline = time.monotonic() + STOP_LIMIT_S
        for agent in agents:
            agent.thread.join(max(0.0, deadline - time.monotonic()))
        for agent in agents:
            agent.cut()


class _HostAgent:
    def __init__(self, plan: Plan, host: Host, agent: str, viewer: str, ending: threading.Event) -> None:
        self.host = host
        self.settled = threading.Event()
        self.trouble = ""
        keys = make_pair()
        self._key = keys.public
        self._ending = ending
        self._conversation: Conversation | None = None
        port = host.port or plan.ssh_port
        self._command = remote.ssh_command(host.ssh_target, plan.python, port, plan.ssh_identity_file)
        self._spec: dict[str, Any] = {
            "job": plan.job,
            "host": host.name,
            "python": plan.python,
            "agent": agent,
            "lost_after_s": plan.lost_after_s,
            "agent_beside": str(Path(sys.executable).parent / "distmon-agent"),
            "keys": encode_agent_keys(AgentKeys(keys, [viewer])).decode("ascii"),
        }

    def begin(self, on_ready: OnReady, on_trouble: OnTrouble) -> None:
        name = f"agent {self.host.name}"
        self.thread = threading.Thread(target=self._keep, args=(on_ready, on_trouble), name=name, daemon=True)
        self.thread.start()

    def cut(self) -> None:
        if self._conversation is not None:
            self._conversation.end()

    def _keep(self, on_ready: OnReady, on_trouble: OnTrouble) -> None:
        while not self._ending.is_set():
            was_ready = self.settled.is_set() and not self.trouble
            why, again = self._converse(on_ready, on_trouble)
            if self._ending.is_set():
                break
            self.trouble = why
            if was_ready or not self.settled.is_set() or not again:
                on_trouble(self.host.name, why)
            self.settled.set()
            if not again:
                return
            self._ending.wait(RETRY_S)
        self.settled.set()

    def _converse(self, on_ready: OnReady, on_trouble: OnTrouble) -> tuple[str, bool]:
        """One ssh, to its end: why it ended, and whether to try again."""
        payload = remote.payload({**self._spec, "probe": probe_files()}, MODULES)
        try:
            conversation = self._conversation = Conversation(self._command, payload)
        except OSError as error:
            return cannot_run(error), False
        alive_due = time.monotonic() + ALIVE_EVERY_S
        try:
            while not self._ending.is_set():
                line = conversation.read(time.monotonic() + 0.2)
                if time.monotonic() >= alive_due:
                    conversation.send({"alive": True})
                    alive_due = time.monotonic() + ALIVE_EVERY_S
                if line is not None and "failed" in line:
                    _wait_for_end(conversation)
                    return str(line["failed"]), False
                self._hear(line or {}, on_ready, on_trouble)
            if self.settled.is_set() and not self.trouble:
                conversation.end_input()
                _wait_for_end(conversation)
            return "", False
        except Silent as silent:
            return str(silent), True
        finally:
            conversation.close()

    def _hear(self, line: dict[str, Any], on_ready: OnReady, on_trouble: OnTrouble) -> None:
        if "ready" in line:
            self.trouble = ""
            on_ready(self.host.name, str(line["ready"]), self._key)
            self.settled.set()
        elif "died" in line:
            on_trouble(self.host.name, f"its agent died ({line['died']}); it is started again, and reads what the ranks recorded")


def _wait_for_end(conversation: Conversation) -> None:
    """Until the agent and its folder have gone; a keeper that waits for ranks to end may stay behind, and ends by itself."""
    deadline = time.monotonic() + STOP_LIMIT_S
    while time.monotonic() < deadline:
        try:
            line = conversation.read(deadline)
        except Silent:
            return
        if line is not None and "ended" in line:
            return


@functools.lru_cache
def probe_files() -> dict[str, str]:
    """What a rank on another host loads, by path: always this distmon's own probe, whatever is installed there.

    A character stands for each byte, for its machine code goes along: where that does not load, the Python beside it serves.
    """
    paths = sorted(path for pattern in ("*.py", "*.so") for path in _PROBE.rglob(pattern))
    return {str(path.relative_to(_PROBE)): path.read_bytes().decode("latin-1") for path in paths}
