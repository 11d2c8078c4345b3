"""From the state to the report's structures. Every figure comes from core; here they are only named and put in order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from msgspec import structs

from distmon.core import measures
from distmon.core.elastic import accounts
from distmon.core.energy import energy
from distmon.core.epoch_throughput import EpochThroughput, epoch_throughputs
from distmon.core.epochs import MOST_EPOCHS
from distmon.core.finding import Verdict, key_of, why_no_gain
from distmon.core.held import FindingsHeld, Held
from distmon.core.leaps import REASON, all_leaps, before_the_job, leap_words, told_once
from distmon.core.loss_verdicts import hang_behind
from distmon.core.overall import RankOverall, rank_overalls, throughput_interval
from distmon.core.printable import clean
from distmon.core.state import NodeState, SessionState
from distmon.core.steps import Generation
from distmon.core.summary import summary
from distmon.core.verdicts import cannot_tell, verdicts
from distmon.core.waited import SPANS_WAITED_FOR, mean_waited_s, steady_throughput, waited_share, waits_untold
from distmon.core.wall import restarts, wall_split
from distmon.core.warmup import METHOD
from distmon.replay.report import model
from distmon.replay.report.accounts import summarise_books, summarise_communication, summarise_energy
from distmon.replay.report.elastic import summarise_elastic
from distmon.replay.report.hangs import summarise_hangs, summarise_host_silences
from distmon.replay.report.mask import masked, masked_command
from distmon.replay.report.reasons import NO_POWER_MODE, add_reasons, numbers
from distmon.replay.report.words import count, seconds

_UNNAMED = 0.1
"""From this share of the job's time on it is said that it has no name."""
_TOLD = 8
"""Nodes named in notes, and times of each; `silences` has all."""


def summarise(
    state: SessionState,
    file: str = "",
    notes: list[str] | None = None,
    price_per_node_hour: float | None = None,
    held: FindingsHeld | None = None,
) -> model.Session:
    """The report of a session as far as the state goes.

    `notes` says what of its file could not be read, `held` which findings there were on the way; without it only those of the end
    are told.
    """
    job = state.job
    sizes = _sizes(state)
    split = measures.step_split(measures.current_generation(state))
    throughput, overalls, epochs = _throughput(state), rank_overalls(state), epoch_throughputs(state)
    session = model.Session(
        session_id=clean(state.session_id),
        started=_iso(job.started.at if job.started else state.started),
        duration_s=measures.elapsed(state),
        complete=state.complete,
        command=masked_command([clean(word) for word in job.started.command]) if job.started else [],
        exit_code=job.exit_code,
        end_reason=job.end_reason or None,
        world_size=model.WorldSize(min=min(sizes, default=None), max=max(sizes, default=None), last=sizes[-1] if sizes else None),
        steps=measures.steps(state),
        samples=measures.samples(state),
        throughput=throughput,
        warmup=_warmup(state),
        step_s=split.step_s if split else None,
        step_split_s=_split(split),
        wall_split_s=_wall(state),
        rank_seconds=summarise_books(state),
        communication=summarise_communication(state),
        horovod_timeline=None,
        energy=summarise_energy(state, price_per_node_hour),
        ranks=[_rank(state, overall) for overall in overalls],
        epochs=[_epoch(epoch) for epoch in epochs],
        metrics=_metrics(state),
        nodes=[_node(state, node) for _, node in sorted(state.nodes.items(), key=lambda item: (item[1].host, item[0]))],
        elastic=summarise_elastic(state, lambda at: _since(state, at)),
        hangs=summarise_hangs(state, lambda at: _since(state, at)),
        host_silences=summarise_host_silences(state, lambda at: _since(state, at)),
        failure=_failure(state),
        verdicts=_verdicts(state, held or FindingsHeld()),
        gaps=_gaps(state),
        file=file,
        distmon_version=clean(state.distmon_version),
        summary=_summary(state, sizes),
        unknown_kinds={clean(kind): times for kind, times in sorted(state.unknown_kinds.items())},
        notes=(notes or []) + [note for told in _NOTES for note in told(state)],
        reasons=_reasons(state, throughput, overalls) | _throughput_reasons(state, overalls, epochs) | _energy_reasons(state),
    )
    add_reasons(session)
    return session


