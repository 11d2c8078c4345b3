"""Seeded readings of nodes on which nothing is wrong, as different as these are; and of some with full cores or a hot GPU."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from distmon.core import events as ev

CORES = 8
GPUS = 2
CHECKPOINT_STEPS = 400
"""From one checkpoint to the next; rank 0 writes it."""
CHECKPOINT_S = 1.5
EPOCH_STEPS = 600
FIRST_BATCH_S = 0.6
"""What all ranks wait for the first batch of an epoch, when loaders start anew."""
_MEMORY = 64 << 30
_WAITS = 1.9
"""Percent of a second, in the median, that a real rank waits for a core where each has one."""
_TENTH = 0.905
"""What is left of the kernel's ten-second means of pressure after a second."""


@dataclass(slots=True)
class VariedNode:
    """How busy, full and hot it is is drawn once, and wanders from second to second. Its loaders may fill its cores, and more."""

    node: int
    rank: int
    seed: int
    waits: float = 0.0
    """Pressure on memory, in percent, of the last checkpoint."""
    source: random.Random = field(init=False)
    cpu: float = field(init=False)
    load: float = field(init=False)
    """By core."""
    memory: float = field(init=False)
    gpu: float = field(init=False)
    temperature: float = field(init=False)
    has_gpus: bool = field(init=False)
    queue: float = field(init=False)
    """Percent of the time that the rank waits for a core in any second, as where ranks of one node begin their work together."""

    def __post_init__(self) -> None:
        self.source = source = random.Random(f"{self.seed} node {self.node}")
        self.cpu = source.choice((source.uniform(5, 90), source.uniform(90, 99.5)))
        self.load = self.cpu / 100 * source.uniform(0.8, 1.2) if self.cpu < 90 else source.uniform(0.9, 4.0)
        self.memory = source.uniform(40, 93)
        self.has_gpus = source.random() < 0.7
        self.gpu = source.uniform(15, 99)
        self.temperature = source.uniform(40, 84)
        self.queue = source.uniform(5, 60) if self.cpu >= 90 and self.has_gpus and self.gpu >= 95 else source.uniform(0, 8)

    def sample(
        self, at: float, *, saves: bool, full: bool = False, hot: bool = False, starved: bool = False, has_gpus: bool = True
    ) -> ev.NodeSampled:
        """`saves`: a checkpoint is being written; the others are faults, of which the steps tell too."""
        source = self.source
        self.waits = max(self.waits * _TENTH, source.uniform(5, 20) if saves else 0.0)
        cpu = source.uniform(98, 100) if full or (saves and self.node == 0) else min(max(source.gauss(self.cpu, 2), 0), 100)
        load = (source.uniform(2.0, 4.0) if full else max(source.gauss(self.load, 0.1), 0)) * CORES
        memory = min(source.gauss(self.memory, 0.5) + 1.5 * saves, 94.5)
        noise = source.expovariate(1.5)
        shown = (self.has_gpus and has_gpus) or hot or starved
        rate = source.uniform(1e8, 2e8) * (3 if saves and self.node == 0 else 1)
        return ev.NodeSampled(
            at=at,
            node=f"n{self.node}",
            interval_s=1.0,
            cpu_percent=cpu,
            load_1m=load,
            memory_used_bytes=int(memory / 100 * _MEMORY),
            memory_total_bytes=_MEMORY,
            pressures=[
                ev.Pressure(resource="cpu", some_percent=min(cpu * load / CORES / 2, 99.0)),
                ev.Pressure(resource="memory", some_percent=min(self.waits + noise, 99.0)),
                ev.Pressure(resource="io", some_percent=min(10 * noise + 30 * saves, 99.0)),
            ],
            networks=[ev.NetworkRate(name="eth0", received_bytes_per_s=rate, sent_bytes_per_s=rate)],
            processes=[self._process(saves=saves, full=full)],
            gpus=[self._gpu(index, hot=hot, starved=starved) for index in range(GPUS if shown else 0)],
        )

    def _process(self, *, saves: bool, full: bool) -> ev.ProcessReading:
        """Its waits for a core wander from second to second as those of real ranks do on cores that are theirs."""
        source = self.source
        noise = source.lognormvariate(math.log(_WAITS), 1.0) + (source.uniform(0, 20) if saves else 0.0)
        wait = (source.uniform(25, 60) if full else self.queue * source.gauss(1, 0.15)) + noise
        return ev.ProcessReading(
            pid=1000,
            rank=self.rank,
            cpu_percent=source.uniform(60, 110),
            memory_bytes=4 << 30,
            run_queue_wait_percent=min(max(wait, 0.0), 100.0),
        )

    def _gpu(self, index: int, *, hot: bool, starved: bool) -> ev.GpuReading:
        source, of_rank = self.source, index == 0
        return ev.GpuReading(
            index=index,
            utilization_percent=min(max(source.gauss(15 if starved else self.gpu, 5), 0), 100) if of_rank else 0.0,
            temperature_c=min(source.gauss(self.temperature, 1), 84.0) if not hot else source.uniform(90, 94),
            throttle=["hot (driver)"] if hot and of_rank else [],
            ranks=[self.rank] if of_rank else [],
        )
