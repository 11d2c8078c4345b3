"""The agent's one loop: samples on a fixed grid, takes in what ranks left, publishes both at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Literal

from distmon.agent.grid import next_on_grid
from distmon.agent.identity import host_name, new_boot, node_joined, node_name
from distmon.agent.intake import Intake, marked_anchor_ns
from distmon.agent.journal import Journal
from distmon.agent.notify import ServiceManager
from distmon.agent.sampler import Sampler
from distmon.agent.sensors.base import REAL_ROOTS, Roots
from distmon.core.events import NodeLeft, NoticeGiven
from distmon.wire.clock import SteadyClock
from distmon.wire.gate import Gate
from distmon.wire.publisher import Publisher

NODE_STREAM = "node"
_DRIVERS_WITHIN_S = 1.0
"""A GPU's driver that answers this soon after the start is in the first word about the node."""
_FIRST_SAMPLE_AFTER_S = 0.3
_TOGETHER_S = 0.02
"""An intake due this soon after a sample is done with it: one wake-up, one send."""
_GOODBYE_S = 0.4
_GOODBYE_TO_RECORDERS_S = 2.0
"""They have it on their disks within a second."""
_TELL_REFUSALS_EVERY_S = 60.0
Severity = Literal["info", "warning", "error"]


class Agent:
    """One node's agent. Raises DistmonError when an address cannot be had."""

    def __init__(
        self,
        listen: list[str],
        rings: list[str],
        rate_hz: float,
        steps_hz: float,
        roots: Roots = REAL_ROOTS,
        monotonic: Callable[[], float] = time.monotonic,
        gate: Gate | None = None,
        group: int | None = None,
        journal: Journal | None = None,
    ) -> None:
        mark = journal.mark if journal is not None else b""
        self.clock = SteadyClock(anchor_ns=marked_anchor_ns(mark))
        self.node = node_name()
        self._host = host_name()
        self._roots = roots
        self._monotonic = monotonic
        self.boot = journal.boot if journal is not None else new_boot()
        self._gpus: list[str] = []
        self._journal = journal
        self._gate = gate
        self._keys_trouble = ""
        self._refusals_told = 0
        self._tell_refusals_after = 0.0
        self.publisher = Publisher(self.node, self.boot, listen, store=journal, clock=self.clock.now, gate=gate, group=group)
        self.sampler = Sampler(self.node, roots, packed=True)
        self.intake = Intake(self.node, self.clock, self.sampler, self.publisher, rings, steps_hz, mark)
        self._interval_s = 1 / rate_hz
        self._stop_reason = ""
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.publisher.wake_on(self._wake_read)

    def stop(self, reason: str) -> None:
        """Ends `run` soon; may be called from a signal handler."""
        self._stop_reason = self._stop_reason or reason
        os.write(self._wake_write, b".")

    def run(self, parent: int | None = None) -> None:
        """Until `stop`, or until the process `parent` is no longer this one's parent."""
        manager = ServiceManager()
        manager.ready(f"listening on {' '.join(self.publisher.addresses)}")
        self.sampler.prime()
        self.sampler.settle(_DRIVERS_WITHIN_S)
        self.sampler.sample(self.clock.now())
        self._join()
        next_sample = next_intake = self._monotonic() + min(_FIRST_SAMPLE_AFTER_S, self._interval_s)
        while not self._stop_reason:
            sampled = False
            if self._monotonic() >= next_sample:
                self._sample()
                sampled = True
                next_sample = next_on_grid(next_sample, self._interval_s, self._monotonic())
            if self._monotonic() >= next_intake - _TOGETHER_S:
                next_intake = next_on_grid(next_intake, self.intake.collect(), self._monotonic())
                # Not PR_SET_PDEATHSIG: it also fires when the parent's starting thread ends, and the parent lives on.
                if parent is not None and os.getppid() != parent:
                    self.stop("the process that started it is gone")
            self.publisher.commit()
            if sampled:
                # When the sample and the journal have moved, and not from a thread that would go on without them.
                manager.alive()
            self.publisher.serve(min(next_sample, next_intake) - self._monotonic())
        manager.stopping()
        self._leave()

    def close(self) -> None:
        self.intake.close()
        self.publisher.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _sample(self) -> None:
        stepped = self.clock.step(self.node)
        if stepped is not None:
            self.publisher.publish(NODE_STREAM, stepped)
        sample = self.sampler.sample(self.clock.now())
        if self.sampler.gpu_names != self._gpus:
            self._join()
        self.publisher.publish(NODE_STREAM, sample)
        while self.sampler.notices:
            severity, text = self.sampler.notices.popleft()
            self._tell(severity, text)
        while self._journal is not None and self._journal.notices:
            self._tell(*self._journal.notices.popleft())
        self._tell_keys()
        self._tell_refusals()

    def _join(self) -> None:
        """Says what this node is; again when its driver has come up later, or GPUs have changed."""
        self._gpus = self.sampler.gpu_names
        joined = node_joined(self.node, self.boot, self.clock.now(), self._gpus, self._roots)
        self.publisher.publish(NODE_STREAM, joined, keep="joined")

    def _tell_keys(self) -> None:
        """That the list of keys cannot be trusted any more: nobody is let in. On standard error too: no viewer may hear it."""
        trouble = self._gate.trouble() if self._gate is not None else ""
        if trouble == self._keys_trouble:
            return
        self._keys_trouble = trouble
        text = f"no viewer is let in over the network: {trouble}" if trouble else "viewers are let in over the network again"
        sys.stderr.write(f"distmon-agent: {text}\n")
        self._tell("warning", text)

    def _tell_refusals(self) -> None:
        """How many strangers were turned away, at most once a minute: they could be thousands a second."""
        if not self.publisher.has_refused:
            return
        refused = self.publisher.refused
        if refused.total() > self._refusals_told and self._monotonic() >= self._tell_refusals_after:
            reasons = ", ".join(f"{count} for {reason}" for reason, count in sorted(refused.items()))
            self._tell("warning", f"clients and messages refused so far: {refused.total()} ({reasons})")
            self._refusals_told, self._tell_refusals_after = refused.total(), self._monotonic() + _TELL_REFUSALS_EVERY_S

    def _tell(self, severity: Severity, text: str) -> None:
        notice = NoticeGiven(at=self.clock.now(), severity=severity, text=f"{self._host}: {text}", source="agent")
        self.publisher.publish(NODE_STREAM, notice)

    def _leave(self) -> None:
        os.read(self._wake_read, 4096)
        self.intake.collect(last=True)
        self.publisher.publish(NODE_STREAM, NodeLeft(at=self.clock.now(), node=self.node, reason=self._stop_reason))
        self.publisher.flush(_GOODBYE_S, _GOODBYE_TO_RECORDERS_S)
