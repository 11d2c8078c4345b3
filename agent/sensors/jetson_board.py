"""Whether this machine is a Jetson; what reads one is loaded there alone, for it costs every agent's start."""

from __future__ import annotations

from distmon.agent.sensors.base import Roots, Sensor, read_text


def jetson_sensor(roots: Roots) -> Sensor | None:
    """None on any other machine."""
    if not is_jetson(roots):
        return None
    from distmon.agent.sensors.jetson import JetsonSensor

    return JetsonSensor(roots)


def is_jetson(roots: Roots) -> bool:
    """By the device tree, or by what the chip's driver says where a container hides that."""
    tree = read_text(roots.proc / "device-tree" / "compatible")
    return "nvidia,tegra" in tree or read_text(roots.sys / "devices" / "soc0" / "family") == "Tegra"
