"""The one door into the state: `apply(state, event)`.

Events of one source come in order. Those of different sources (ranks, nodes, the launcher) may come in any interleaving; sums,
series and places do not depend on it, only the order of lines in the log does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from distmon.core import events as ev
from distmon.core.batches import Batch, aligned, told_by
from distmon.core.clocks import certain_offset, moved, node_of
from distmon.core.death import death
from distmon.core.energy import add_power, jumped, settle
from distmon.core.energy_trail import EnergyTrail
from distmon.core.epochs import add_metrics, add_steps
from distmon.core.frozen import is_frozen
from distmon.core.hangs import describe, describe_end, find_hang, steps_go_on, take_stack
from distmon.core.leaps import note_leap
from distmon.core.printed import add_printed
from distmon.core.reach import SILENT_S
from distmon.core.readings import gpu_utilization_percent, strain_of
from distmon.core.state import (
    LOST_S,
    REPEATED_WITHIN_LINES,
    REPEATED_WITHIN_S,
    GpuMeans,
    HostSilence,
    LogEntry,
    Metric,
    NodeState,
    OutputLine,
    PowerSeries,
    RailEnergy,
    RankState,
    SessionState,
    Severity,
    Span,
    TemperatureMeans,
)
from distmon.core.steps import Generation, History, Totals

_Handler = Callable[[SessionState, Any], None]

_FREEZING = re.compile(r"(SIGSTOP|SIGCONT) to rank (\d+)")
"""What an operator's `signal` says of it."""

LONGEST_BATCH_S = 3.0
LONGEST_INTERVALS = 3
"""A reading of one moment stands for no longer than so many of the node's shortest intervals."""


def apply(state: SessionState, event: ev.AnyEvent) -> None:
    """Changes the state by what happened."""
    state.events += 1
    if state.clock_offsets and (offset_s := state.clock_offsets.get(node_of(event))) is not None:
        event = moved(event, offset_s)
    state.now = max(state.now, event.at)
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event)


def count_unknown(state: SessionState, kind: str) -> None:
    """An event of a later version went by: skipped, and counted."""
    state.unknown_kinds[kind] += 1


def _session_started(state: SessionState, event: ev.SessionStarted) -> None:
    state.session_id = event.session_id
    state.started = event.at
    state.distmon_version = event.distmon_version
    state.origin = event.origin


def _session_ended(state: SessionState, event: ev.SessionEnded) -> None:
    state.complete = True


def _job_started(state: SessionState, event: ev.JobStarted) -> None:
    state.job.started = event
    if state.job.status == "idle":
        state.job.status = "launching"
    _say(state, event.at, "info", f"job started: {' '.join(event.command)}")


def _launch_progressed(state: SessionState, event: ev.LaunchProgressed) -> None:
    state.job.stage = event.stage
    state.job.stage_detail = event.detail
    state.job.stage_deadline = event.deadline
    if event.detail:
        limit = "" if event.deadline is None else f" (at most {max(0.0, event.deadline - event.at):.0f} s)"
        _say(state, event.at, "info", event.detail + limit)


def _ranks_assigned(state: SessionState, event: ev.RanksAssigned) -> None:
    _generation(state, event.generation).world_size = event.world_size
    living = {_slot(rank): (rank.pid, rank.started_at) for rank in state.ranks.values() if rank.exited_at is None}
    for place in event.places:
        rank = _rank(state, place.rank)
        if _slot(rank) != (place.host, place.local_rank):
            # Another worker holds the rank from now on: one that is there already, or one that is started for it.
            rank.host, rank.local_rank = place.host, place.local_rank
            rank.pid, rank.started_at = living.get(_slot(rank), (None, None))
            _lives(rank)
    ranks = "1 rank" if event.world_size == 1 else f"{event.world_size} ranks"
    _say(state, event.at, "info", f"rendezvous {event.generation}: {ranks}")
    if _elastic(state):
        state.elastic.assign(event)
        detail = f"generation {event.generation}: {ranks}"
        state.membership.append(ev.MembershipChanged(at=event.at, change="rendezvous", detail=detail))


