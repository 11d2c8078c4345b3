"""Why keys of a report are null, where what made them says no more than that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distmon.core.arrivals import BLOCK
from distmon.core.leaps import REASON
from distmon.core.reconcile import ENDS_BEFORE_START
from distmon.replay.report import model

_NO_STEP = "no rank reported a step"
_NO_SAMPLES = "the number of samples in a batch was not seen"
_SUMS = "its steps came as sums of about a second, which hide how single steps differ"
_NO_GRADIENTS = "no rank told how large its gradients are"
_UNCHANGED = "watts that were read fewer than three times, or were the same each time, do not tell how the power changed between"
NO_POWER_MODE = "none was told: only Jetson boards have one"


def add_reasons(session: model.Session) -> None:
    """Adds one for each value that a measurement could have given, is null, and has none; those that are there stay."""
    there = set(session.reasons)
    for key, reason in _missing(session):
        if not any(key == other or key.startswith(f"{other}.") for other in there):
            session.reasons.setdefault(key, reason)


def numbers(found: Iterable[int]) -> str:
    """`0+1+4-9`: numbers apart by +, three or more that follow one another from - to."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "+".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "+".join(map(str, run)) for run in runs)


def _missing(session: model.Session) -> Iterator[tuple[str, str]]:
    yield from _of_job(session)
    yield from _of_steps(session)
    yield from _of_communication(session)
    yield from _of_nodes(session)
    yield from _of_energy(session)


def _of_job(session: model.Session) -> Iterator[tuple[str, str]]:
    if session.started is None:
        yield "started", "no start was recorded"
    if session.duration_s is None:
        why = "no start was recorded" if session.started is None else ENDS_BEFORE_START
        yield from ((key, why) for key in ("duration_s", *(("wall_split_s", "rank_seconds") if session.steps else ())))
        if session.energy is not None and session.samples:
            yield from ((f"energy.{key}", why) for key in ("per_sample_j", "per_useful_sample_j"))
    if session.end_reason is None:
        yield "end_reason", session.reasons.get("exit_code", "how the job ended was not told")
    if session.world_size.last is None:
        yield "world_size", "no rendezvous and no step were recorded"
        yield "summary.ranks", "no rendezvous and no step were recorded"


def _of_steps(session: model.Session) -> Iterator[tuple[str, str]]:
    stepless = [rank.rank for rank in session.ranks if not rank.steps]
    if stepless:
        yield f"ranks.{numbers(stepless)}", "it reported no step"
    if not any(rank.steps for rank in session.ranks):
        for key in ("step_s", "rank_seconds", "wall_split_s"):
            yield key, _NO_STEP
    if unsampled := [rank.rank for rank in session.ranks if rank.steps and rank.samples is None]:
        yield f"ranks.{numbers(unsampled)}.samples", _NO_SAMPLES
    if summed := [rank.rank for rank in session.ranks if rank.steps and rank.step_median_s is None]:
        for key in ("step_median_s", "step_median_error"):
            yield f"ranks.{numbers(summed)}.{key}", _SUMS
    yield from _of_epochs(session)


def _of_epochs(session: model.Session) -> Iterator[tuple[str, str]]:
    if unsampled := [epoch.epoch for epoch in session.epochs if epoch.samples is None]:
        for key in ("samples", "redone_samples"):
            yield f"epochs.{numbers(unsampled)}.{key}", _NO_SAMPLES
    if unknown := [epoch.epoch for epoch in session.epochs if epoch.ranks is None]:
        yield f"epochs.{numbers(unknown)}.ranks", "which ranks trained it was not told"
    if untimed := [epoch.epoch for epoch in session.epochs if epoch.duration_s is None]:
        for key in ("duration_s", "training_s"):
            yield f"epochs.{numbers(untimed)}.{key}", REASON
    if mixed := [epoch.epoch for epoch in session.epochs if epoch.duration_s is not None and epoch.training_s is None]:
        yield f"epochs.{numbers(mixed)}.training_s", "between its first step and its last lie others, or records were lost"


