"""What a node can tell about itself, a file per source. GPUs and boards get their files here and their line in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from distmon.agent.sensors.base import Roots, Sensor
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.load import LoadSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.temperatures import TemperatureSensor


class Source(NamedTuple):
    """`may_block`: a read can take long (a slow bus, a sick driver), so it gets a thread of its own and a deadline."""

    name: str
    make: Callable[[Roots], Sensor]
    may_block: bool = False


SOURCES = (
    Source("cpu", CpuSensor),
    Source("memory", MemorySensor),
    Source("load", LoadSensor),
    Source("disks", DiskSensor),
    Source("power", RaplSensor, may_block=True),
    Source("temperatures", TemperatureSensor, may_block=True),
)
"""Network and processes are made by the sampler itself, which tells them about the ranks."""