def _worker_started(state: SessionState, event: ev.WorkerStarted) -> None:
    rank = _rank(state, event.rank)
    rank.host, rank.local_rank, rank.pid = event.host, event.local_rank, event.pid
    rank.started_at = event.at
    if rank.first_started_at is None:
        rank.first_started_at = event.at
    _lives(rank)
    _answers(state, event.host, event.at)
    if state.job.first_worker_at is None or event.at < state.job.first_worker_at:
        state.job.first_worker_at = event.at
    if _elastic(state):
        state.elastic.start(event)
        _member(state, event, "worker_started", "")


def _worker_exited(state: SessionState, event: ev.WorkerExited) -> None:
    rank = _rank(state, event.rank)
    # The last one of a worker whose slot is gone may come when its rank is another's.
    if _slot(rank) == (event.host, event.local_rank) or rank.local_rank is None:
        rank.exit_code, rank.signal, rank.cause, rank.exited_at = event.exit_code, event.signal, event.cause, event.at
        rank.stopped = event.expected
    if _elastic(state):
        state.elastic.exit(event)
        _member(state, event, "worker_exited", _how_it_left(event))
    if event.exit_code == 0 or event.expected:
        how = "ended" if event.exit_code == 0 else "was removed" if event.removed else "was stopped"
        _say(state, event.at, "info", f"rank {event.rank} {how}", event.rank, event.host)
    else:
        cause = death(event.signal, event.exit_code, event.cause)
        _say(state, event.at, "error", f"rank {event.rank} died: {cause}", event.rank, event.host)


def _slot(rank: RankState) -> tuple[str, int | None]:
    return rank.host, rank.local_rank


def _lives(rank: RankState) -> None:
    """What is known of an end was another worker's."""
    rank.exited_at, rank.exit_code, rank.signal, rank.cause, rank.stopped = None, None, "", "", False
    rank.frozen_at = rank.thawed_at = None


def _how_it_left(event: ev.WorkerExited) -> str:
    if event.removed:
        return "removed: its slot was taken away"
    if event.expected:
        return "stopped"
    return "ended" if event.exit_code == 0 else death(event.signal, event.exit_code, event.cause)


def _elastic(state: SessionState) -> bool:
    """Whether ranks may come and go."""
    job = state.job.started
    return job is not None and (job.elastic or job.min_np is not None)


def _member(state: SessionState, event: ev.WorkerStarted | ev.WorkerExited, change: ev.ElasticKind, detail: str) -> None:
    state.membership.append(ev.MembershipChanged(at=event.at, change=change, host=event.host, rank=event.rank, detail=detail))


def _output_written(state: SessionState, event: ev.OutputWritten) -> None:
    state.output_lines += len(event.lines)
    state.output_dropped += event.dropped
    if event.rank == 0:
        add_printed(state.printed, event.lines)
    state.output.extend(OutputLine(event.at, event.rank, event.host, event.output, line) for line in event.lines)


def _job_ended(state: SessionState, event: ev.JobEnded) -> None:
    job = state.job
    job.status, job.ended_at, job.exit_code = "ended", event.at, event.exit_code
    job.end_reason, job.end_detail, job.failure = event.reason, event.detail, event.failure
    severity: Severity = "info" if event.exit_code == 0 or job.was_stopped else "error"
    how = f"{event.reason}{' by an operator' * (job.was_stopped and job.told_to_end)}, exit code {event.exit_code}"
    _say(state, event.at, severity, f"job {how}{': ' * bool(event.detail)}{event.detail}")


def _notice_given(state: SessionState, event: ev.NoticeGiven) -> None:
    _say(state, event.at, event.severity, event.text, None, event.source)


def _host_reach_changed(state: SessionState, event: ev.HostReachChanged) -> None:
    silence_s = event.at - event.since
    if event.answers:
        _answers(state, event.host, event.at)
        _say(state, event.at, "info", f"{event.host} answers again after {silence_s:.0f} s", None, event.host)
        return
    state.host_silences.append(HostSilence(event.host, event.since, event.ranks))
    who = f"{event.host} (rank {', '.join(map(str, event.ranks))})" if event.ranks else event.host
    limit = event.given_up_after_s
    until = f"; it is given up {limit:g} s after its last word" if limit is not None else ""
    text = f"{who} has not answered for {silence_s:.0f} s: its network may be cut{until}"
    _say(state, event.at, "warning", text, None, event.host)


