"""What communication costs a step of this run, why, and how fast the reduction itself is.

Bus bandwidth is algorithm bandwidth times 2 (n - 1) / n, what each link of a ring allreduce carries (nccl-tests, PERFORMANCE.md).
Only the time in which nobody is waited for counts as transfer: what the last rank to come waits. What is sent behind the backward
pass takes time that does not show in it, so that both bandwidths are upper bounds: equal to the links' where nothing is hidden,
and far above where nearly all is.
"""

from __future__ import annotations

from dataclasses import dataclass

from distmon.core.measures import RECENT, current_generation, steady_totals, step_split
from distmon.core.state import SessionState
from distmon.core.waited import mean_waited_s

_HIDDEN = 0.05


@dataclass(slots=True, frozen=True)
class Communication:
    """Of the current generation; seconds of a mean step, without what is waited in it for a rank that evaluates or saves.

    What was not seen is None.
    """

    ranks: int
    step_s: float
    exposed_s: float
    compute_s: float | None
    compute_to_communication: float | None
    """Seconds computed for each second waited."""
    waiting_s: float | None
    """Of `exposed_s`: for the last rank."""
    transfer_s: float | None
    """Of `exposed_s`: with all ranks there."""
    bytes_per_step: int | None
    tensors: int | None
    algorithm_bytes_per_s: float | None
    """At most, as the next."""
    bus_bytes_per_s: float | None
    joined_steps: int
    steps: int
    """The most of one rank."""

    @property
    def exposed_share(self) -> float:
        return self.exposed_s / self.step_s


def communication(state: SessionState) -> Communication | None:
    """None before a step, with one rank, and where communication was not seen."""
    generation = current_generation(state)
    split = step_split(generation)
    ranks = generation.world_size or len(generation.ranks) if generation else 0
    if generation is None or split is None or split.exposed_communication is None or split.step_s <= 0 or ranks < 2:
        return None
    exposed, arrivals = split.exposed_communication, generation.arrivals
    others_s = min(mean_waited_s(state, generation) * len(generation.ranks) / max(steady_totals(generation).steps, 1), exposed)
    joined = arrivals.transfer_ns * len(arrivals.ranks) + arrivals.waiting_ns
    waiting = max(exposed * arrivals.waiting_ns / joined - others_s, 0.0) if joined else None
    exposed -= others_s
    transfer = exposed - waiting if waiting is not None else None
    model = next((r.model for _, r in sorted(state.ranks.items()) if r.model is not None), None)
    size = model.gradient_bytes if model else None
    rate = size / transfer if size and transfer else None
    return Communication(
        ranks=ranks,
        step_s=split.step_s - others_s,
        exposed_s=exposed,
        compute_s=split.compute,
        compute_to_communication=split.compute / exposed if split.compute is not None and exposed > 0 else None,
        waiting_s=waiting,
        transfer_s=transfer,
        bytes_per_step=size,
        tensors=model.tensors if model else None,
        algorithm_bytes_per_s=rate,
        bus_bytes_per_s=rate * 2 * (ranks - 1) / ranks if rate else None,
        joined_steps=arrivals.joined_steps,
        steps=max(rank.totals.steps for rank in generation.ranks.values()),
    )


def explanation(found: Communication) -> str:
    """Why this model scales as it does, with the numbers of the run, in a sentence or two."""
    size = "" if found.bytes_per_step is None else f" reduces {size_words(found.bytes_per_step)} of gradients"
    computes = "" if found.compute_s is None else f" computes for {found.compute_s * 1e3:.1f} ms"
    did = " and".join(part for part in (computes, size) if part) or f" takes {found.step_s * 1e3:.1f} ms"
    reduced = "allreduce" if found.bytes_per_step is None else "that"
    waits = f"it waits {found.exposed_s * 1e3:.1f} ms for {reduced}, {found.exposed_share:.0%} of the step"
    if found.waiting_s is not None and found.transfer_s is not None:
        waits += f": {found.waiting_s * 1e3:.1f} ms for the last rank, {found.transfer_s * 1e3:.1f} ms for the transfer"
    return f"A step{did}; {waits}. {_why(found)}"


def size_words(size: int) -> str:
    """In the decimal unit that suits it: a small model's gradients are no 0.00 MB."""
    for scale, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= scale:
            return f"{size / scale:,.1f} {name}"
    return f"{size} bytes"


def _why(found: Communication) -> str:
    if found.steps < RECENT:
        return f"What follows from that takes {RECENT} steps to say."
    if found.exposed_share < _HIDDEN:
        return "There is so little to send for so much compute that more ranks hardly wait longer."
    if found.waiting_s is not None and found.waiting_s > 0.5 * found.exposed_s:
        return "Most of it is one rank waiting for another: evener ranks gain more than a faster network."
    if found.compute_to_communication is not None and found.compute_to_communication < 2:
        return "There is too much to send for so little compute: a larger batch per rank shifts the ratio."
    return "Each rank added keeps its compute and adds to what is sent: the share grows with the ranks."