def _sizes(state: SessionState) -> list[int]:
    """Ranks of each generation that trained, in order; of each that was begun where none did."""
    known = [(g.world_size, bool(g.ranks)) for _, g in sorted(state.generations.items()) if g.world_size is not None]
    return [size for size, trained in known if trained] or [size for size, _ in known]


def _summary(state: SessionState, sizes: list[int]) -> model.Summary:
    found = summary(state)
    return model.Summary(
        library=clean(found.library),
        ranks=sizes[-1] if sizes else None,
        gpu_mean_percent=found.gpu_percent,
        cpu_mean_percent=found.cpu_percent,
        power_mean_w=found.power_w,
    )


def _plain_pairs(reasons: dict[str, str]) -> dict[str, str]:
    return {clean(name): clean(reason) for name, reason in sorted(reasons.items())}


def _iso(at: float | None) -> str | None:
    """UTC, to the millisecond; None for a time outside the calendar."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def _since(state: SessionState, at: float) -> float:
    """Seconds since the job started, or since the session did where no job is known."""
    begun = state.job.started.at if state.job.started else state.started
    return at - (begun if begun is not None else at)


def _throughput(state: SessionState) -> model.Throughput:
    generation = measures.current_generation(state)
    found = steady_throughput(state)
    return model.Throughput(
        generation=generation.number if generation else None,
        steps=found.steps,
        mean_samples_per_s=found.mean,
        median_samples_per_s=found.median,
        p5_samples_per_s=found.p5,
        p95_samples_per_s=found.p95,
        quantile_error=None if found.median is None or _has_sums(generation) else found.quantile_error,
        quantile_steps=found.quantile_steps,
        ci95_samples_per_s=throughput_interval(state),
        session_mean_samples_per_s=measures.session_mean_throughput(state),
        last_30s_samples_per_s=measures.rolling_throughput(state),
        last_30s_steps_per_s=measures.rolling_steps_per_s(state),
    )


def _warmup(state: SessionState) -> model.Warmup:
    generation = measures.current_generation(state)
    if generation is None:
        return model.Warmup(steps=None, duration_s=None, method=METHOD, excess_s=None, shape="no_steps", stalls=0, spells=[])
    found = measures.warmup(generation)
    return model.Warmup(
        steps=found.steps,
        duration_s=found.duration_s,
        method=METHOD,
        excess_s=found.excess_s,
        shape=found.shape,
        stalls=measures.stalls(generation),
        spells=[model.Spell(first_step=s.first, steps=s.end - s.first, step_s=s.step_s) for s in found.spells],
    )


def _split(split: measures.Split | None) -> model.StepSplit:
    if split is None:
        return model.StepSplit(input_wait=None, compute=None, exposed_communication=None, optimizer=None, rest=None)
    return model.StepSplit(
        input_wait=split.input_wait,
        compute=split.compute,
        exposed_communication=split.exposed_communication,
        optimizer=split.optimizer,
        rest=split.rest,
    )


def _wall(state: SessionState) -> model.WallSplit:
    found = wall_split(state)
    parts = found.parts() if found else dict.fromkeys(model.WallSplit.__struct_fields__)
    return model.WallSplit(**parts)


def _rank(state: SessionState, overall: RankOverall) -> model.Rank:
    known = state.ranks.get(overall.rank)
    return model.Rank(
        rank=overall.rank,
        host=clean(overall.host),
        steps=overall.steps,
        micro_batches=overall.micro_batches,
        step_median_s=overall.step_median_s,
        samples=overall.throughput.samples,
        mean_samples_per_s=overall.throughput.mean,
        median_samples_per_s=overall.throughput.median,
        step_median_error=overall.step_median_error,
        split_s=_split(overall.steady),
        status=clean(measures.rank_status(state, overall.rank)),
        unseen=_plain_pairs(known.unseen) if known else {},
    )


def _epoch(found: EpochThroughput) -> model.Epoch:
    return model.Epoch(
        epoch=found.epoch,
        ranks=found.ranks,
        samples=found.samples,
        redone_samples=found.redone_samples,
        duration_s=found.duration_s,
        training_s=found.training_s,
        samples_per_s=found.samples_per_s,
    )


def _metrics(state: SessionState) -> list[model.Metric]:
    """What the script, or its framework, logged last under each name."""
    ranks = sorted(state.ranks.items(), reverse=True)
    last = {name: (rank, metric) for rank, known in ranks for name, metric in known.metrics.items()}
    return [
        model.Metric(name=clean(name), rank=rank, value=found.value, step=found.step, epoch=found.epoch)
        for name, (rank, found) in sorted(last.items())
    ]


def _node(state: SessionState, node: NodeState) -> model.Node:
    means = measures.node_means(node)
    mode, unavailable = (node.sample.power_mode, node.sample.unavailable) if node.sample else ("", {})
    return model.Node(
        node=clean(node.node),
        host=clean(node.host),
        cpu_mean_percent=means.cpu_percent,
        power_mean_w=means.power_w,
        energy_j=means.energy_j,
        energy_covers=clean(means.energy_covers),
        rails=[model.Rail(name=clean(name), mean_w=watts, within=clean(node.rails[name].within)) for name, watts in means.rails],
        gpus=[
            model.Gpu(index=index, name=clean(name), utilization_mean_percent=utilisation, power_mean_w=watts)
            for index, name, utilisation, watts in means.gpus
        ],
        cores=[model.Core(core=core, mean_percent=percent) for core, percent in enumerate(means.cores)],
        temperatures=[model.Zone(name=clean(name), mean_c=mean, max_c=highest) for name, mean, highest in means.temperatures],
        power_mode=clean(mode) or None,
        silences=[
            model.Silence(from_s=_since(state, begun), to_s=None if ended is None else _since(state, ended))
            for begun, ended in _silences(node)
        ],
        unavailable=_plain_pairs(unavailable if mode else {"power_mode": NO_POWER_MODE} | unavailable),
    )


def _silences(node: NodeState) -> list[tuple[float, float | None]]:
    """(from, to); no end for one that still lasted at the end of the session."""
    lasting: list[tuple[float, float | None]] = [] if node.lost_since is None else [(node.lost_since, None)]
    return [*node.silences, *lasting]


def _failure(state: SessionState) -> model.Failure | None:
    failure = state.job.failure
    if failure is None:
        return None
    hang = hang_behind(state)
    return model.Failure(
        rank=failure.rank,
        host=clean(failure.host),
        signal=clean(failure.signal),
        cause=clean(failure.cause),
        exit_code=failure.exit_code,
        last_lines=[masked(clean(line)) for line in failure.last_lines],
        hung_ranks=hang.ranks if hang is not None else [],
        hung_s=hang.lasted_s if hang is not None else None,
        hung_signal=hang.signal if hang is not None else "",
    )


def _verdicts(state: SessionState, followed: FindingsHeld) -> list[model.Verdict]:
    """Those of the end, then those that held for a good part of the time and that the former do not tell of."""
    last, begun, leaps = verdicts(state), state.now - _since(state, state.now), all_leaps(state)
    told = {key_of(found) for found in last}
    transient = {(found.kind, found.rank) for found in last if found.pattern == "transient"}
    past = [
        held
        for held in followed.lasting()
        if key_of(held.verdict) not in told and (held.verdict.kind, held.verdict.rank) not in transient
        if held.verdict.kind not in ("agent_silent", "stall") or told_once(leaps, begun + held.from_s, begun + held.to_s)
    ]
    if any(found.kind == "restart_dominated" for found in last):
        past = [_within_restarts(state, held) for held in past]
    return [
        *(_verdict(found, followed, followed.found.get(key_of(found)), at_end=found.pattern != "transient") for found in last),
        *(_verdict(held.verdict, followed, held, at_end=followed.to_the_end(held)) for held in past),
    ]


_LOOK_S = 1.0
"""By which a finding's time may be longer than what it is of: it is looked at so often."""


