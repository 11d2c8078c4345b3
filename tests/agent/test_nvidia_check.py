"""bench/gpu_check.py, which is for real GPUs: its comparisons, against the stub and an nvidia-smi that prints a page."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distmon.agent.sensors.base import Reading
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


H200 = f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log><driver_version>590.48.01</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:83:00.0">
  <product_name>NVIDIA H200</product_name><mig_mode><current_mig>Disabled</current_mig></mig_mode><mig_devices>None</mig_devices>
  <uuid>{uuid(0)}</uuid>
  <pci><tx_util>4217 KB/s</tx_util><rx_util>8691 KB/s</rx_util></pci>
  <fan_speed>N/A</fan_speed><performance_state>P0</performance_state>
  <clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>
  <fb_memory_usage><total>143771 MiB</total><reserved>614 MiB</reserved><used>32362 MiB</used></fb_memory_usage>
  <utilization><gpu_util>100 %</gpu_util></utilization>
  <ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
    <sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>0</dram_correctable>
    <dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
  <retired_pages><multiple_single_bit_retirement><retired_count>N/A</retired_count></multiple_single_bit_retirement>
    <double_bit_retirement><retired_count>N/A</retired_count></double_bit_retirement></retired_pages>
  <remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc></remapped_rows>
  <temperature><gpu_temp>52 C</gpu_temp></temperature>
  <gpu_power_readings><average_power_draw>627.32 W</average_power_draw><instant_power_draw>625.24 W</instant_power_draw>
    <current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
  <clocks><sm_clock>1980 MHz</sm_clock><mem_clock>3201 MHz</mem_clock></clocks>
  <processes><process_info><pid>10309</pid><type>C</type><used_memory>28234 MiB</used_memory></process_info></processes>
</gpu></nvidia_smi_log>
"""
"""In the form of a driver of 2026, with the values of a real H200 under load."""


def run(tmp_path: Path, xml: str, scenario: Scenario, output: Path) -> subprocess.CompletedProcess[str]:
    library = build(tmp_path / "lib")
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{xml}EOF\n")
    program.chmod(0o755)
    environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "DISTMON_STUB_NVML": str(scenario.path)}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    command = [sys.executable, str(SCRIPT), "--seconds", "0.5", "--output", str(output), "--python", "false"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("limit", "agrees"), [("350.00", "yes"), ("300.00", "**no**")])
def test_a_table_is_written_and_the_exit_code_says_whether_all_agrees(tmp_path: Path, limit: str, agrees: str) -> None:
    page, scenario = tmp_path / "page.md", Scenario(tmp_path / "scenario")
    scenario.add_gpu(0)
    done = run(tmp_path, XML.replace("LIMIT", limit), scenario, page)
    assert done.stderr == ""
    assert done.returncode == (0 if agrees == "yes" else 1)
    lines = page.read_text().splitlines()
    assert f"| 0 | power_limit_w | 350 | {float(limit):.10g} | {agrees} |" in lines
    assert "| 0 | utilization_percent | 90 | 88 | yes |" in lines
    assert "| 0 | ecc_corrected | – | – | not comparable |" in lines
    assert sum("Hz | " in line for line in lines) == 2


def test_an_h200_agrees_in_every_value_that_it_has(tmp_path: Path) -> None:
    page, scenario = tmp_path / "page.md", Scenario(tmp_path / "scenario")
    scenario.add_gpu(0, "NVIDIA H200")
    answers = {"util": (100, 7), "mem": (143771 << 20, 32362 << 20, 614 << 20), "temp": (52,), "power_mw": (627_400,)}
    answers |= {"limit_mw": (700_000,), "clock.1": (1980,), "clock.2": (3201,), "reasons": (4,), "pstate": (0,)}
    answers |= {"ecc.0": (0,), "ecc.1": (0,), "remapped": (0, 0, 0, 0), "pcie.0": (4217,), "pcie.1": (8691,), "mig": (0, 0)}
    answers |= {"processes": (10309, 28234 << 20), "gpm_support": (1,), "gpm": (2, 990, 3, 250)}
    for call, values in answers.items():
        scenario.answer(0, call, *values)
    scenario.answer(0, "fan", error="NotSupported")
    done = run(tmp_path, H200, scenario, page)
    assert (done.returncode, done.stderr) == (0, "")
    cells = [[cell.strip() for cell in line.split("|")] for line in page.read_text().splitlines() if line.startswith("| 0 ")]
    said = {row[2]: row[5] for row in cells}
    absent = {"fan_percent", "retired_pages", "power over time (J)"}  # of the stub, whose counter stands still, the last
    assert said == {name: "not comparable" if name in absent else "yes" for name in said}
    assert {"ecc_uncorrected", "throttle", "processes", "memory_clock_mhz", *absent} <= said.keys()


