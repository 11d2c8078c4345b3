"""A Jetson's sources without a Jetson: a jtop package of ours, a tegrastats that plays lines, trees of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distmon.agent.sampler import Sampler
from distmon.agent.sensors import Source
from distmon.agent.sensors.base import Reading, Roots
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.jetson import JetsonSensor
from distmon.agent.sensors.jetson_board import is_jetson, jetson_sensor
from distmon.agent.sensors.jetson_programs import jtop_source, tegrastats_source
from distmon.agent.sensors.jetson_sysfs import SysfsSource
from distmon.agent.sensors.joined_gpus import joined_gpus
from distmon.core.events import GpuReading
from distmon.core.fold import node_power_w
from distmon.core.formats.board import integrated_gpu
from tests.agent.jetson_files import DEADLINE_S, SECOND, monitor, script, write

DATA = Path(__file__).parents[1] / "data"
StartService = Callable[[str], "subprocess.Popen[bytes]"]
SERVICE = Path(__file__).parents[1] / "stubs/jtop/service.py"
HW09 = DATA / "cases" / "HW-09"
MODES: dict[str, dict[str, Any]] = {mode["mode"]: mode for mode in json.loads((HW09 / "modes.json").read_text())}
EXPECTED: dict[str, Any] = json.loads((HW09 / "expected.json").read_text())
SYSTEM_PATH = "/usr/bin:/bin"
JETSON = Source("jetson", jetson_sensor, may_block=True)

JTOP_PACKAGE = """
import json, os, sys, time

class JtopException(Exception):
    pass

class View:
    "As the real client gives some parts: not a dictionary, but read like one."
    def __init__(self, data):
        self.items = data.items

class jtop:
    def __init__(self, interval):
        self.left = int(os.environ["JTOP_READINGS"])

    def __enter__(self):
        start = json.loads(os.environ["JTOP_MODE"])["start"]
        if start != "ok":
            raise {"JtopException": JtopException, "PermissionError": PermissionError}[start["raise"]](start["text"])
        return self

    def __exit__(self, *error):
        return False

    def ok(self):
        self.left -= 1
        time.sleep(0.01)
        return self.left >= 0

    cpu = {"cpu": [{"online": True, "user": 20.0, "nice": 0.0, "system": 1.0, "freq": {"cur": 1428000}}, {"online": False}]}
    gpu = View({"gm20b": {"status": {"load": 71.0}, "freq": {"cur": 921600}}})
    power = {"rail": {"POM_5V_GPU": {"power": 900}}, "tot": {"name": "POM_5V_IN", "power": 4000}}
    nvpmodel = "MAXN"
"""


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    write(tmp_path / "proc/device-tree/compatible", "nvidia,p3450-0000\0nvidia,jetson-nano\0nvidia,tegra210\0")
    return Roots(tmp_path / "proc", tmp_path / "sys")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, first on PATH, beside those of the system alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{SYSTEM_PATH}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def install_jtop(board: Path, monkeypatch: pytest.MonkeyPatch, mode: str, readings: int = 100_000) -> None:
    """The command, and for all modes but `missing` the package that it needs."""
    script(board / "jtop", f"#!{sys.executable}\n")
    if mode != "missing":
        package = board.parent / "packages"
        package.mkdir()
        (package / "jtop.py").write_text(JTOP_PACKAGE)
        monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.setenv("JTOP_MODE", json.dumps(MODES[mode]))
    monkeypatch.setenv("JTOP_READINGS", str(readings))


def install_tegrastats(board: Path) -> None:
    (board / "tegrastats").symlink_to(HW09 / "tegrastats")


def sensor_of(roots: Roots) -> JetsonSensor:
    """As an agent has it that does not run as root."""
    return JetsonSensor(roots, (jtop_source(user_id=lambda: 1000), tegrastats_source(), SysfsSource(roots)))


def until(read: Callable[[], Reading], done: Callable[[Reading], bool]) -> Reading:
    """Reads again and again, as the agent does, until the programs have said what is waited for."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        reading = read()
        if done(reading):
            return reading
        time.sleep(0.01)
    raise AssertionError(f"not within {DEADLINE_S} s; the last reading was {reading}")