def _within_restarts(state: SessionState, held: Held) -> Held:
    """A standstill that is the time of restarts says so: else who adds up findings would count it twice."""
    spans = [(_since(state, since), _since(state, to)) for since, to in restarts(state)]
    within = sum(max(0.0, min(to, held.to_s) - max(since, held.from_s)) for since, to in spans)
    if held.verdict.kind != "stall" or held.seconds > within + _LOOK_S:
        return held
    told = "; this time is part of the restarts that restart_dominated tells of, and is not to be added to them"
    return replace(held, verdict=structs.replace(held.verdict, evidence=held.verdict.evidence + told))


def _verdict(found: Verdict, followed: FindingsHeld, held: Held | None, *, at_end: bool) -> model.Verdict:
    return model.Verdict(
        kind=found.kind,
        rank=found.rank,
        host=clean(found.host),
        phase=found.phase,
        from_s=found.from_s,
        to_s=found.to_s,
        at_end=at_end,
        held_from_s=held.from_s if held else None,
        held_to_s=held.to_s if held else None,
        held_s=held.seconds if held else None,
        held_percent=100 * followed.share(held) if held else None,
        evidence=clean(found.evidence),
        gain_percent=found.gain_percent,
        gain_of=found.gain_of,
        no_gain=why_no_gain(found),
        try_first=found.try_first,
        check=clean(found.check),
        pattern=found.pattern,
        text=clean(found.text),
    )


