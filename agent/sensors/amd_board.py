"""Whether this machine has an AMD GPU; what reads one is loaded there alone, for it costs every agent's start."""

from __future__ import annotations

from distmon.agent.sensors.base import Roots, Sensor


def amd_sensor(roots: Roots) -> Sensor | None:
    """None where the kernel has no amdgpu device that shows its memory, as all that compute do."""
    if next((roots.sys / "class/drm").glob("card*/device/mem_info_vram_total"), None) is None:
        return None
    from distmon.agent.sensors.amd import AmdSensor

    return AmdSensor(roots)