def _answers(state: SessionState, host: str, at: float) -> None:
    for past in state.host_silences:
        if past.host == host and past.until is None:
            past.until = at


def _action_taken(state: SessionState, event: ev.ActionTaken) -> None:
    state.job.told_to_end = state.job.told_to_end or event.action in ("stop", "restart")
    if event.action == "signal" and (sent := _FREEZING.fullmatch(event.detail)) is not None:
        _freeze(_rank(state, int(sent[2])), sent[1], state, event.at)
    _say(state, event.at, "info", f"{event.action} {event.detail}".rstrip())


def _freeze(rank: RankState, signal: str, state: SessionState, at: float) -> None:
    if signal == "SIGCONT":
        rank.thawed_at = at
    elif not is_frozen(state, rank):
        rank.frozen_at, rank.thawed_at = at, None


def _mark_set(state: SessionState, event: ev.MarkSet) -> None:
    whose = "" if event.rank is None else f" of rank {event.rank}"
    _say(state, event.at, "info", f"mark{whose}: {event.text}", event.rank)


def _membership_changed(state: SessionState, event: ev.MembershipChanged) -> None:
    state.membership.append(event)
    state.elastic.change(event)
    severity: Severity = "warning" if event.change in ("host_failed", "host_blacklisted", "host_left") else "info"
    text = f"{event.change.replace('_', ' ')} {event.host} {event.detail}".rstrip()
    _say(state, event.at, severity, text, event.rank, event.host)


def _discovery_reported(state: SessionState, event: ev.DiscoveryReported) -> None:
    state.elastic.discovery = event
    _say(state, event.at, "info" if event.status == "ok" else "warning", event.detail)


def _training_interrupted(state: SessionState, event: ev.TrainingInterrupted) -> None:
    state.elastic.interrupt(event)
    _hear(state, event.node)


def _state_restored(state: SessionState, event: ev.StateRestored) -> None:
    state.elastic.restore(event)
    _hear(state, event.node)


def _commits_counted(state: SessionState, event: ev.CommitsCounted) -> None:
    state.elastic.commits(event)


def _stack_taken(state: SessionState, event: ev.StackTaken) -> None:
    take_stack(state.hang_watch, event)
    _hear(state, event.node)


def _worker_identified(state: SessionState, event: ev.WorkerIdentified) -> None:
    rank = _rank(state, event.rank)
    rank.identity, rank.host, rank.local_rank, rank.pid = event, event.host, event.local_rank, event.pid
    rank.unseen.pop("steps", None)
    generation = _generation(state, event.generation)
    generation.world_size = generation.world_size or event.size
    if _elastic(state):
        state.elastic.identify(event)
    _hear(state, event.node)


def _steps_recorded(state: SessionState, event: ev.StepsRecorded | ev.NodeStepsRecorded | ev.NodeStepsSummed) -> None:
    """Of one worker or of several of a node."""
    if not (told := told_by(event)):
        return
    _hear(state, event.node)
    generation = _generation(state, event.generation)
    if not (all_new := generation.all_new(told)):
        told = [(rank, worker, new) for rank, worker, batch in told if (new := generation.new_steps(rank, worker, batch))]
        if not told:
            return
        for number, _, batch in told:
            if (known := generation.ranks.get(number)) is not None:
                state.set_back |= note_leap(known, batch.begin, batch.first_step)
    batches = [batch for _, _, batch in told]
    begin, end = min([batch[2] for batch in batches]), max([batch[3] for batch in batches])
    if event.generation > 0 and not generation.ranks:
        detail = f"generation {event.generation}"
        state.membership.append(ev.MembershipChanged(at=begin, change="resumed", rank=told[0][0], detail=detail))
    if summed := isinstance(event, ev.NodeStepsSummed):
        state.summed_nodes.add(event.node)
    elif state.summed_nodes:
        state.summed_nodes.discard(event.node)
    added = generation.add(told, event.epoch, aligned=all_new and aligned(event, told), summed=summed)
    if event.epoch is not None:
        for rank, *_ in told:
            _rank(state, rank).epoch = event.epoch
        lead = next(((batch[0], batch[0] + batch[1]) for rank, _, batch in told if rank == 0), None)
        add_steps(state.epochs, event.epoch, event.generation, (begin, end), added, lead)
        if event.epoch in state.epochs:
            state.unsettled_epochs.add(event.epoch)
    _train(state.trail, batches, (begin, end))
    state.stepped_until = max(state.stepped_until, end)
    settle(state)
    if state.job.status != "ended":
        state.job.status = "running"
    _add_to_history(state, batches, (begin, end), added)
    if state.hang_watch.stacks:
        _go_on(state, end)


