"""AMD GPUs: through a stub of AMD's binding with the real one's shapes, and from the kernel's files where it does not answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from distmon.agent.sampler import Sampler
from distmon.agent.sensors import SOURCES, Source
from distmon.agent.sensors.amd import AmdSensor
from distmon.agent.sensors.amd_board import amd_sensor
from distmon.agent.sensors.base import Reading, Roots
from distmon.core.events import GpuProcess, GpuReading
from tests.agent.test_sampler import Told
from tests.agent.trees import write

GIB = 1 << 30
SECOND = 10**9
MI250: dict[str, Any] = {
    "uuid": "a3ff740c-0000-1000-80b5-c0ffee",
    "name": "AMD Instinct MI250",
    "activity": 87,
    "vram": [2048, 65536],
    "power": {"average_socket_power": 310},
    "power_cap": 560_000_000,
    "temperature.EDGE": 61,
    "clock.GFX": 1700,
    "clock.MEM": 1600,
    "ecc": [3, 0],
    "violations": {"active_ppt_pwr": True, "active_socket_thrm": False, "active_hbm_thrm": "N/A"},
    "processes": [[4711, 2 * GIB]],
    "energy": 1_000_000,
}


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Two cards, the one with the higher number first on the bus, as kernels may number them."""
    roots = Roots(tmp_path / "proc", tmp_path / "sys")
    for card, place, busy in ((0, "0000:41:00.0", 30), (1, "0000:03:00.0", 90)):
        device = roots.sys / "devices" / place
        write(device / "vendor", "0x1002")
        write(device / "unique_id", f"uuid{card}")
        write(device / "product_name", "Instinct MI250")
        write(device / "gpu_busy_percent", busy)
        write(device / "mem_info_vram_used", GIB)
        write(device / "mem_info_vram_total", 64 * GIB)
        write(device / "pp_dpm_sclk", "0: 500Mhz\n1: 1700Mhz *")
        write(device / "hwmon/hwmon3/power1_average", 250_000_000)
        write(device / "hwmon/hwmon3/power1_cap", 560_000_000)
        write(device / "hwmon/hwmon3/temp1_input", 61_000)
        (roots.sys / "class/drm" / f"card{card}").mkdir(parents=True)
        (roots.sys / "class/drm" / f"card{card}" / "device").symlink_to(device)
    write(roots.sys / "class/drm/card2/device/vendor", "0x10de")
    write(roots.sys / "class/drm/card0-DP-1/status", "connected")
    return roots


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "amdsmi.json"
    monkeypatch.setenv("DISTMON_STUB_AMDSMI", str(path))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "stubs/amdsmi"))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    return path


def play(scenario: Path, *gpus: dict[str, Any], init: str | None = None) -> None:
    scenario.write_text(json.dumps({"init": init, "gpus": gpus}))


def read(sensor: AmdSensor, second: int = 0) -> list[GpuReading]:
    gpus: list[GpuReading] = sensor.read(second * SECOND).values["gpus"]
    return gpus


def test_values_of_a_gpu_in_the_same_shape_as_others(scenario: Path, roots: Roots) -> None:
    play(scenario, MI250)
    sensor = AmdSensor(roots)
    read(sensor)
    play(scenario, {**MI250, "energy": 21_000_000})
    (gpu,) = read(sensor, 1)
    assert (gpu.index, gpu.uuid, gpu.name, gpu.state) == (0, MI250["uuid"], "AMD Instinct MI250", "ok")
    assert (gpu.utilization_percent, gpu.memory_used_bytes, gpu.memory_total_bytes) == (87, 2 * GIB, 64 * GIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (310, 560, 61)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (1700, 1600)
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.throttle) == (3, 0, ["power cap"])
    assert gpu.processes == [GpuProcess(pid=4711, memory_bytes=2 * GIB)]
    assert gpu.energy_j == pytest.approx(20_000_000 * 15.3e-6)
    play(scenario, {**MI250, "energy": 5})
    assert read(sensor, 2)[0].energy_j is None


def test_what_a_gpu_does_not_report_is_none_with_the_bindings_words(scenario: Path, roots: Roots) -> None:
    play(scenario, {"activity": "N/A", "vram": [1, 2], "power": {"socket_power": 0}, "temperature.HOTSPOT": 70}, MI250)
    sparse, whole = read(AmdSensor(roots))
    assert (sparse.utilization_percent, sparse.power_w, sparse.temperature_c) == (None, None, 70)
    assert sparse.unavailable["utilization_percent"] == sparse.unavailable["power_w"] == "this GPU does not report it"
    assert sparse.unavailable["sm_clock_mhz"] == "Feature not supported"
    assert whole.utilization_percent == 87


def test_an_answer_in_another_form_costs_its_own_value_alone(
    scenario: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {**MI250, "vram": ["N/A", 65536], "ecc": ["N/A", 0], "energy": "N/A", "processes": [[4711, 2**64 - 1]]}
    play(scenario, MI250, MI250)
    sensor = AmdSensor(roots)
    read(sensor)
    monkeypatch.delattr("amdsmi.amdsmi_get_violation_status")  # an older version has none
    play(scenario, odd, MI250)
    gpu, other = read(sensor, 1)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.ecc_corrected, gpu.ecc_uncorrected) == (None, 64 * GIB, None, 0)
    assert gpu.unavailable["memory_used_bytes"] == "this GPU does not report it"
    assert "another form" in gpu.unavailable["energy_j"] and "another form" in gpu.unavailable["throttle"]
    assert gpu.processes == [GpuProcess(pid=4711)]
    assert other.energy_j == 0.0
    play(scenario, {**MI250, "energy": 90_000_000}, MI250)
    assert read(sensor, 2)[0].energy_j is None  # it would be of two seconds


