"""The same information without a screen: progress lines for pipes, logs and simple terminals, and the closing summary."""

from __future__ import annotations

from dataclasses import dataclass, field

from distmon.core.death import death
from distmon.core.fold import node_power_w
from distmon.core.loss_verdicts import hang_behind
from distmon.core.measures import ALL_PHASES, node_means
from distmon.core.printable import clean
from distmon.core.readings import memory_percent
from distmon.core.state import NodeState, SessionState
from distmon.tui.format import MISSING, compact, duration, joules, milliseconds, percent, span, watts
from distmon.tui.view.facts import Facts, facts
from distmon.tui.view.words import PHASE_NAMES, job_state

PROGRESS_EVERY_S = 10.0


@dataclass
class PlainView:
    """Turns a state that grows into lines: each event once, and how far the job is every so often."""

    every_s: float = PROGRESS_EVERY_S
    timed: bool = True
    """Whether lines of progress begin with the time since the job's start."""
    _last_event: object = None
    _next_progress: float = 0.0
    _verdict: str = field(default="")

    def lines(self, state: SessionState) -> list[str]:
        """What there is to say since the last call."""
        result = self._events(state)
        if state.job.status == "idle" and state.nodes and state.now >= self._next_progress:
            result += [_reading(node) for node in state.nodes.values() if node.sample is not None]
            self._next_progress = state.now + self.every_s
        if state.job.status == "running" and state.now >= self._next_progress:
            moment = facts(state)
            result.append(progress_line(moment, timed=self.timed))
            self._next_progress = state.now + self.every_s
            verdict = next((v for v in moment.verdicts if v.kind != "pause"), None)
            if verdict is not None and verdict.kind != self._verdict:
                result.append(f"{clean(verdict.text)}; try: {clean(verdict.try_first)}")
            self._verdict = verdict.kind if verdict is not None else ""
        return result

    def _events(self, state: SessionState) -> list[str]:
        new = []
        for entry in reversed(state.log):
            if entry is self._last_event:
                break
            new.append(f"{entry.severity + ': ' if entry.severity != 'info' else ''}{clean(entry.text)}")
        if state.log:
            self._last_event = state.log[-1]
        return new[::-1]


def progress_line(moment: Facts, *, timed: bool = True) -> str:
    """epoch 3/10  step 676  43 %  ETA 4:12  2 ranks  492 samples/s."""
    progress = moment.progress
    parts = [duration(progress.elapsed_s)] if timed else []
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch + 1}" + (f"/{progress.epochs}" if progress.epochs else ""))
    parts.append(f"step {progress.step}")
    if progress.fraction is not None:
        parts += [percent(100 * progress.fraction).strip(), f"ETA {duration(progress.eta_s)}"]
    if moment.world_size:
        parts.append(f"{moment.world_size} rank" + "s" * (moment.world_size != 1))
    return "  ".join([*parts, f"{compact(moment.rolling)} samples/s"])


def summary_lines(state: SessionState, *, cut_off: bool = False) -> list[str]:
    """How it went: the end, the first failure, the speed, the split of a step, the nodes, and what held it back.

    `cut_off` is a recording that does not tell the end.
    """
    moment = facts(state)
    _, _, words = job_state(state)
    if cut_off and state.job.status != "ended":
        words = "its end was not recorded: cut off"
    ranks = f"{moment.world_size or 0} rank" + "s" * (moment.world_size != 1)
    counts = f"{ranks}, {moment.progress.step:,} steps, {_samples(moment)}"
    lines = [f"{words} after {duration(moment.progress.elapsed_s)}: {counts}", *_failure(state), _throughput(moment)]
    if moment.split is not None:
        lines.append(f"step        {milliseconds(moment.split.step_s)} ms: {_split(moment)}")
    lines += [_node(node) for node in state.nodes.values()]
    if state.output_dropped:
        plural = "s" * (state.output_dropped != 1)
        lines.append(f"output      {state.output_dropped:,} line{plural} lost: the ranks wrote faster than distmon could take")
    return lines + [f"verdict     {clean(v.text)}; try: {clean(v.try_first)}" for v in moment.verdicts]


def _throughput(moment: Facts) -> str:
    session = f"{compact(moment.mean)} samples/s over the session"
    if moment.steady.mean is None:
        return f"throughput  {session}; steady {MISSING}: {moment.steady.reason}"
    if moment.steady.reason:
        return f"throughput  {compact(moment.steady.mean)} samples/s past the start, {session}; {moment.steady.reason}"
    return f"throughput  {compact(moment.steady.mean)} samples/s steady, {session}"


def _node(node: NodeState) -> str:
    means = node_means(node)
    cpu, power = percent(means.cpu_percent).strip(), watts(means.power_w)
    energy = f", {joules(means.energy_j)} ({clean(means.energy_covers)})" if means.energy_j is not None else ""
    return f"node        {clean(node.host or node.node)}: cpu {cpu}, power {power}{energy}"


def _reading(node: NodeState) -> str:
    """What its last sample says."""
    sample = node.sample
    if sample is None:
        return f"{clean(node.host or node.node)}: {MISSING}"
    parts = [f"cpu {percent(sample.cpu_percent).strip()}", f"memory {percent(memory_percent(sample)).strip()}"]
    parts += [f"gpu {gpu.index} {percent(gpu.utilization_percent).strip()}" for gpu in sample.gpus]
    return f"{clean(node.host or node.node)}: {', '.join(parts)}, power {watts(node_power_w(sample))}"


def _samples(moment: Facts) -> str:
    return f"{moment.samples:,} samples" if moment.samples is not None else f"samples {MISSING}"


def _split(moment: Facts) -> str:
    split = moment.split
    known = [(PHASE_NAMES[name], split.phase(name)) for name in ALL_PHASES] if split is not None else []
    return ", ".join(f"{name} {span(seconds)}" for name, seconds in known)


def _failure(state: SessionState) -> list[str]:
    failure = state.job.failure
    reason = [f"reason      {clean(state.job.end_detail)}"] if state.job.end_detail else []
    if failure is None:
        return reason
    who = f"rank {failure.rank}" if failure.rank is not None else "a process"
    cause = death(failure.signal, failure.exit_code, failure.cause) or MISSING
    died = f"{who} on {clean(failure.host) or MISSING}: {clean(cause)}"
    hang = hang_behind(state)
    first = [died] if hang is None else [f"{clean(hang.who)}: {clean(hang.text)}", f"  then {died}"]
    return [*reason, f"first failure: {first[0]}", *first[1:], *(f"  | {clean(line)}" for line in failure.last_lines)]