def _gaps(state: SessionState) -> list[model.Gap]:
    return [
        model.Gap(
            node=clean(gap.node),
            from_s=_since(state, gap.started),
            to_s=_since(state, gap.ended),
            lost_records=gap.lost_records,
            cause=clean(gap.cause),
        )
        for gap in state.gaps
    ]


def _import_warnings(state: SessionState) -> list[str]:
    """What the importer had to say about the file that the session was made from."""
    if state.origin == "live":
        return []
    return [clean(entry.text) for entry in state.log if entry.severity == "warning"]


def _lost_output(state: SessionState) -> list[str]:
    if not state.output_dropped:
        return []
    written = count(state.output_dropped + state.output_lines, "line")
    return [f"{state.output_dropped:,} of {written} of the ranks' output lost: they came faster than distmon could take"]


def _has_sums(generation: Generation | None) -> bool:
    return generation is not None and any(rank.summed_steps for rank in generation.ranks.values())


def _summed_steps(state: SessionState) -> list[str]:
    ranks = [rank for generation in state.generations.values() for rank in generation.ranks.values()]
    summed, steps = sum(rank.summed_steps for rank in ranks), sum(rank.sums[0] for rank in ranks)
    if not summed:
        return []
    return [
        f"{summed:,} of {steps:,} steps of single ranks came as sums of about a second: their times are means, which hide what "
        "a single step took and who was late; the agents' journals have each (distmon pull)"
    ]


def _unknown_samples(state: SessionState) -> list[str]:
    """That the samples of single steps are not known, where those of nearly all are."""
    ranks = [rank for generation in state.generations.values() for rank in generation.ranks.values()]
    steps, unknown = sum(rank.sums[0] for rank in ranks), sum(rank.sums[0] - rank.sums[3] for rank in ranks)
    if not unknown or measures.samples(state) is None:
        return []
    return [
        f"the samples of {unknown:,} of {steps:,} steps of single ranks are not known: the number of samples is without them, "
        "speeds and what is per sample take these steps to be as the others"
    ]


def _waited(state: SessionState) -> list[str]:
    """That steps hold the wait for a rank that evaluates or saves alone, where that is more than how evenly all do."""
    generation = measures.current_generation(state)
    if generation is None:
        return []
    if waits_untold(state) and any(span.span in SPANS_WAITED_FOR for span in state.spans):
        return [
            f"only the last {state.spans.maxlen:,} evaluations and checkpoints are kept one by one, and it trained in several "
            "generations: where ranks wait for one that evaluates or saves alone, that is in their steps, and in the speeds"
        ]
    if not (share := waited_share(state, generation)):
        return []
    waited, of = mean_waited_s(state, generation), " in the last generation" if generation.number else ""
    return [
        f"{waited:.2f} s of a rank's steps{of}, {share:.0%} of them, are its wait for another that evaluates or saves alone: "
        "the mean step holds that; the speeds, the communication, the scaling and the rank-seconds do not"
    ]