def test_an_nvidia_smi_that_fails_is_told_in_its_words(tmp_path: Path) -> None:
    page, scenario = tmp_path / "page.md", Scenario(tmp_path / "scenario")
    scenario.add_gpu(0)
    done = run(tmp_path, "EOF\necho 'GPU is lost.  Reboot the system'; exit 15\ncat <<'EOF'\n", scenario, page)
    assert done.returncode == 1
    assert done.stderr == "gpu_check: nvidia-smi fails: GPU is lost.  Reboot the system: nothing was checked\n"
    assert not page.exists()


def test_what_was_measured_is_kept_when_a_later_part_fails(
    tmp_path: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(seconds: float) -> list[Any]:
        raise OSError(3, "No such process")

    monkeypatch.setattr(check.nvidia_library, "is_present", lambda: True)
    monkeypatch.setattr(check, "start_load", lambda stack, python: "under a load")
    monkeypatch.setattr(check, "check_values", lambda: [check.Row(0, "power_w", 200.0, "201", True)])
    monkeypatch.setattr(check, "measure_energy", lambda seconds: [])
    monkeypatch.setattr(check, "measure_costs", failing)
    page = tmp_path / "page.md"
    assert check.main(["--output", str(page)]) == 1
    assert "| 0 | power_w | 200 | 201 | yes |" in page.read_text()
    assert "the rest is missing: [Errno 3] No such process" in page.read_text()
    assert "not all was checked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 0", "without a load"), ("exec sleep 60", "without a load"), ("echo up; exec sleep 60", "under matrix products")],
    ids=["ends", "does not start", "is up"],
)
def test_a_load_is_waited_for_until_it_is_there(
    script: str, said: str, tmp_path: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *is_available*) exit 0;; esac\n{script}\n')
    python.chmod(0o755)
    monkeypatch.setattr(check, "SETTLE_S", 0.0)
    monkeypatch.setattr(check, "LOAD_WITHIN_S", 0.2 if script.startswith("exec") else 60.0)
    with ExitStack() as stack:
        assert check.start_load(stack, str(python)).startswith(said)


def test_the_time_that_the_driver_takes_to_start_is_in_no_integral(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine:
        """A GPU at 500 W whose driver takes 3 s to start, and its clock."""

        now, joules, started = 100.0, None, False

        def __init__(self, roots: object = None) -> None:
            pass

        def read(self, now_ns: int) -> Reading:
            Machine.now += 0.001 if Machine.started else 3.0
            Machine.started = True
            before, Machine.joules = Machine.joules, 500.0 * Machine.now
            energy = None if before is None else Machine.joules - before
            return Reading({"gpus": [GpuReading(index=0, power_w=500.0, energy_j=energy)]}, {})

        def close(self) -> None:
            pass

    def sleep(seconds: float) -> None:
        Machine.now += seconds

    monkeypatch.setattr(check, "NvidiaSensor", Machine)
    clock = SimpleNamespace(monotonic=lambda: Machine.now, monotonic_ns=lambda: int(Machine.now * 1e9), sleep=sleep)
    monkeypatch.setattr(check, "time", clock)
    (row,) = check.measure_energy(20.0)
    assert row.agrees and row.ours == pytest.approx(10_000, rel=0.01)


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
