"""A Jetson's rails and GPU from trees of files, as the kernels of several JetPacks show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from distmon.agent.sensors.base import Roots
from distmon.agent.sensors.jetson_sysfs import SysfsSource
from tests.agent.jetson_files import SECOND, monitor, write


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys")


def test_agx_orin_rails_load_clock_and_temperature(roots: Roots) -> None:
    monitor(roots.sys / "class/hwmon/hwmon3", ch1=("VDD_GPU_SOC", 20_000, 600), ch2=("VDD_CPU_CV", 20_000, 100))
    memory = ("VDDQ_VDD2_1V8AO", 5_000, 400)
    monitor(roots.sys / "class/hwmon/hwmon4", ch1=("VIN_SYS_5V0", 5_000, 900), ch2=("NC", 0, 0), ch3=memory)
    write(roots.sys / "class/hwmon/hwmon4/in7_label", "sum of shunt voltages")
    write(roots.sys / "class/devfreq/17000000.gpu/cur_freq", 611_000_000)
    write(roots.sys / "class/devfreq/17000000.gpu/device/load", 635)
    write(roots.sys / "class/thermal/thermal_zone1/type", "gpu-thermal")
    write(roots.sys / "class/thermal/thermal_zone1/temp", 49_500)
    fields = SysfsSource(roots).read(0).fields
    assert fields is not None and fields.unavailable == {}
    assert [(rail.name, rail.watts, rail.within) for rail in fields.values["power"]] == [
        ("VDD_GPU_SOC", 12.0, ""),
        ("VDD_CPU_CV", 2.0, ""),
        ("VIN_SYS_5V0", 4.5, ""),
        ("VDDQ_VDD2_1V8AO", 2.0, "VIN_SYS_5V0"),
    ]
    (gpu,) = fields.values["gpus"]
    assert (gpu.utilization_percent, gpu.sm_clock_mhz, gpu.temperature_c) == (63.5, 611.0, 49.5)


def test_nano_rails_of_jetpack_4(roots: Roots) -> None:
    device = roots.sys / "bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    for number, (name, milliwatts) in enumerate([("POM_5V_IN", 3200), ("POM_5V_GPU", 900), ("POM_5V_CPU", 700)]):
        write(device / f"rail_name_{number}", name)
        write(device / f"in_power{number}_input", milliwatts)
    write(roots.sys / "devices/gpu.0/load", 990)
    write(roots.sys / "class/thermal/thermal_zone1/type", "GPU-therm")
    write(roots.sys / "class/thermal/thermal_zone1/temp", -256_000)
    fields = SysfsSource(roots).read(0).fields
    assert fields is not None
    assert [(rail.name, rail.watts, rail.within) for rail in fields.values["power"]] == [
        ("POM_5V_IN", 3.2, ""),
        ("POM_5V_GPU", 0.9, "POM_5V_IN"),
        ("POM_5V_CPU", 0.7, "POM_5V_IN"),
    ]
    (gpu,) = fields.values["gpus"]
    assert (gpu.utilization_percent, gpu.temperature_c) == (99.0, None)
    assert "switched off" in gpu.unavailable["temperature_c"]


def test_files_are_not_opened_again_and_again(roots: Roots) -> None:
    monitor(roots.sys / "class/hwmon/hwmon1", ch1=("VDD_IN", 5_000, 1_000))
    write(roots.sys / "class/thermal/thermal_zone0/type", "gpu")
    write(roots.sys / "class/thermal/thermal_zone0/temp", 40_000)
    source = SysfsSource(roots)
    source.read(0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for minute in range(1, 5):
        source.read(minute * 61 * SECOND)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_rail_that_cannot_be_read_is_absent_and_the_others_stay(roots: Roots) -> None:
    monitor(roots.sys / "class/hwmon/hwmon1", ch1=("VDD_IN", 5_000, 1_000), ch2=("VDD_SOC", 5_000, 100))
    write(roots.sys / "class/hwmon/hwmon1/curr2_input", "?")
    fields = SysfsSource(roots).read(0).fields
    assert fields is not None
    assert [(rail.name, rail.watts) for rail in fields.values["power"]] == [("VDD_IN", 5.0), ("VDD_SOC", None)]
    assert fields.unavailable["power"].startswith("VDD_SOC: ")
    assert fields.values["gpus"][0].unavailable["utilization_percent"] == "the kernel shows no GPU load on this board"
