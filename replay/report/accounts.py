"""A session's books in rank-seconds, its communication and its energy, for the report."""

from __future__ import annotations

from distmon.core.books import books
from distmon.core.communication import communication, explanation
from distmon.core.elastic import accounts
from distmon.core.energy import energy
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.replay.report import model


def summarise_books(state: SessionState) -> model.Books | None:
    found = books(state)
    if found is None:
        return None
    return model.Books(
        ranks=found.ranks,
        total_rank_s=found.total,
        parts_rank_s=found.parts,
        unexplained_percent=100 * found.unexplained_share,
    )


def summarise_communication(state: SessionState) -> model.Communication | None:
    found = communication(state)
    if found is None:
        return None
    return model.Communication(
        ranks=found.ranks,
        step_s=found.step_s,
        exposed_s=found.exposed_s,
        exposed_percent=100 * found.exposed_share,
        compute_s=found.compute_s,
        compute_to_communication=found.compute_to_communication,
        waiting_s=found.waiting_s,
        transfer_s=found.transfer_s,
        bytes_per_step=found.bytes_per_step,
        tensors=found.tensors,
        algorithm_bytes_per_s=found.algorithm_bytes_per_s,
        bus_bytes_per_s=found.bus_bytes_per_s,
        text=explanation(found),
    )


def summarise_energy(state: SessionState, price_per_node_hour: float | None) -> model.Energy | None:
    known = accounts(state)
    found = energy(state, (known.redone_samples or 0) if known else 0)
    if found is None:
        return None
    price = price_per_node_hour
    return model.Energy(
        energy_j=found.joules,
        error_j=found.error_j,
        energy_wh=found.watt_hours,
        covers=clean(found.covers),
        mean_w=found.mean_w,
        peak_w=found.peak_w,
        idle_percent=100 * found.idle_joules / found.joules if found.joules and found.idle_joules is not None else None,
        measured_percent=None if found.measured_share is None else 100 * found.measured_share,
        per_sample_j=found.per_sample_j,
        per_useful_sample_j=found.per_useful_sample_j,
        epochs=[
            model.EpochEnergy(epoch=e.epoch, energy_j=e.joules, error_j=e.error_j, per_sample_j=e.per_sample_j)
            for e in found.epochs
        ],
        readings=[
            model.EnergyReading(
                host=clean(r.node),
                name=clean(r.name),
                energy_j=r.joules,
                error_j=r.error_j,
                measured_s=r.seconds,
                mean_w=r.mean_w,
                peak_w=r.peak_w,
                counted_percent=100 * r.counted_share,
                within=clean(r.within),
            )
            for r in found.readings
        ],
        node_hours=found.node_seconds / 3600,
        cost=None if price is None else found.cost(price),
        cost_per_sample=None if price is None else found.cost_per_sample(price),
    )
