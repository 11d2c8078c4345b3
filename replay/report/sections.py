"""The content of a report for people, once for plain text and Markdown: titled sections of facts, tables and lines."""

from __future__ import annotations

from distmon.core.communication import size_words
from distmon.core.death import death
from distmon.core.finding import CALM
from distmon.replay.report import model
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.timeline import timeline_sections
from distmon.replay.report.words import DASH, count, number, seconds, share, unit

PHASE_NAMES = {
    "input_wait": "input wait",
    "compute": "forward + backward",
    "exposed_communication": "exposed communication",
    "optimizer": "optimizer",
    "rest": "rest",
}

_LEAST_TOLD_S = 0.0005
_LEAST_PERCENT = 0.1
"""Of the time: less is told as that, as what was seen at one look alone."""
_DETAILED_NODES = 4
"""With more nodes than this their rails, cores and zones are in the JSON alone."""
_CORES_IN_A_ROW = 8
_MOST_ROWS = 12
"""Of a table that may be long, in text and Markdown; JSON and HTML have all."""
_SLOWEST = 3


def sections(session: model.Session) -> list[Section]:
    """Everything worth reading of a session, the most important first."""
    found = [
        Section("", facts=_heading(session)),
        Section("Findings", lines=_verdicts(session)),
        Section("Failure", lines=_failure(session)),
        Section("Hosts that did not answer", lines=_host_silences(session)),
        Section("Hangs", lines=_hangs(session)),
        Section("Throughput after warm-up", facts=_throughput(session) if _trained(session) else []),
        Section(step_title(session), table=_step_table(session)),
        Section("Where the time went", table=_wall_table(session)),
        Section(_books_title(session), table=_books_table(session)),
        Section("Communication", facts=_communication(session), lines=_communication_lines(session)),
        *(timeline_sections(session.horovod_timeline) if session.horovod_timeline else []),
        Section("Energy", facts=_energy(session), table=_energy_table(session)),
        Section("Ranks", table=_rank_table(session)),
        Section("Throughput of each rank after warm-up", table=_rank_throughput(session)),
        Section("Throughput of each epoch, all ranks together", table=_epoch_table(session)),
        Section("Metrics that were logged, the last value of each", table=_metric_table(session)),
        Section("Nodes", table=_node_table(session)),
        *(_hardware(session.nodes) if len(session.nodes) <= _DETAILED_NODES else []),
        Section("Who joined and left", table=_elastic_table(session)),
        Section("Generations of ranks", table=_round_table(session.elastic)),
        Section(_lost_title(session.elastic), facts=_elastic_facts(session.elastic), table=_lost_table(session.elastic)),
        Section("Gaps in the recording", table=_gap_table(session)),
        Section("Not measured", lines=_not_measured(session)),
    ]
    return [s for s in found if s.facts or s.lines or (s.table and s.table.rows)]


def overview(named: list[tuple[str, model.Session]]) -> list[Section]:
    """A row for each session, as benchmark pages have them; of nodes alone also every rail and core."""
    found = [_summary(named)]
    if len(named) > 1 and not any(_trained(session) for _, session in named):
        found += [s for s in _hardware([node for _, session in named for node in session.nodes]) if s.table and s.table.rows]
    return found


def _summary(named: list[tuple[str, model.Session]]) -> Section:
    """Sessions of nodes alone have no library, ranks or throughput: where all are, the columns are left out."""
    header = ["session", "library", "ranks", "throughput", "GPU", "CPU", "power"]
    failed = any(_failed(session) for _, session in named)
    rows = []
    for name, session in named:
        found = session.summary
        job = [
            found.library or DASH,
            DASH if found.ranks is None else str(found.ranks),
            unit(session.throughput.mean_samples_per_s, "samples/s"),
        ]
        node = [unit(found.gpu_mean_percent, "%", 3), unit(found.cpu_mean_percent, "%", 3), unit(found.power_mean_w, "W")]
        rows.append([name, *job, *node, *[ending(session) if _failed(session) else ""] * failed])
    if any(_trained(session) for _, session in named):
        return Section("Summary", table=Table([*header, *["no good end"] * failed], rows, left=(0, 1, 7)))
    return Section("Summary", table=Table([header[0], *header[4:]], [[row[0], *row[4:]] for row in rows]))