def _silent_nodes(state: SessionState) -> list[str]:
    """A sentence for each of the first nodes that fell silent, and how many more did."""
    hosts = {past.host for past in state.host_silences}
    nodes = [node for node in state.nodes.values() if node.host not in hosts]  # of those, the report has a part
    silent = [(clean(node.host or node.node), found) for node in nodes if (found := _silences(node))]
    said = []
    for name, found in sorted(silent)[:_TOLD]:
        times = [f"{seconds(_since(state, begun))} to {_until(state, ended)}" for begun, ended in found[:_TOLD]]
        more = f", and {count(len(found) - _TOLD, 'more time')}" if len(found) > _TOLD else ""
        said.append(f"nothing was heard of node {name} from {', from '.join(times)}{more}")
    if len(silent) > _TOLD:
        said.append(f"{count(len(silent) - _TOLD, 'more node')} fell silent: see silences in --json")
    return said


def _until(state: SessionState, at: float | None) -> str:
    return "the end" if at is None else seconds(_since(state, at))


def _reasons(state: SessionState, throughput: model.Throughput, overalls: list[RankOverall]) -> dict[str, str]:
    """Key (dots for nesting) -> why it is null."""
    generation = measures.current_generation(state)
    reasons: dict[str, str] = {}
    if throughput.mean_samples_per_s is None:
        reasons["throughput"] = measures.throughput(generation).reason or "the steady steps took no time"
    elif throughput.ci95_samples_per_s is None:
        reasons["throughput.ci95_samples_per_s"] = "too few steady steps for an interval: it takes 50"
    if throughput.median_samples_per_s is not None and throughput.quantile_error is None:
        reasons["throughput.quantile_error"] = "some steps came as sums of about a second, which hide how single ones differ"
    if generation is None:
        reasons["step_split_s"] = reasons["warmup"] = "no rank reported a step"
    elif measures.warmup(generation).steps is None:
        reasons["warmup"] = measures.why_no_warmup(generation)
        if (wall := wall_split(state)) is not None and wall.warmup is None:
            reasons["wall_split_s.warmup"] = "warm-up and steady state could not be told apart: all steps are in steady"
    if generation is not None and (untold := cannot_tell(state)):
        reasons["verdicts"] = clean("; ".join(untold))
    if measures.samples(state) is None:
        reasons["samples"] = "the number of samples in a batch was not seen" if generation else "no rank reported a step"
    if state.job.exit_code is None:
        reasons["exit_code"] = "the job's end was not recorded"
    wall = wall_split(state)
    if wall is not None and wall.launch is None:
        reasons["wall_split_s.launch"] = "the start of the workers was not recorded: it is in initialisation"
    if wall is not None and wall.redone is None and generation is not None:
        reasons["wall_split_s.redone"] = "steps done again after a restart are not told apart: they are in steady"
    if len(state.generations) > 1 and accounts(state) is None:
        reasons["elastic.lost_s"] = "no rendezvous of an elastic launcher was recorded; the sum is wall_split_s.restart"
    reasons |= _phase_reasons(state, overalls) | _leap_reasons(state, throughput)
    for node in state.nodes.values():
        if measures.node_means(node).power_w is None:
            why = next((r for name, r in node.sample.unavailable.items() if "power" in name), "") if node.sample else ""
            reasons[f"nodes.{clean(node.node)}.power_mean_w"] = clean(why) or "no power reading on this node"
    return reasons


def _energy_reasons(state: SessionState) -> dict[str, str]:
    """Why there is none of a sample or of an epoch, where power was measured."""
    found, reasons = energy(state), dict[str, str]()
    if found is None or measures.current_generation(state) is None:
        return reasons
    if not found.nearly_all and found.measured_share is not None and found.samples:
        share = f"power was measured for {found.measured_share:.1%} of the time"
        reasons["energy.per_sample_j"] = f"{share}: how many samples were trained in it is not known"
    if not found.epochs and not found.no_epoch:
        reasons["energy.epochs"] = "no step was told with its epoch: the framework's loop, or distmon.probe, tells it"
    said: dict[str, list[int]] = {}
    for epoch, reason in found.no_epoch.items():
        said.setdefault(reason, []).append(epoch)
    return reasons | {f"energy.epochs.{numbers(those)}.energy_j": reason for reason, those in said.items()}


