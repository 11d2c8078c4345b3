"""What a node can tell about itself, a file per source. GPUs and boards get their files here and their line in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from distmon.agent.sensors.amd_board import amd_sensor
from distmon.agent.sensors.base import Roots, Sensor
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.frequency import FrequencySensor
from distmon.agent.sensors.jetson_board import jetson_sensor
from distmon.agent.sensors.load import LoadSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.nvidia import NvidiaSensor
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.pressure import PressureSensor
from distmon.agent.sensors.temperatures import TemperatureSensor


class Source(NamedTuple):
    """Several may answer for one field: their devices add up, and of other values that of the last in `SOURCES` counts."""

    name: str
    make: Callable[[Roots], Sensor | None]
    """None where this machine is not of the kind."""
    may_block: bool = False
    """A read can take long (a slow bus, a sick driver), so it gets a thread of its own and a deadline."""
    every_s: float = 0.0
    """What changes slowly or costs much is read this seldom; between its reads the last values go out with their age."""


SOURCES = (
    Source("cpu", CpuSensor),
    Source("frequency", FrequencySensor, every_s=10.0),
    Source("memory", MemorySensor),
    Source("load", LoadSensor, every_s=5.0),
    Source("pressure", PressureSensor, every_s=2.0),
    Source("disks", DiskSensor, every_s=2.0),
    Source("power", RaplSensor),
    Source("temperatures", TemperatureSensor, may_block=True, every_s=10.0),
    Source("nvidia", NvidiaSensor, may_block=True),
    Source("amd", amd_sensor, may_block=True),
    Source("jetson", jetson_sensor, may_block=True),
)
"""Network, InfiniBand, processes and control group are made by the sampler itself, which tells them about the ranks."""
