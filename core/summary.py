"""A session in one row, as benchmark pages have them: library, ranks, GPU, CPU and watts."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.core.measures import NodeMeans, node_means, samples_with_unknown, steps
from distmon.core.state import SessionState

_LIBRARIES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "keras": "Keras"}


@dataclass(slots=True, frozen=True)
class Summary:
    """Means over the session. A value that not every node could measure is None: a sum of some would pass for the whole."""

    library: str
    """Framework and version of the ranks; empty where none was told."""
    gpu_percent: float | None
    """Mean over all GPUs."""
    cpu_percent: float | None
    """Mean over nodes, weighted by their cores."""
    power_w: float | None
    """Sum over nodes of what their readings cover."""
    energy_j: float | None


def summary(state: SessionState) -> Summary:
    """The row of a session."""
    means = {name: node_means(node) for name, node in state.nodes.items()}
    cores = {name: (node.joined.cores if node.joined else None) or 1 for name, node in state.nodes.items()}
    loads = [(m.cpu_percent, cores[name]) for name, m in means.items() if m.cpu_percent is not None]
    gpus = [load for m in means.values() for _, _, load, _ in m.gpus if load is not None]
    return Summary(
        library=_library(state),
        gpu_percent=sum(gpus) / len(gpus) if gpus else None,
        cpu_percent=sum(load * n for load, n in loads) / sum(n for _, n in loads) if loads else None,
        power_w=_sum(list(means.values()), "power_w"),
        energy_j=_sum(list(means.values()), "energy_j"),
    )


def _sum(means: list[NodeMeans], name: str) -> float | None:
    values: list[float | None] = [getattr(m, name) for m in means]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _library(state: SessionState) -> str:
    found = dict.fromkeys(
        f"{_LIBRARIES.get(who.framework, who.framework)} {who.framework_version}".strip()
        for _, rank in sorted(state.ranks.items())
        if (who := rank.identity) is not None and who.framework
    )
    return " + ".join(found)


def samples_per_epoch(state: SessionState) -> int | None:
    """Samples of one epoch over all ranks; None where the framework does not say how many steps an epoch has."""
    lead = state.ranks.get(min(state.ranks)) if state.ranks else None
    done, trained = steps(state), samples_with_unknown(state)
    if lead is None or not lead.steps_per_epoch or not done or trained is None:
        return None
    return round(trained / done * lead.steps_per_epoch)