def _failed(session: model.Session) -> bool:
    return _trained(session) and session.exit_code != 0


def step_title(session: model.Session) -> str:
    """Whether the mean step is one of the steady ones."""
    return f"A{' steady' * (session.warmup.steps is not None)} step, mean over ranks"


def _trained(session: model.Session) -> bool:
    """Whether there was a job at all; a session of a node alone has none."""
    return bool(session.ranks or session.command)


def _not_measured(session: model.Session) -> list[str]:
    """What a session on its own does not show is left out."""
    keys: dict[str, list[str]] = {}
    for key, reason in session.reasons.items():
        if key.startswith("nodes.") or (_trained(session) and not key.startswith("summary.")):
            keys.setdefault(reason, []).append(key)
    return [f"{', '.join(named)}: {reason}" for reason, named in keys.items()]


def _hardware(nodes: list[model.Node]) -> list[Section]:
    """Means over time of every rail, core and zone."""
    host = {node.node: node.host or node.node for node in nodes}
    rails = [[host[node.node], rail.name, unit(rail.mean_w, "W"), rail.within or DASH] for node in nodes for rail in node.rails]
    rows = [(host[node.node], row) for node in nodes for row in _rows(node.cores)]
    width = max((len(row) for _, row in rows), default=0)
    cores = [
        [name, f"{row[0].core} to {row[-1].core}", *(number(core.mean_percent, 3) for core in row), *[""] * (width - len(row))]
        for name, row in rows
    ]
    zones = [
        [host[node.node], zone.name, unit(zone.mean_c, "°C", 3), unit(zone.max_c, "°C", 3)]
        for node in nodes
        for zone in node.temperatures
    ]
    return [
        Section("Power rails", table=Table(["node", "rail", "mean power", "within"], rails, left=(0, 1, 3))),
        Section("Cores, mean load in %", table=Table(["node", "cores", *[""] * width], cores, left=(0, 1))),
        Section("Temperatures", table=Table(["node", "zone", "mean", "highest"], zones, left=(0, 1))),
    ]


def _rows(cores: list[model.Core]) -> list[list[model.Core]]:
    return [cores[start : start + _CORES_IN_A_ROW] for start in range(0, len(cores), _CORES_IN_A_ROW)]


def _heading(session: model.Session) -> list[tuple[str, str]]:
    size = session.world_size
    ranks = DASH if size.last is None else count(size.last, "rank")
    if size.min != size.max:
        ranks += f" at the end, {size.min} to {size.max} over {count(session.elastic.generations, 'generation')}"
    where = f" on {count(len(session.nodes), 'node')}" if session.nodes else ""
    facts = [("session", session.session_id or DASH), ("started", session.started or DASH)]
    if _trained(session):
        facts.insert(1, ("command", " ".join(session.command) or DASH))
        facts.append(("ran", f"{seconds(session.duration_s)}, {ending(session)}"))
        facts.append(("job", f"{ranks}{where}, {count(session.steps, 'step')}, {unit(session.samples, 'samples', 15)}"))
    else:
        facts.append(("covers", f"{seconds(session.duration_s)}{where}, without a job"))
    if not session.complete:
        facts.append(("note", "the recording was not ended in good order: what came after its last line is missing"))
    return facts + [("note", note) for note in session.notes]


def ending(session: model.Session) -> str:
    """How its job ended, in words."""
    if session.exit_code is None:
        return "its end was not recorded" if not session.complete else "no job ended"
    return f"exit {session.exit_code}" + (f" ({session.end_reason})" if session.end_reason not in (None, "finished") else "")