def _train(trail: EnergyTrail, batches: list[Batch], lasted: tuple[float, float]) -> None:
    """Batches are told once a second: of a longer one there may have been pauses between the steps."""
    begin, end = lasted
    if end - begin <= LONGEST_BATCH_S:
        trail.train(begin, end)
        return
    for batch in batches:
        if batch.end > trail.trained_until:
            for start, duration_ns in zip(batch.starts(), batch.durations_ns, strict=True):
                trail.train(start, start + duration_ns / 1e9)


def _go_on(state: SessionState, ended: float) -> None:
    """Steps come again."""
    hang = steps_go_on(state.hang_watch, ended)
    if hang is not None:
        _say(state, ended, "info", describe_end(hang, state.hang_watch.pauses))


def _add_to_history(state: SessionState, batches: list[Batch], lasted: tuple[float, float], added: Totals) -> None:
    """Batches about as long as a bin are spread as a whole; of longer ones each step is, so that a slow stretch shows."""
    first, last = lasted
    if (history := state.history) is None:
        history = state.history = History(int(state.started if state.started is not None else first))
    if last - first <= 2 * history.width_s:
        history.spread(first, last, _amounts(added))
        return
    for batch in batches:
        for step in batch.single_steps():
            history.spread(step.begin, step.end, _amounts(Totals.of(step.sums)))


def _amounts(totals: Totals) -> tuple[float, ...]:
    """What goes into each column of the history, in their order."""
    a, b, c, d = totals.phase_ns
    whole = totals.duration_ns
    # Those of steps whose own are not known are taken to be as the others.
    samples = totals.samples * totals.steps / (totals.sampled_steps or 1)
    rest = whole - a - b - c - d
    return (samples, totals.steps, a / 1e9, b / 1e9, c / 1e9, d / 1e9, rest / 1e9, whole / 1e9)


def _span_recorded(state: SessionState, event: ev.SpanRecorded) -> None:
    rank, ended = _rank(state, event.rank), event.started + event.duration_s
    if _elastic(state):
        state.elastic.span(event)
    if ended <= rank.told_until.get(event.span, 0.0):
        return
    rank.told_until[event.span] = ended
    rank.span_totals[event.span] = rank.span_totals.get(event.span, 0.0) + event.duration_s
    if event.span in ("evaluation", "checkpoint"):
        rank.last_span_end = max(rank.last_span_end, ended)
    elif event.span == "sync":
        rank.broadcasts.append((event.started, ended))
    state.spans.append(Span(event.span, event.rank, event.started, event.duration_s, event.name))
    if event.rank == 0 and event.span in ("evaluation", "checkpoint"):
        text = f"{event.span} {event.name} took {event.duration_s:.2f} s".replace("  ", " ")
        _say_again(state, event.started, text, 0, f"{event.span} {event.name}")


def _metrics_logged(state: SessionState, event: ev.MetricsLogged) -> None:
    logged = {name: Metric(value, event.step, event.epoch) for name, value in event.values.items()}
    _rank(state, event.rank).metrics.update(logged)
    add_metrics(state.epochs, event)


def _model_described(state: SessionState, event: ev.ModelDescribed) -> None:
    _rank(state, event.rank).model = event


