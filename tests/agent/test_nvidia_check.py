"""bench/gpu_check.py, which is for real GPUs: its comparisons, against the stub and an nvidia-smi that prints a page."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from distmon.core.events import GpuReading
from tests.stubs.nvml.scenario import Scenario, build, uuid

SCRIPT = Path(__file__).parents[2] / "bench/gpu_check.py"
XML = f"""<?xml version="1.0" ?>
<nvidia_smi_log><gpu id="00000000:01:00.0">
  <product_name>NVIDIA Stub 3090</product_name><uuid>{uuid(0)}</uuid>
  <fan_speed>55 %</fan_speed><performance_state>P2</performance_state>
  <fb_memory_usage><total>24576 MiB</total><used>20480 MiB</used></fb_memory_usage>
  <utilization><gpu_util>88 %</gpu_util></utilization>
  <temperature><gpu_temp>65 C</gpu_temp></temperature>
  <gpu_power_readings><power_draw>200.00 W</power_draw><current_power_limit>LIMIT W</current_power_limit></gpu_power_readings>
  <clocks><sm_clock>1695 MHz</sm_clock><mem_clock>9751 MHz</mem_clock></clocks>
</gpu></nvidia_smi_log>
"""


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    return module


def run(tmp_path: Path, limit: str, output: Path) -> subprocess.CompletedProcess[str]:
    library = build(tmp_path / "lib")
    scenario = Scenario(tmp_path / "scenario")
    scenario.add_gpu(0)
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{XML.replace('LIMIT', limit)}EOF\n")
    program.chmod(0o755)
    environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "DISTMON_STUB_NVML": str(scenario.path)}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    command = [sys.executable, str(SCRIPT), "--seconds", "0.5", "--output", str(output), "--python", "false"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("limit", "agrees"), [("350.00", "yes"), ("300.00", "**no**")])
def test_a_table_is_written_and_the_exit_code_says_whether_all_agrees(tmp_path: Path, limit: str, agrees: str) -> None:
    page = tmp_path / "page.md"
    done = run(tmp_path, limit, page)
    assert done.stderr == ""
    assert done.returncode == (0 if agrees == "yes" else 1)
    lines = page.read_text().splitlines()
    assert f"| 0 | power_limit_w | 350 | {float(limit):.10g} | {agrees} |" in lines
    assert "| 0 | utilization_percent | 90 | 88 | yes |" in lines
    assert "| 0 | ecc_corrected | – | – | not comparable |" in lines
    assert sum("Hz | " in line for line in lines) == 2


def test_without_a_gpu_it_says_so_and_checks_nothing(
    tmp_path: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check.nvidia_library, "is_present", lambda: False)
    page = tmp_path / "page.md"
    assert check.main(["--output", str(page)]) == 1
    assert not page.exists()
    assert "there is no NVIDIA GPU on this machine" in capsys.readouterr().err


def test_a_value_between_the_two_readings_agrees_and_one_beyond_the_slack_does_not(check: ModuleType) -> None:
    before, after = GpuReading(index=0, power_w=100.0), GpuReading(index=0, power_w=300.0)
    for watts, agrees in ((200.0, True), (324.0, True), (326.0, False), (74.0, False)):
        rows = {row.field: row for row in check.compare(GpuReading(index=0, power_w=watts), before, after)}
        assert rows["power_w"].agrees is agrees


def test_a_value_that_is_missing_without_a_reason_does_not_agree(check: ModuleType) -> None:
    theirs = GpuReading(index=0, fan_percent=40.0)
    rows = {row.field: row for row in check.compare(GpuReading(index=0), theirs, theirs)}
    assert rows["fan_percent"].agrees is False
    explained = GpuReading(index=0, unavailable={"fan_percent": "this GPU does not report it"})
    rows = {row.field: row for row in check.compare(explained, theirs, theirs)}
    assert rows["fan_percent"].agrees is None


@pytest.mark.parametrize(("joules", "agrees"), [(100.0, True), (97.5, True), (95.0, False)])
def test_power_over_time_is_held_against_the_counter(check: ModuleType, joules: float, agrees: bool) -> None:
    samples = [(0.5, [GpuReading(index=0, power_w=200.0, energy_j=joules)]) for _ in range(10)]
    first = (9.0, [GpuReading(index=0, power_w=999.0)])  # no counter to it, so it does not count
    (row,) = check.energy_rows([first, *samples])
    assert row.ours == 1000.0
    assert row.agrees is agrees