def _throughput(session: model.Session) -> list[tuple[str, str]]:
    found, warm = session.throughput, session.warmup
    facts = []
    if found.mean_samples_per_s is None:
        facts.append(("mean", f"{DASH} ({session.reasons.get('throughput', 'not measured')})"))
    else:
        interval = found.ci95_samples_per_s
        sure = f", 95 % interval {number(interval[0], 5)} to {number(interval[1], 5)}" if interval else ""
        facts.append(("mean", f"{number(found.mean_samples_per_s, 5)} samples/s{sure}"))
        facts.append(("median", _quantiles(session)))
        if session.elastic.generations > 1 and found.steps is not None:
            ranks = DASH if session.world_size.last is None else count(session.world_size.last, "rank")
            last = f"generation {found.generation}, the last that trained"
            facts.append(("of", f"{count(found.steps, 'step')} with {ranks} ({last})"))
    facts.append(("session mean", f"{unit(found.session_mean_samples_per_s, 'samples/s', 5)}, warm-up and pauses included"))
    facts.append(
        ("last 30 s", f"{unit(found.last_30s_samples_per_s, 'samples/s', 5)}, {unit(found.last_30s_steps_per_s, 'steps/s')}")
    )
    if warm.steps is None:
        facts.append(("warm-up", f"{DASH} ({session.reasons.get('warmup', 'not found')})"))
    else:
        beyond = f", {seconds(warm.excess_s)} more than steady steps take" if warm.steps else ""
        stalls = f"; {count(warm.stalls, 'stall')} later" if warm.stalls else ""
        slower = "; the run slows down later" if warm.shape == "slowdown" else ""
        told = f"{beyond}{stalls}{_spells(warm.spells)}{slower}"
        facts.append(("warm-up", f"{count(warm.steps, 'step')}, {seconds(warm.duration_s)}{told}"))
    return facts


def _spells(spells: list[model.Spell]) -> str:
    """The longest."""
    if not spells:
        return ""
    found = max(spells, key=lambda spell: spell.steps * spell.step_s)
    others = f", and {count(len(spells) - 1, 'other spell')}" if len(spells) > 1 else ""
    last = found.first_step + found.steps - 1
    return f"; a spell of {seconds(found.step_s)} a step from step {found.first_step:,} to {last:,}{others}"


def _quantiles(session: model.Session) -> str:
    found = session.throughput
    if found.median_samples_per_s is None:
        return DASH
    p5, p95 = number(found.p5_samples_per_s, 5), number(found.p95_samples_per_s, 5)
    error = f", each {_within(found.quantile_error)}" if found.quantile_error else ""
    of = f", of the last {count(found.quantile_steps or 0, 'step')}" if error and found.quantile_steps != found.steps else ""
    return f"{number(found.median_samples_per_s, 5)} samples/s, p5 {p5}, p95 {p95}{error}{of}"


def _within(error: float) -> str:
    return f"± {100 * error:.1f} %"


def _step_table(session: model.Session) -> Table | None:
    if session.step_s is None:
        return None
    rows = [
        [label, seconds(value), share(value, session.step_s)]
        for key, label in PHASE_NAMES.items()
        for value in (getattr(session.step_split_s, key),)
    ]
    return Table(["phase", "time", "share"], [*rows, ["step", seconds(session.step_s), share(session.step_s, session.step_s)]])


def _wall_table(session: model.Session) -> Table | None:
    whole = session.duration_s
    parts = {part: getattr(session.wall_split_s, part) for part in session.wall_split_s.__struct_fields__}
    rows = [
        [part.replace("_", " "), seconds(value), share(value, whole)]
        for part, value in parts.items()
        if value is not None and (abs(value) >= _LEAST_TOLD_S or part in ("warmup", "steady"))
    ]
    return Table(["part", "time", "share"], [*rows, ["job", seconds(whole), share(whole, whole)]]) if rows else None


def _books_title(session: model.Session) -> str:
    ranks = f" of {count(session.rank_seconds.ranks, 'rank')}" if session.rank_seconds else ""
    return f"Rank-seconds{ranks}"


def _books_table(session: model.Session) -> Table | None:
    found = session.rank_seconds
    if found is None:
        return None
    told = {name: 0.0 if abs(value) < _LEAST_TOLD_S else value for name, value in found.parts_rank_s.items()}
    parts = [(name.replace("_", " "), value) for name, value in told.items() if value or name == "unexplained"]
    rows = [[name, seconds(value), share(value, found.total_rank_s)] for name, value in [*parts, ("in all", found.total_rank_s)]]
    return Table(["part", "rank-seconds", "share"], rows)