def _progress_declared(state: SessionState, event: ev.ProgressDeclared) -> None:
    rank = _rank(state, event.rank)
    rank.epochs = event.epochs if event.epochs is not None else rank.epochs
    rank.steps_per_epoch = event.steps_per_epoch if event.steps_per_epoch is not None else rank.steps_per_epoch


def _epoch_started(state: SessionState, event: ev.EpochStarted) -> None:
    _rank(state, event.rank).epoch = event.epoch
    if event.rank == 0:
        _say_again(state, event.at, f"epoch {event.epoch + 1} started", 0, "epoch")


def _phase_unseen(state: SessionState, event: ev.PhaseUnseen) -> None:
    _rank(state, event.rank).unseen[event.field] = event.reason


def _node_joined(state: SessionState, event: ev.NodeJoined) -> None:
    node = _hear(state, event.node)
    again = node.joined is not None and node.joined.boot == event.boot and node.left_at is None
    node.joined, node.host, node.left_at, node.left_reason = event, event.host, None, ""
    if not again:
        _say(state, event.at, "info", f"node {event.host} joined", None, event.host)


def _node_left(state: SessionState, event: ev.NodeLeft) -> None:
    node = _node(state, event.node)
    node.left_at, node.left_reason = event.at, event.reason
    why = f" ({event.reason})" if event.reason else ""
    _say(state, event.at, "info", f"node {node.host or event.node} left: its agent ended{why}", None, node.host)


def _node_sampled(state: SessionState, event: ev.NodeSampled) -> None:
    node = _hear(state, event.node)
    if node.sample is not None and event.at - node.sample.at > max(SILENT_S, 3 * (node.least_interval_s or 0.0)):
        node.strains.clear()  # what was before says nothing of now
    node.sample = event
    at, cpu_percent, interval_s, power_w = event.at, event.cpu_percent, event.interval_s, None
    node.cpu_history.append((at, cpu_percent))
    node.strains.append(strain_of(event))
    if cpu_percent is not None:
        node.cpu_percent_seconds += cpu_percent * interval_s
        node.cpu_seconds += interval_s
    if event.cores_percent:
        _add_cores(node, event.cores_percent, interval_s)
    stands_for_s = _stands_for_s(node, interval_s)
    for zone in event.temperatures:
        _add_temperature(node.temperatures.setdefault(zone.name, TemperatureMeans()), zone.celsius, stands_for_s)
    if event.power or event.gpus:
        power_w = node_power_w(event)
        _add_power(state.trail, node, event, stands_for_s)
    node.power_history.append((at, power_w))
    if event.gpus:
        node.gpu_history.append((at, gpu_utilization_percent(event)))


def _add_power(trail: EnergyTrail, node: NodeState, event: ev.NodeSampled, stands_for_s: float) -> None:
    """The trail takes the readings that lie within no other."""
    at, usual, usual_j, usual_variance = event.at, 0, 0.0, 0.0
    for series, (joules, seconds, counted), within in _power_readings(node, event, stands_for_s):
        variance = add_power(series, at, joules, seconds, counted)
        if within:
            continue
        if seconds == stands_for_s:
            usual, usual_j, usual_variance = usual + 1, usual_j + joules, usual_variance + variance
        else:  # a counter's, over a pause of the agent
            trail.add(at, seconds, joules, seconds, variance)
    if usual and stands_for_s:
        trail.add(at, stands_for_s, usual_j, usual * stands_for_s, usual_variance)


_Spent = tuple[float, float, bool]
"""Joules, the seconds that they are of, and whether a counter told them."""


def _power_readings(
    node: NodeState, event: ev.NodeSampled, stands_for_s: float
) -> Iterator[tuple[PowerSeries, _Spent, str]]:
    """Of each reading, once it is added: its series, what it is, and the rail that holds it."""
    interval_s = event.interval_s
    for rail in event.power:
        total = node.rails.setdefault(rail.name, RailEnergy())
        total.within = rail.within
        if (spent := _spent(rail.energy_j, rail.watts, interval_s, stands_for_s)) is not None:
            total.joules += spent[0]
            total.seconds += spent[1]
            yield total.series, spent, rail.within
    for gpu in event.gpus:
        if gpu.instance is None:
            means = node.gpus.setdefault(gpu.index, GpuMeans())
            _add_gpu(means, gpu, stands_for_s)
            if (spent := _spent(gpu.energy_j, gpu.power_w, interval_s, stands_for_s)) is not None:
                means.joules += spent[0]
                means.power_s += spent[1]
                yield means.series, spent, ""