def test_every_value_that_is_absent_has_its_reason(scenario: Path, roots: Roots) -> None:
    play(scenario, {"activity": 5})
    for gpu in read(AmdSensor(roots)):
        assert "others" in gpu.unavailable
        assert gpu.unavailable["energy_j"] == "Feature not supported"


def test_an_nvidia_and_an_amd_gpu_of_one_machine_stay_two(scenario: Path, roots: Roots) -> None:
    play(scenario, {"activity": 3})
    geforce = GpuReading(index=0, uuid="GPU-1", name="NVIDIA GeForce", utilization_percent=90.0)
    driver = Told(Reading({"gpus": [geforce], "sources": {"gpus": "nvml"}}, {}))
    amd = [source for source in SOURCES if source.name == "amd"]
    sampler = Sampler("n", roots, [Source("nvidia", lambda roots: driver), *amd])
    sampler.prime()
    sampler.settle(60.0)
    sample = sampler.sample(1.0)
    assert [(gpu.index, gpu.name, gpu.utilization_percent) for gpu in sample.gpus] == [(0, "NVIDIA GeForce", 90.0), (1, "", 3.0)]
    assert sample.gpus[0].power_w is None
    assert sample.sources == {"gpus": "nvml, amdsmi"}


def test_a_gpu_that_fails_wholly_leaves_the_others_alone(scenario: Path, roots: Roots) -> None:
    play(scenario, dict.fromkeys(MI250, "!AMDSMI_STATUS_IO - I/O Error"), MI250)
    broken, whole = read(AmdSensor(roots))
    assert (broken.state, broken.unavailable) == ("unreadable", {"all": "I/O Error"})
    assert (whole.index, whole.utilization_percent) == (1, 87)


@pytest.mark.parametrize(
    ("gpus", "init", "words"),
    [([MI250], "AMDSMI_STATUS_NO_PERM - Permission Denied", "groups render"), ([], None, "no GPU that this user may open")],
    ids=["refused", "none"],
)
def test_where_the_binding_refuses_the_kernels_files_answer(
    scenario: Path, roots: Roots, gpus: list[dict[str, Any]], init: str | None, words: str
) -> None:
    play(scenario, *gpus, init=init)
    first, second = read(AmdSensor(roots))
    assert [gpu.uuid for gpu in (first, second)] == ["uuid1", "uuid0"]
    assert (first.utilization_percent, first.memory_used_bytes, first.power_w) == (90, GIB, 250)
    assert (first.temperature_c, first.sm_clock_mhz, first.power_limit_w) == (61, 1700, 560)
    assert words in first.unavailable["energy_j"] and first.energy_j is None


def test_the_binding_is_tried_again_and_taken_up(scenario: Path, roots: Roots) -> None:
    play(scenario, MI250, init="AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")
    sensor = AmdSensor(roots)
    assert "Driver not loaded" in sensor.read(0).unavailable["amdsmi"]
    play(scenario, MI250)
    assert sensor.read(SECOND).values.get("sources") is None
    assert sensor.read(70 * SECOND).values["sources"] == {"gpus": "amdsmi"}
    play(scenario, dict.fromkeys(MI250, "!AMDSMI_STATUS_IO - I/O Error"))
    assert [gpu.state for gpu in read(sensor, 71)] == ["ok", "ok"]


def test_without_the_binding_its_absence_is_the_reason(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    sampler = Sampler("n", roots, [source for source in SOURCES if source.name == "amd"])
    sampler.prime()
    sampler.settle(60.0)
    sample = sampler.sample(1.0)
    assert [gpu.utilization_percent for gpu in sample.gpus] == [90, 30]
    assert "not installed" in sample.unavailable["amdsmi"]


@pytest.mark.parametrize("counted", [True, False])
def test_power_of_a_gpu_within_the_processor_is_not_counted_twice(
    roots: Roots, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    """One that the driver shows the voltage of the north bridge of; where nobody reads the package, it is all that is known."""
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    for monitor in (roots.sys / "class/drm").glob("card*/device/hwmon/hwmon*"):
        write(monitor / "in1_input", 750)
    if counted:
        write(roots.sys / "class/powercap/intel-rapl:0/energy_uj", 1_000_000)
    gpu = read(AmdSensor(roots))[0]
    assert gpu.power_w == (None if counted else 250.0)
    assert ("part of the processor" in gpu.unavailable.get("power_w", "")) == counted


def test_a_card_that_goes_is_lost(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    sensor = AmdSensor(roots)
    sensor.read(0)
    for file in (roots.sys / "devices/0000:03:00.0").rglob("*"):
        if file.is_file():
            file.write_text("")
    assert [gpu.state for gpu in read(sensor, 1)] == ["lost", "ok"]


def test_other_machines_have_no_such_sensor(tmp_path: Path) -> None:
    assert amd_sensor(Roots(tmp_path, tmp_path)) is None