def _communication(session: model.Session) -> list[tuple[str, str]]:
    found = session.communication
    if found is None:
        return []
    facts = [("exposed", f"{seconds(found.exposed_s)} a step, {number(found.exposed_percent, 3)} %")]
    if found.compute_to_communication is not None:
        facts.append(("computation : communication", f"{number(found.compute_to_communication, 3)} : 1"))
    if found.waiting_s is not None:
        facts.append(("of it", f"{seconds(found.waiting_s)} for the last rank, {seconds(found.transfer_s)} transfer"))
    if found.bytes_per_step is not None:
        facts.append(("reduced", f"{size_words(found.bytes_per_step)} a step in {number(found.tensors)} tensors"))
    if found.algorithm_bytes_per_s is not None and found.bus_bytes_per_s is not None:
        rates = (f"{number(rate / 1e6)} MB/s" for rate in (found.algorithm_bytes_per_s, found.bus_bytes_per_s))
        facts.append(("bandwidth", "at most: algorithm {}, bus {}; what is sent behind compute takes time unseen".format(*rates)))
    return facts


def _communication_lines(session: model.Session) -> list[str]:
    return [session.communication.text] if session.communication else []


def _energy(session: model.Session) -> list[tuple[str, str]]:
    found = session.energy
    if found is None:
        return []
    measured = "" if found.measured_percent is None else f", measured {number(found.measured_percent, 3)} % of the time"
    facts = [
        ("in all", f"{_with_error(found)}, {number(found.energy_wh)} Wh{measured}"),
        ("covers", found.covers),
        ("power", f"{number(found.mean_w)} W mean, {number(found.peak_w)} W at most"),
    ]
    if found.idle_percent is not None:
        facts.append(("while no step was trained", f"{number(found.idle_percent, 3)} %"))
    if found.per_sample_j is not None:
        useful = ""
        if found.per_useful_sample_j is not None and found.per_useful_sample_j != found.per_sample_j:
            useful = f", {number(found.per_useful_sample_j)} J per useful one"
        facts.append(("per sample", f"{number(found.per_sample_j)} J{useful}"))
    if found.cost is not None:
        each = "" if found.cost_per_sample is None else f", {found.cost_per_sample:.3g} a sample"
        facts.append(("cost", f"{number(found.cost)} for {number(found.node_hours)} node-hours{each}"))
    return facts


def _with_error(found: model.Energy) -> str:
    if found.error_j is None:
        why = "of watts that were read fewer than three times, or were the same each time: how far it may be off is not known"
        return f"{number(found.energy_j, 5)} J ({why})"
    return f"{number(found.energy_j, 5)} ± {number(found.error_j, 2)} J"


def _error(error_j: float | None) -> str:
    return DASH if error_j is None else f"± {unit(error_j, 'J', 2)}"


def _energy_table(session: model.Session) -> Table | None:
    epochs = session.energy.epochs if session.energy else []
    if not epochs:
        return None
    rows = [[str(e.epoch + 1), unit(e.energy_j, "J"), _error(e.error_j), unit(e.per_sample_j, "J")] for e in epochs]
    brief = (*range(_MOST_ROWS - 2), len(rows) - 1) if len(rows) > _MOST_ROWS else None
    return Table(["epoch", "energy", "error", "per sample"], rows, brief=brief)


def _rank_table(session: model.Session) -> Table:
    accumulates = any(rank.micro_batches != rank.steps for rank in session.ranks)
    header = ["rank", "host", "steps", *["micro-batches"] * accumulates, "median step", *PHASE_NAMES.values(), "state"]
    rows = [
        [
            str(rank.rank),
            rank.host or DASH,
            f"{rank.steps:,}",
            *[f"{rank.micro_batches:,}"] * accumulates,
            seconds(rank.step_median_s) + (f" {_within(rank.step_median_error)}" if rank.step_median_error else ""),
            *(seconds(getattr(rank.split_s, key)) for key in PHASE_NAMES),
            rank.status,
        ]
        for rank in session.ranks
    ]
    return Table(header, rows, left=(1, len(header) - 1))


def _rank_throughput(session: model.Session) -> Table | None:
    """None where no rank has any. Of many ranks text has the first, the slowest and the last."""
    rows = [
        [
            str(rank.rank),
            rank.host or DASH,
            unit(rank.samples, "samples", 15),
            unit(rank.mean_samples_per_s, "samples/s", 5),
            unit(rank.median_samples_per_s, "samples/s", 5),
        ]
        for rank in session.ranks
    ]
    means = [rank.mean_samples_per_s for rank in session.ranks]
    if not any(mean is not None for mean in means):
        return None
    return Table(["rank", "host", "in all", "mean", "median"], rows, left=(1,), brief=_ends_and_slowest(means))