def source(reading: Reading) -> str:
    found: str = reading.values.get("sources", {}).get("gpus", "")
    return found


def has_answered(reading: Reading) -> bool:
    return reading.unavailable["jtop"] != "it has not answered yet"


# --- case HW-09 -----------------------------------------------------------------------------------------------------

FAULTS = {
    "missing": "No module named 'jtop'",
    "inactive": "the jtop service is not active",
    "mismatch": "version mismatch: service [4.3.1], client [4.2.12]",
    "denied": "socket not accessible",
}


@pytest.mark.parametrize("mode", FAULTS)
def test_hw09_tegrastats_answers_where_jtop_does_not(
    mode: str, board: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_jtop(board, monkeypatch, mode)
    install_tegrastats(board)
    sensor, wanted = sensor_of(roots), EXPECTED["with_tegrastats_on_path"]
    reading = until(lambda: sensor.read(0), lambda found: source(found) == "tegrastats" and has_answered(found))
    assert reading.values["gpus"][0].utilization_percent == wanted["gpu_util"]
    assert sum(rail.watts for rail in reading.values["power"] if not rail.within) == wanted["board_power_w"]
    assert reading.values["cpu_percent"] == wanted["cpu_pct"]
    assert reading.values["sources"]["cpu_percent"] == wanted["source_shown"]
    assert reading.unavailable["jtop"] == FAULTS[mode]
    assert all(version in reading.unavailable["jtop"] for version in EXPECTED["reason_one_line_contains"].get(mode, []))


@pytest.mark.parametrize("mode", FAULTS)
def test_hw09_without_tegrastats_the_gpu_is_absent_with_both_reasons(
    mode: str, board: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_jtop(board, monkeypatch, mode)
    sensor = sensor_of(roots)
    reading = until(lambda: sensor.read(0), has_answered)
    assert "gpus" not in reading.values and "cpu_percent" not in reading.values
    assert FAULTS[mode] in reading.unavailable["gpus"]
    assert "there is no tegrastats on PATH" in reading.unavailable["gpus"]
    assert "\n" not in reading.unavailable["gpus"]


def test_hw09_the_agent_shows_what_answers_and_keeps_the_kernels_figures_until_then(board: Path, roots: Roots) -> None:
    write(roots.proc / "stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0")
    sampler = Sampler("n", roots, [Source("cpu", CpuSensor), JETSON])
    sampler.prime()
    write(roots.proc / "stat", "cpu  25 0 0 75 0 0 0 0\ncpu0 25 0 0 75 0 0 0 0")
    sample = sampler.sample(1.0)
    assert (sample.cpu_percent, sample.gpus) == (25.0, [])
    assert "there is no tegrastats on PATH" in sample.unavailable["gpus"] and "cpu_percent" not in sample.sources

    install_tegrastats(board)
    other = Sampler("n", roots, [Source("cpu", CpuSensor), JETSON])
    deadline = time.monotonic() + DEADLINE_S
    while (sample := other.sample(2.0)).gpus == [] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (sample.gpus[0].utilization_percent, sample.cpu_percent) == (33, 10.5)
    assert node_power_w(sample) == 3.0
    assert sample.sources["cpu_percent"] == sample.sources["gpus"] == "tegrastats"
    assert sample.unavailable["jtop"] == "jetson-stats is not installed"


def test_hw09_a_service_that_stops_is_replaced_and_taken_up_again(
    board: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_jtop(board, monkeypatch, "stops", readings=3)
    install_tegrastats(board)
    sensor = sensor_of(roots)
    first = until(lambda: sensor.read(0), lambda found: source(found) == "jtop")
    assert (first.values["cpu_percent"], first.values["gpus"][0].utilization_percent) == (21.0, 71.0)
    assert (first.values["power_mode"], first.values["gpus"][0].sm_clock_mhz) == ("MAXN", 921.6)
    assert [(rail.name, rail.within) for rail in first.values["power"]] == [("POM_5V_GPU", "POM_5V_IN"), ("POM_5V_IN", "")]
    started = time.monotonic()
    second = until(lambda: sensor.read(0), lambda found: source(found) == "tegrastats")
    assert time.monotonic() - started < EXPECTED["stops"]["switch_within_s"]
    assert second.unavailable["jtop"] == "the jtop service stopped answering"
    early = int((EXPECTED["retry_interval_s_min"] - 0.1) * SECOND)
    waiting = until(lambda: sensor.read(early), lambda found: source(found) == "tegrastats")
    assert waiting.unavailable["jtop"] == "the jtop service stopped answering"
    later = EXPECTED["retry_interval_s_min"] * SECOND
    assert source(until(lambda: sensor.read(later), lambda found: source(found) == "jtop")) == "jtop"


# --- which source -----------------------------------------------------------------------------------------------------


def test_root_does_not_ask_jtop(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jtop(board, monkeypatch, "stops")
    answer = jtop_source(user_id=lambda: 0).read(0)
    assert answer.fields is None and "pickle" in answer.reason


def test_a_machine_that_is_no_jetson_has_no_such_sensor_and_no_reason(tmp_path: Path, board: Path) -> None:
    install_tegrastats(board)
    roots = Roots(tmp_path / "p", tmp_path / "s")
    assert jetson_sensor(roots) is None
    sample = Sampler("n", roots, [JETSON]).sample(1.0)
    assert "gpus" not in sample.unavailable and sample.sources == {}


def test_other_machines_do_not_pay_for_it() -> None:
    code = "import sys, distmon.agent.sampler; print([name for name in sys.modules if 'formats.tegrastats' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_board_is_told_in_a_container_too(tmp_path: Path) -> None:
    roots = Roots(tmp_path / "proc", tmp_path / "sys")
    assert not is_jetson(roots)
    write(tmp_path / "sys/devices/soc0/family", "Tegra")
    assert is_jetson(roots)


def test_a_reading_that_is_given_again_says_its_age(board: Path, roots: Roots) -> None:
    script(board / "tegrastats", "#!/bin/sh\necho 'RAM 1/2MB CPU [5%] VDD_IN 5000/5000'\nexec sleep 60\n")
    sensor = sensor_of(roots)
    until(lambda: sensor.read(0), lambda found: source(found) == "tegrastats")
    again = sensor.read(2 * SECOND)
    assert again.age_s is not None and again.age_s["power"] == 2.0
    old = sensor.read(4 * SECOND)
    assert "power" not in old.values and "tegrastats: it gives no reading now" in old.unavailable["power"]


def test_the_power_mode_is_asked_once_a_minute(board: Path, roots: Roots) -> None:
    install_tegrastats(board)
    script(board / "nvpmodel", f"#!/bin/sh\necho x >> {board}/asked\necho 'NV Power Mode: 5W'\n")
    sensor = sensor_of(roots)
    reading = until(lambda: sensor.read(0), lambda found: source(found) == "tegrastats")
    assert reading.values["power_mode"] == "5W"
    later = sensor.read(2 * SECOND)
    assert later.age_s is not None and later.age_s["power_mode"] == 2.0
    assert (board / "asked").read_text() == "x\n"


def test_a_board_without_nvpmodel_says_so(board: Path, roots: Roots) -> None:
    install_tegrastats(board)
    sensor = sensor_of(roots)
    reading = until(lambda: sensor.read(0), lambda found: source(found) == "tegrastats")
    assert "power_mode" not in reading.values and "nvpmodel" in reading.unavailable["power_mode"]


def test_sysfs_answers_at_once_where_programs_take_their_time(board: Path, roots: Roots) -> None:
    script(board / "tegrastats", "#!/bin/sh\nexec sleep 60\n")
    monitor(roots.sys / "class/hwmon/hwmon1", ch1=("VDD_IN", 5_000, 1_000))
    reading = sensor_of(roots).read(0)
    assert source(reading) == "sysfs"
    assert reading.unavailable["tegrastats"] == "it has not answered yet"


def test_one_sample_alone_waits_for_the_first_line_of_tegrastats(board: Path, roots: Roots) -> None:
    install_tegrastats(board)
    sampler = Sampler("n", roots, [JETSON])
    sampler.prime()
    sampler.settle(DEADLINE_S, best=True)
    assert sampler.sample(1.0).sources["gpus"] == "tegrastats"


def test_rails_whose_names_are_swapped_are_doubted_once_and_not_for_a_moment(board: Path, roots: Roots) -> None:
    folder = roots.sys / "class/hwmon/hwmon1"
    monitor(folder, ch1=("POM_5V_GPU", 5_000, 1_700), ch2=("POM_5V_IN", 5_000, 600))
    sensor = sensor_of(roots)
    told = []
    for second in range(100):
        write(folder / "curr2_input", 1_800 if second == 20 else 600)
        told += [(second, notice) for notice in sensor.read(second * SECOND).notices]
    assert [(second, notice.severity) for second, notice in told] == [(50, "warning")]
    assert told[0][1].text.startswith("POM_5V_GPU draws more than POM_5V_IN")


# --- the real client ------------------------------------------------------------------------------------------------------


@pytest.fixture
def real_client(board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartService]:
    """Starts a stand-in of the service of that version ("": the client's own), which jetson-stats' own client talks to."""
    python = os.environ.get("DISTMON_JTOP_PYTHON")
    if python is None:
        pytest.skip("DISTMON_JTOP_PYTHON names no Python with jetson-stats, which is under the AGPL and no part of the tests")
    ask = "from jtop.core.common import *; from jtop.jtop import VERSION_RE; print(get_key(), get_var(VERSION_RE))"
    key, own = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    # The client has the socket's path in its source.
    write(tmp_path / "site/sitecustomize.py", f"import jtop.service\njtop.service.JTOP_PIPE = '{tmp_path}/jtop.sock'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    script(board / "jtop", f"#!{python}\n")
    with ExitStack() as stack:

        def start(version: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, str(SERVICE), str(tmp_path / "jtop.sock"), version or own, key]
            service = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(service.kill)
            assert service.stdout is not None and service.stdout.readline() == b"listening\n"
            return service

        yield start


def test_the_real_client_s_readings_and_its_service_s_end(real_client: StartService, roots: Roots) -> None:
    service, sensor = real_client(""), sensor_of(roots)
    reading = until(lambda: sensor.read(0), lambda reading: source(reading) == "jtop")
    assert (reading.values["cores_percent"], reading.values["gpus"][0].utilization_percent) == ([21.0, None], 71.0)
    assert {rail.name: (rail.watts, rail.within) for rail in reading.values["power"]} == {
        "POM_5V_GPU": (0.9, "POM_5V_IN"),
        "POM_5V_IN": (4.0, ""),
    }
    assert [engine.name for engine in reading.values["engines"]] == ["EMC", "APE"]
    service.kill()
    assert until(lambda: sensor.read(SECOND), lambda reading: source(reading) != "jtop").unavailable["jtop"]


def test_the_real_client_refuses_a_service_of_another_version(real_client: StartService, roots: Roots) -> None:
    real_client("1.2.3")
    sensor = sensor_of(roots)
    assert "[1.2.3]" in until(lambda: sensor.read(0), has_answered).unavailable["jtop"]


# --- one GPU, two views -------------------------------------------------------------------------------------------------


def test_nvml_and_the_board_tell_of_one_gpu() -> None:
    driver = GpuReading(index=0, name="Orin (nvgpu)", uuid="u", utilization_percent=None, power_w=7.0, sm_clock_mhz=0.0)
    board = integrated_gpu(33.0, 9.0, {}, "")
    (gpu,) = joined_gpus([driver], [board])
    assert (gpu.name, gpu.uuid, gpu.utilization_percent, gpu.sm_clock_mhz) == ("Orin (nvgpu)", "u", 33.0, 0.0)
    assert gpu.power_w is None and "rails" in gpu.unavailable["power_w"]


def test_a_board_s_gpu_and_another_of_the_driver_s_stay_apart() -> None:
    assert [gpu.index for gpu in joined_gpus([GpuReading(index=1)], [integrated_gpu(1.0, None, {}, "")])] == [1, 0]
