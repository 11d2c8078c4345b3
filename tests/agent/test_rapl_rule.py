"""The udev rule that opens RAPL's counters to the agent's group."""

from __future__ import annotations

import grp
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from distmon.agent.sensors.base import KernelFile, Roots
from distmon.agent.sensors.power import RaplSensor
from tests.agent.trees import write

RULE = Path(__file__).parents[2] / "packaging/70-distmon-rapl.rules"


def test_the_rule_opens_each_counter_to_the_group_and_to_nobody_else(tmp_path: Path) -> None:
    zone = tmp_path / "class/powercap/intel-rapl:0"
    write(zone / "name", "package-0")
    write(zone / "energy_uj", 5)
    (zone / "energy_uj").chmod(0o400)
    (rule,) = [line for line in RULE.read_text().splitlines() if line and not line.startswith("#")]
    assert rule.startswith('SUBSYSTEM=="powercap", ACTION=="add|change", TEST=="energy_uj", ')
    group = grp.getgrgid(os.getgid()).gr_name
    for command in re.findall(r'RUN\+="([^"]+)"', rule):
        words = [word.replace("/sys%p", str(zone)) for word in shlex.split(command)]
        subprocess.run([group if word == "distmon" else word for word in words], check=True)
    assert (zone / "energy_uj").stat().st_mode & 0o777 == 0o440
    (rail,) = RaplSensor(Roots(tmp_path, tmp_path)).read(0).values["power"]
    assert rail.name == "package-0"


def test_who_may_not_read_the_counters_is_told_of_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = tmp_path / "class/powercap/intel-rapl:0"
    write(zone / "name", "package-0")
    write(zone / "energy_uj", 5)

    def refuse(file: KernelFile) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(KernelFile, "read", refuse)
    reading = RaplSensor(Roots(tmp_path, tmp_path)).read(0)
    assert "power" not in reading.values and f"packaging/{RULE.name}" in reading.unavailable["power"]