def _ends_and_slowest(rates: list[float | None]) -> tuple[int, ...] | None:
    """Places of the first, the slowest and the last of many; None of few, which are all shown."""
    if len(rates) <= _MOST_ROWS:
        return None
    return tuple(sorted({0, 1, len(rates) - 2, len(rates) - 1}.union(_slowest(rates)[:_SLOWEST])))


def _slowest(rates: list[float | None]) -> list[int]:
    """Places, the slowest first, without those that are not known."""
    return [place for _, place in sorted((rate, place) for place, rate in enumerate(rates) if rate is not None)]


def _epoch_table(session: model.Session) -> Table:
    """Of many epochs text has the first, the slowest and the last."""
    rates = [epoch.samples_per_s for epoch in session.epochs]
    slowest = _slowest(rates)[:1] if len(rates) > 1 else []
    rows = [_epoch_row(epoch, slowest=place in slowest) for place, epoch in enumerate(session.epochs)]
    return Table(["epoch", "ranks", "samples", "time", "samples/s", ""], rows, left=(5,), brief=_ends_and_slowest(rates))


def _epoch_row(epoch: model.Epoch, *, slowest: bool) -> list[str]:
    said = ["slowest"] if slowest else []
    if epoch.redone_samples:
        said.append(f"{epoch.redone_samples:,} of the samples done again after a restart")
    if epoch.training_s is not None and epoch.duration_s is not None and epoch.duration_s - epoch.training_s >= _LEAST_TOLD_S:
        said.append(f"{seconds(epoch.duration_s)} with restarts")
    ranks = DASH if epoch.ranks is None else "–".join(map(str, sorted(set(epoch.ranks))))
    samples = DASH if epoch.samples is None else f"{epoch.samples:,}"
    return [str(epoch.epoch + 1), ranks, samples, seconds(epoch.training_s), number(epoch.samples_per_s, 5), ", ".join(said)]


def _metric_table(session: model.Session) -> Table:
    rows = [
        [
            found.name,
            number(found.value),
            DASH if found.step is None else f"{found.step:,}",
            DASH if found.epoch is None else str(found.epoch + 1),
            str(found.rank),
        ]
        for found in session.metrics
    ]
    brief = tuple(range(_MOST_ROWS)) if len(rows) > _MOST_ROWS else None
    return Table(["metric", "value", "step", "epoch", "rank"], rows, brief=brief)


def _node_table(session: model.Session) -> Table:
    rows = []
    for node in session.nodes:
        rows.append(
            [
                node.host or node.node,
                unit(node.cpu_mean_percent, "%", 3),
                unit(node.power_mean_w, "W"),
                unit(node.energy_j, "J", 5),
                node.energy_covers or DASH,
            ]
        )
        for gpu in node.gpus:
            name, load = f"  gpu {gpu.index} {gpu.name}".rstrip(), unit(gpu.utilization_mean_percent, "%", 3)
            rows.append([name, load, unit(gpu.power_mean_w, "W"), "", ""])
    return Table(["node", "mean load", "mean power", "energy", "power covers"], rows, left=(0, 4))


def _host_silences(session: model.Session) -> list[str]:
    said = []
    for past in session.host_silences:
        ranks = f" (rank {', '.join(map(str, past.ranks))})" if past.ranks else ""
        end = "the end" if past.to_s is None else seconds(past.to_s)
        said.append(f"{seconds(past.from_s)} to {end}: {past.host}{ranks} did not answer")
    return said


def _hangs(session: model.Session) -> list[str]:
    """Each in a sentence; the stacks are in the JSON and the recording."""
    ends = ["the end" if hang.to_s is None else seconds(hang.to_s) for hang in session.hangs]
    return [f"{seconds(hang.from_s)} to {end}: {hang.text}" for hang, end in zip(session.hangs, ends, strict=True)]


def _elastic_table(session: model.Session) -> Table:
    rows = [
        [
            seconds(event.at_s),
            event.kind.replace("_", " "),
            event.host or DASH,
            DASH if event.rank is None else str(event.rank),
            event.detail,
        ]
        for event in session.elastic.events
    ]
    return Table(["at", "what", "host", "rank", ""], rows, left=(1, 2, 4))