def _stands_for_s(node: NodeState, interval_s: float) -> float:
    """How long a reading of one moment is taken to have held: not over a pause of the agent, of which nothing is known."""
    least = node.least_interval_s
    if interval_s > 0 and (least is None or interval_s < least):
        least = node.least_interval_s = interval_s
    return min(interval_s, LONGEST_INTERVALS * least) if least is not None else 0.0


def _spent(counted_j: float | None, watts: float | None, interval_s: float, stands_for_s: float) -> _Spent | None:
    """By a counter since the last sample, or else by the power for as long as that stands for."""
    if counted_j is not None and not jumped(counted_j, watts, interval_s):
        return counted_j, interval_s, True
    return None if watts is None else (watts * stands_for_s, stands_for_s, False)


def _add_cores(node: NodeState, percents: list[float | None], interval_s: float) -> None:
    """In as few steps as can be: a node may have hundreds of cores, and a job thousands of nodes."""
    missing = len(percents) - len(node.core_seconds)
    if missing > 0:
        node.core_percent_seconds += [0.0] * missing
        node.core_seconds += [0.0] * missing
    sums, seconds = node.core_percent_seconds, node.core_seconds
    for core, percent in enumerate(percents):
        if percent is not None:
            sums[core] += percent * interval_s
            seconds[core] += interval_s


def _add_temperature(means: TemperatureMeans, celsius: float, interval_s: float) -> None:
    means.celsius_seconds += celsius * interval_s
    means.seconds += interval_s
    means.highest = max(means.highest, celsius)


def _add_gpu(means: GpuMeans, gpu: ev.GpuReading, stands_for_s: float) -> None:
    means.name = gpu.name or means.name
    if gpu.utilization_percent is not None:
        means.utilization_seconds += gpu.utilization_percent * stands_for_s
        means.utilization_s += stands_for_s


def node_power_w(sample: ev.NodeSampled) -> float | None:
    """Sum of the readings that lie within no other one; None when there is none."""
    parts = [rail.watts for rail in sample.power if not rail.within] + [gpu.power_w for gpu in sample.gpus]
    known = [watts for watts in parts if watts is not None]
    return sum(known) if known else None


def _clock_stepped(state: SessionState, event: ev.ClockStepped) -> None:
    node = _node(state, event.node)
    host, node.clock_set_at, node.clock_set_by_s = node.host, event.at, event.by_s
    _say(state, event.at, "warning", f"wall clock of {host or event.node} stepped by {event.by_s:+.3f} s", None, host)


def _clock_offset_estimated(state: SessionState, event: ev.ClockOffsetEstimated) -> None:
    node = _node(state, event.node)
    node.clock_offset_s, node.clock_round_trip_s = event.offset_s, event.round_trip_s
    offset_s = certain_offset(event)
    if offset_s is None:
        state.clock_offsets.pop(event.node, None)
        return
    if event.node not in state.clock_offsets:
        text = f"the clock of {node.host or event.node} differs by {-offset_s:+.3f} s; its times are shown on this machine's"
        _say(state, event.at, "info", text, None, node.host)
    state.clock_offsets[event.node] = offset_s


def _gap_found(state: SessionState, event: ev.GapFound) -> None:
    state.gaps.append(event)
    host = _node(state, event.node).host or event.node
    records = f"{event.lost_records:,} record{'s' * (event.lost_records != 1)} of {host}"
    lasted = f" over {event.ended - event.started:.0f} s" if event.ended - event.started >= 1 else ""
    _say(state, event.at, "warning", f"{records} lost{lasted}: {event.cause or 'unknown cause'}", None, host)