def _of_communication(session: model.Session) -> Iterator[tuple[str, str]]:
    found = session.communication
    if found is None:
        yield "communication", _no_communication(session)
        return
    for key in ("bytes_per_step", "tensors"):
        if getattr(found, key) is None:
            yield f"communication.{key}", _NO_GRADIENTS
    apart = f"no {BLOCK} steps in a row were seen on all ranks"
    for key in ("waiting_s", "transfer_s"):
        if getattr(found, key) is None:
            yield f"communication.{key}", apart
    for key in ("algorithm_bytes_per_s", "bus_bytes_per_s"):
        if getattr(found, key) is None:
            yield f"communication.{key}", _no_bandwidth(found, apart)
    if found.compute_s is None:
        yield "communication.compute_s", "compute was not seen"
    if found.compute_to_communication is None:
        yield "communication.compute_to_communication", "compute was not seen, or nothing was waited for"


def _no_communication(session: model.Session) -> str:
    if session.step_s is None:
        return _NO_STEP
    return "one rank sends nothing" if session.world_size.last == 1 else "what training waited for allreduce was not seen"


def _no_bandwidth(found: model.Communication, apart: str) -> str:
    if not found.bytes_per_step:
        return _NO_GRADIENTS if found.bytes_per_step is None else "it has no gradients to reduce"
    return apart if found.transfer_s is None else "the transfer took no time that was waited for"


def _of_nodes(session: model.Session) -> Iterator[tuple[str, str]]:
    for node in session.nodes:
        name = f"nodes.{node.node}"
        if node.cpu_mean_percent is None:
            yield f"{name}.cpu_mean_percent", node.unavailable.get("cpu_percent", "it was never read")
        if node.energy_j is None:
            yield f"{name}.energy_j", session.reasons.get(f"{name}.power_mean_w", "no power reading on this node")
        for gpu in node.gpus:
            if gpu.utilization_mean_percent is None:
                yield f"{name}.gpus.{gpu.index}.utilization_mean_percent", "it was never read"
            if gpu.power_mean_w is None:
                yield f"{name}.gpus.{gpu.index}.power_mean_w", "it was never read; that of a board's GPU is in the board's rails"
        for rail in node.rails:
            if rail.mean_w is None:
                yield f"{name}.rails.{rail.name}.mean_w", "it was never read"
        for zone in node.temperatures:
            if zone.mean_c is None:
                yield f"{name}.temperatures.{zone.name}.mean_c", "it was never read"
    if session.summary.gpu_mean_percent is None:
        seen = any(node.gpus for node in session.nodes)
        yield "summary.gpu_mean_percent", "no GPU told its load" if seen else "no GPU was seen on any node"
    if session.summary.cpu_mean_percent is None:
        yield "summary.cpu_mean_percent", "no node told its load"
    if session.summary.power_mean_w is None:
        yield "summary.power_mean_w", "not every node told its power: a sum of some would pass for the whole"


def _of_energy(session: model.Session) -> Iterator[tuple[str, str]]:
    found, samples = session.energy, session.reasons.get("samples", "no samples were trained")
    if found is None:
        yield "energy", "; ".join(_no_power(session)) or "no node was sampled"
        return
    alike = [reading for reading in found.readings if reading.error_j is None]
    for name in dict.fromkeys(reading.name for reading in alike):
        yield f"energy.readings.{name}.error_j", _UNCHANGED
    if found.error_j is None:
        first = f"of {alike[0].name} on {alike[0].host}" + f", and of {len(alike) - 1} more" * (len(alike) > 1)
        yield "energy.error_j", f"{_UNCHANGED}: {first}"
    partly = session.reasons.get("energy.per_sample_j", samples)
    for key in ("per_sample_j", "per_useful_sample_j"):
        if getattr(found, key) is None:
            yield f"energy.{key}", partly
    if found.idle_percent is None:
        yield "energy.idle_percent", REASON if found.energy_j else "no energy was used"
    if found.measured_percent is None:
        yield "energy.measured_percent", "the time that it is of is not known"
    if unknown := [epoch.epoch for epoch in found.epochs if epoch.error_j is None]:
        yield f"energy.epochs.{numbers(unknown)}.error_j", _UNCHANGED
    if unsampled := [epoch.epoch for epoch in found.epochs if epoch.per_sample_j is None]:
        yield f"energy.epochs.{numbers(unsampled)}.per_sample_j", samples


def _no_power(session: model.Session) -> list[str]:
    """What the nodes say, each reason once."""
    said = dict.fromkeys(session.reasons.get(f"nodes.{node.node}.power_mean_w", "") for node in session.nodes)
    return [reason for reason in said if reason]