def _throughput_reasons(state: SessionState, overalls: list[RankOverall], epochs: list[EpochThroughput]) -> dict[str, str]:
    """Why ranks or epochs have no throughput, once for all with the same reason."""
    if measures.current_generation(state) is None:
        return {}
    reasons: dict[str, str] = {}
    if not epochs:
        reasons["epochs"] = "no step was told with its epoch: the framework's loop, or distmon.probe, tells it"
    elif len(state.epochs) >= MOST_EPOCHS:
        reasons["epochs"] = f"only the first {MOST_EPOCHS:,} are kept"
    said: dict[tuple[str, str, str], list[int]] = {}
    for overall in overalls:
        why = overall.throughput.reason
        for key, reason in (("mean", why), ("median", why or overall.throughput.no_median)):
            if reason:
                said.setdefault(("ranks", f"{key}_samples_per_s", reason), []).append(overall.rank)
    for epoch in epochs:
        if epoch.reason:
            said.setdefault(("epochs", "samples_per_s", epoch.reason), []).append(epoch.epoch)
    for (kind, key, reason), those in said.items():
        name = f"{kind}.{numbers(those)}.{key}"
        reasons[name] = f"{reasons[name]}; {reason}" if name in reasons else reason
    return reasons


def _phase_reasons(state: SessionState, overalls: list[RankOverall]) -> dict[str, str]:
    """Why phases are missing, in how many steps: what the probes said, once for all ranks that said the same.

    A phase that was seen in every step after all needs no reason.
    """
    said: dict[tuple[str, str], list[RankOverall]] = {}
    for overall in overalls:
        known = state.ranks.get(overall.rank)
        for name, reason in known.unseen.items() if known else ():
            if not overall.steps or overall.missing.get(name) != 0:
                said.setdefault((name, reason), []).append(overall)
    return {
        f"ranks.{numbers(rank.rank for rank in ranks)}.{clean(name)}": _how_often(ranks, name) + clean(reason)
        for (name, reason), ranks in sorted(said.items(), key=lambda item: item[0])
    }


def _how_often(ranks: list[RankOverall], name: str) -> str:
    """For a field that was seen in some steps: in how many of the ranks' steps it was not."""
    steps = sum(rank.steps for rank in ranks)
    missing = sum(rank.missing.get(name, rank.steps) for rank in ranks)
    return f"not seen in {missing:,} of {count(steps, 'step')}: " if missing < steps else ""


def _leaps(state: SessionState) -> list[str]:
    """That times of steps cannot be, a line for each host."""
    early = {}
    for made in (made for generation in state.generations.values() for made in generation.ranks.values()):
        if early_s := before_the_job(state, made):
            host = clean(state.ranks[made.rank].host) if made.rank in state.ranks else ""
            early[host or f"rank {made.rank}"] = early_s
    behind = [
        f"the times of {host} begin {early_s:.1f} s before the job: its clock and the viewer's differ; "
        "figures that span that are not given"
        for host, early_s in sorted(early.items())
    ]
    return behind + [clean(said) for said in leap_words(state)]


def _leap_reasons(state: SessionState, throughput: model.Throughput) -> dict[str, str]:
    """What is not told because clocks were set."""
    wall, reasons = wall_split(state), dict[str, str]()
    if not _leaps(state):
        return reasons
    for part in ("initialisation", "restart", "tail"):
        if wall is not None and getattr(wall, part) is None:
            reasons[f"wall_split_s.{part}"] = f"{REASON}: it is in unexplained, as in the rank-seconds"
    if throughput.mean_samples_per_s is not None:
        for key in ("session_mean_samples_per_s", "last_30s_samples_per_s", "last_30s_steps_per_s"):
            if getattr(throughput, key) is None:
                reasons[f"throughput.{key}"] = REASON
    return reasons


def _unnamed(state: SessionState) -> list[str]:
    wall, whole = wall_split(state), measures.elapsed(state)
    if wall is None or not whole or wall.unexplained < _UNNAMED * whole:
        return []
    return [
        f"{wall.unexplained / whole:.0%} of the job's time lies between steps and has no name: something that no hook sees; "
        "`with probe.span(...)` in the script names it (from distmon import probe)"
    ]


_NOTES = (_import_warnings, _lost_output, _leaps, _silent_nodes, _summed_steps, _unknown_samples, _waited, _unnamed)
"""What may have to be said before any figure."""