def _ticked(state: SessionState, event: ev.Ticked) -> None:
    """A node from which nothing came for LOST_S is lost; its training may well go on. Training that waits for a rank hangs."""
    hang = find_hang(state)
    if hang is not None:
        _say(state, event.at, "error", describe(hang), hang.missing[0] if hang.missing else None)
    for node in state.nodes.values():
        heard = node.last_heard
        if node.left_at is None and node.lost_since is None and 0 < heard < state.now - LOST_S:
            node.lost_since = heard
            text = f"nothing heard from node {node.host or node.node} for {LOST_S:.0f} s: its agent or the way to it is gone"
            _say(state, event.at, "warning", text, None, node.host)


def _hear(state: SessionState, name: str) -> NodeState:
    """Something came from a node."""
    node, now = _node(state, name), state.now
    if node.lost_since is not None:
        node.silences.append((node.lost_since, now))
        silence = now - node.lost_since
        node.lost_since = None
        _say(state, now, "info", f"node {node.host or name} is back after {silence:.0f} s", None, node.host)
    if now - node.last_heard > SILENT_S:
        node.heard_since = now
    node.last_heard = now
    return node


def _rank(state: SessionState, rank: int) -> RankState:
    if (found := state.ranks.get(rank)) is None:
        found = state.ranks[rank] = RankState(rank)
    return found


def _node(state: SessionState, node: str) -> NodeState:
    if (found := state.nodes.get(node)) is None:
        found = state.nodes[node] = NodeState(node)
    return found


def _generation(state: SessionState, number: int) -> Generation:
    if (found := state.generations.get(number)) is None:
        found = state.generations[number] = Generation(number)
    return found


def _say_again(state: SessionState, at: float, text: str, rank: int, topic: str) -> None:
    """Says what may come many times a minute: on the line that said it a moment ago, which counts it."""
    for back in range(1, min(REPEATED_WITHIN_LINES, len(state.log)) + 1):
        entry = state.log[-back]
        if entry.topic == topic and at - entry.at <= REPEATED_WITHIN_S:
            entry.first_at = entry.at if entry.first_at is None else entry.first_at
            entry.at, entry.text, entry.count = at, text, entry.count + 1
            return
    state.log.append(LogEntry(at, "info", text, rank, topic=topic))


def _say(state: SessionState, at: float, severity: Severity, text: str, rank: int | None = None, host: str = "") -> None:
    state.log.append(LogEntry(at, severity, text, rank, host))


_HANDLERS: dict[type, _Handler] = {
    ev.SessionStarted: _session_started,
    ev.SessionEnded: _session_ended,
    ev.JobStarted: _job_started,
    ev.LaunchProgressed: _launch_progressed,
    ev.RanksAssigned: _ranks_assigned,
    ev.WorkerStarted: _worker_started,
    ev.WorkerExited: _worker_exited,
    ev.OutputWritten: _output_written,
    ev.JobEnded: _job_ended,
    ev.NoticeGiven: _notice_given,
    ev.HostReachChanged: _host_reach_changed,
    ev.ActionTaken: _action_taken,
    ev.MarkSet: _mark_set,
    ev.MembershipChanged: _membership_changed,
    ev.DiscoveryReported: _discovery_reported,
    ev.TrainingInterrupted: _training_interrupted,
    ev.StateRestored: _state_restored,
    ev.CommitsCounted: _commits_counted,
    ev.StackTaken: _stack_taken,
    ev.WorkerIdentified: _worker_identified,
    ev.StepsRecorded: _steps_recorded,
    ev.NodeStepsRecorded: _steps_recorded,
    ev.NodeStepsSummed: _steps_recorded,
    ev.SpanRecorded: _span_recorded,
    ev.MetricsLogged: _metrics_logged,
    ev.ModelDescribed: _model_described,
    ev.ProgressDeclared: _progress_declared,
    ev.EpochStarted: _epoch_started,
    ev.PhaseUnseen: _phase_unseen,
    ev.NodeJoined: _node_joined,
    ev.NodeLeft: _node_left,
    ev.NodeSampled: _node_sampled,
    ev.ClockStepped: _clock_stepped,
    ev.ClockOffsetEstimated: _clock_offset_estimated,
    ev.GapFound: _gap_found,
    ev.Ticked: _ticked,
}