def _round_table(elastic: model.Elastic) -> Table:
    """Only of a job that had several."""
    header = ["generation", "ranks", "from", "rendezvous", "initialisation", "sync", "first step", "usual", "undone", "cause"]
    rows = [
        [
            str(found.generation),
            DASH if found.world_size is None else str(found.world_size),
            *map(seconds, (found.assigned_at_s, found.rendezvous_s, found.initialisation_s, found.sync_s)),
            *map(seconds, (found.first_step_s, found.usual_step_s)),
            count(found.undone_steps, "step"),
            found.cause,
        ]
        for found in elastic.rounds
    ]
    return Table(header, rows if len(rows) > 1 else [], left=(9,))


def _lost_title(elastic: model.Elastic) -> str:
    ranks = count(elastic.books.ranks, "rank") if elastic.books else ""
    return f"Time lost as ranks came and went, of {ranks} from the first step on"


def _elastic_facts(elastic: model.Elastic) -> list[tuple[str, str]]:
    if elastic.books is None or len(elastic.rounds) < 2:
        return []
    facts = [("goodput", f"{number(elastic.goodput_percent, 3)} % of what the slots that were there could have trained")]
    if elastic.redone_steps:
        facts.append(("done again", f"{count(elastic.redone_steps, 'step')}, {number(elastic.redone_samples)} samples"))
    if elastic.commits is not None:
        part = f", {number(elastic.commits.share_percent, 2)} % of the training" if elastic.commits.share_percent else ""
        facts.append(("commits", f"{elastic.commits.count:,} of {seconds(elastic.commits.mean_s)} each{part}"))
    return facts


def _lost_table(elastic: model.Elastic) -> Table | None:
    books = elastic.books
    if books is None or len(elastic.rounds) < 2:
        return None
    lost = [(name.replace("_", " "), getattr(elastic.lost_s, name) or 0.0) for name in model.LostTime.__struct_fields__]
    whole = books.capacity_rank_s
    parts = [
        ("training that counted", books.training_rank_s),
        *lost,
        ("unexplained", books.unexplained_rank_s),
        ("in all", whole),
    ]
    return Table(["part", "rank-seconds", "share"], [[name, seconds(value), share(value, whole)] for name, value in parts])


def _gap_table(session: model.Session) -> Table:
    rows = [
        [gap.node, seconds(gap.from_s), seconds(gap.to_s), f"{gap.lost_records:,}", gap.cause or DASH] for gap in session.gaps
    ]
    return Table(["node", "from", "to", "records lost", "cause"], rows, left=(0, 4))


def _verdicts(session: model.Session) -> list[str]:
    lines = []
    for found in session.verdicts:
        gain = f"; no gain is given: {found.no_gain}" if found.kind not in CALM else ""
        if found.gain_percent is not None:
            low, high = (number(percent, 2) for percent in found.gain_percent)
            gain = f"; worth {low if low == high else f'{low} to {high}'} % of the {'step' if found.gain_of == 'step' else 'job'}"
        how = f", {found.pattern}" if found.pattern else ""
        check = f". To check: {found.check}" if found.check else ""
        lines.append(f"{found.kind}{how}: {_held(found)}{found.text} ({found.evidence}{gain}). Try: {found.try_first}{check}")
    return lines


def _held(found: model.Verdict) -> str:
    """For how long, and whether to the end."""
    if found.held_percent is None:
        return ""
    end = "the end" if found.at_end else f"{seconds(found.held_to_s)}, not at the end"
    percent = number(found.held_percent, 2) if found.held_percent >= _LEAST_PERCENT else f"less than {_LEAST_PERCENT}"
    return f"held {percent} % of the time, between {seconds(found.held_from_s)} and {end}: "


def _failure(session: model.Session) -> list[str]:
    failure = session.failure
    if failure is None:
        return []
    who = "the job" if failure.rank is None else f"rank {failure.rank}"
    host = f" on {failure.host}" if failure.host else ""
    died = death(failure.signal, failure.exit_code, failure.cause) or DASH
    hung = f"rank {', '.join(map(str, failure.hung_ranks))} hung for {seconds(failure.hung_s)}"
    under = f" under an operator's {failure.hung_signal}" * bool(failure.hung_signal)
    before = f"{hung}{under}; " * bool(failure.hung_ranks)
    return [f"{before}first to die: {who}{host}, {died}", *(f"  {line}" for line in failure.last_lines)]
