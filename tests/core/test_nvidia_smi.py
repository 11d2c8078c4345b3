"""`nvidia-smi -q -x` as readings: the forms of several drivers' generations, written by hand after the real ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.events import GpuProcess
from distmon.core.formats.nvidia_smi import parse_nvidia_smi

MIB = 1 << 20
REAL = Path(os.environ.get("DISTMON_REAL_DATA", Path(__file__).parents[3] / "shared" / "realdata"))
NEW = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>590.48.01</driver_version>
  <gpu id="00000000:01:00.0">
    <product_name>NVIDIA Stub H100</product_name>
    <mig_devices>
      <mig_device>
        <gpu_instance_id>7</gpu_instance_id>
        <fb_memory_usage><total>9856 MiB</total><used>12 MiB</used></fb_memory_usage>
      </mig_device>
    </mig_devices>
    <uuid>GPU-1</uuid>
    <pci><tx_util>4000 KB/s</tx_util><rx_util>0 KB/s</rx_util></pci>
    <fan_speed>N/A</fan_speed>
    <performance_state>P0</performance_state>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>81559 MiB</total><reserved>600 MiB</reserved><used>50 MiB</used></fb_memory_usage>
    <utilization><gpu_util>87 %</gpu_util></utilization>
    <ecc_errors>
      <volatile>
        <sram_correctable>1</sram_correctable>
        <sram_uncorrectable_parity>2</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>3</sram_uncorrectable_secded>
        <dram_correctable>4</dram_correctable>
        <dram_uncorrectable>5</dram_uncorrectable>
      </volatile>
      <aggregate><sram_correctable>100</sram_correctable></aggregate>
    </ecc_errors>
    <retired_pages>
      <multiple_single_bit_retirement><retired_count>N/A</retired_count></multiple_single_bit_retirement>
    </retired_pages>
    <remapped_rows><remapped_row_corr>1</remapped_row_corr><remapped_row_unc>2</remapped_row_unc></remapped_rows>
    <temperature><gpu_temp>61 C</gpu_temp></temperature>
    <gpu_power_readings>
      <average_power_draw>629.45 W</average_power_draw>
      <instant_power_draw>640.00 W</instant_power_draw>
      <current_power_limit>700.00 W</current_power_limit>
    </gpu_power_readings>
    <clocks><sm_clock>1755 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks>
    <processes>
      <process_info><pid>4711</pid><type>C</type><used_memory>2566 MiB</used_memory></process_info>
      <process_info><pid>88</pid><type>G</type><used_memory>9 MiB</used_memory></process_info>
    </processes>
  </gpu>
</nvidia_smi_log>
"""
OLD = """<nvidia_smi_log><gpu id="0"><product_name>Stub P100</product_name><uuid>GPU-2</uuid>
  <clocks_throttle_reasons><clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
  </clocks_throttle_reasons>
  <utilization><gpu_util>N/A</gpu_util></utilization>
  <fan_speed>46 %</fan_speed><performance_state>Unknown Error</performance_state>
  <power_readings><power_draw>25.58 W</power_draw><power_limit>250.00 W</power_limit></power_readings>
  <retired_pages><multiple_single_bit_retirement><retired_count>1</retired_count></multiple_single_bit_retirement>
  <double_bit_retirement><retired_count>2</retired_count></double_bit_retirement></retired_pages>
</gpu></nvidia_smi_log>"""


def test_a_new_drivers_form() -> None:
    gpu, instance = parse_nvidia_smi(NEW)
    assert (gpu.index, gpu.uuid, gpu.name) == (0, "GPU-1", "NVIDIA Stub H100")
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.fan_percent, gpu.performance_state) == (87, 61, None, 0)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (50 * MIB, 81559 * MIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (629.45, 700, 1755, 2619)
    assert (gpu.pcie_sent_bytes_per_s, gpu.pcie_received_bytes_per_s) == (4_000_000, 0)
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.retired_pages, gpu.remapped_rows) == (5, 10, None, 3)
    assert gpu.throttle == ["power cap", "hot (hardware)"]
    assert gpu.processes == [GpuProcess(pid=4711, memory_bytes=2566 * MIB)]
    assert (instance.index, instance.instance, instance.memory_total_bytes) == (0, 7, 9856 * MIB)


def test_an_old_drivers_form() -> None:
    (gpu,) = parse_nvidia_smi(OLD)
    assert (gpu.power_w, gpu.power_limit_w, gpu.fan_percent, gpu.retired_pages) == (25.58, 250, 46, 3)
    assert (gpu.utilization_percent, gpu.performance_state, gpu.ecc_corrected) == (None, None, None)
    assert gpu.throttle == ["hardware slowdown"]


def test_real_drivers_forms_give_the_truth_values_of_their_index() -> None:
    index = REAL / "INDEX.md"
    if not index.is_file():
        pytest.skip(f"no real data in {REAL}; DISTMON_REAL_DATA names another folder")
    truth = r"`nvidia-smi/(xml-[^`]+)`.*; ([^:;]+): fb used (\d+) MiB, util (\S+)[ %]*, \S+=([\d.]+) W"
    rows = re.findall(truth, index.read_text())
    assert len(rows) == 8
    for file, name, used, load, watts in rows:
        gpu = parse_nvidia_smi((REAL / "nvidia-smi" / file).read_text())[0]
        assert (gpu.name, gpu.memory_used_bytes, gpu.power_w) == (name, int(used) * MIB, float(watts)), file
        assert gpu.utilization_percent == (None if load.startswith("N/A") else float(load)), file


@given(st.text(max_size=200))
def test_other_text_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match="not the output of nvidia-smi"):
        parse_nvidia_smi(text)
