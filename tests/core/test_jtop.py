"""Readings of jtop, of several shapes; and the power mode's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.events import EngineReading
from distmon.core.formats.board import mean_of_cores
from distmon.core.formats.jtop import NotJtop, cores_percent, parse_line
from distmon.core.formats.nvpmodel import power_mode

HW03 = Path(__file__).parents[1] / "data" / "cases" / "HW-03"
CPU = json.loads((HW03 / "jtop_cpu.json").read_text())


def reading(**parts: Any) -> Any:
    return parse_line(json.dumps(parts).encode())


def test_hw03_cores_that_are_off_have_no_counters_and_count_for_nothing() -> None:
    wanted = json.loads((HW03 / "expected.json").read_text())["jtop"]
    percents = cores_percent(CPU)
    assert (len(percents), sum(percent is not None for percent in percents)) == (wanted["cores"], wanted["online"])
    assert mean_of_cores(percents) == wanted["cpu_pct"]


def test_a_whole_reading() -> None:
    fields = reading(
        cpu=CPU,
        gpu={"ga10b": {"type": "integrated", "status": {"load": 33.5, "railgate": False}, "freq": {"cur": 611_000}}},
        memory={"RAM": {"tot": 7_800_000}, "EMC": {"cur": 2_133_000, "val": 3, "online": True}},
        power={
            "rail": {"VDD_CPU_GPU_CV": {"power": 1405, "online": True}, "VDD_SOC": {"power": 1500, "online": True}},
            "tot": {"name": "VDD_IN", "power": 5120, "online": True},
        },
        temperature={"gpu": {"temp": 49.0, "online": True}, "cv0": {"temp": -256, "online": False}},
        engine={"NVENC": {"NVENC": {"online": False, "cur": 115_200}}, "APE": {"APE": {"online": True, "cur": 200_000}}},
        nvpmodel="MAXN",
    )
    values = fields.values
    assert (values["cpu_percent"], values["cores_percent"]) == (27.0, [15.0, 39.0, None, None])
    assert values["cores_mhz"] == [1479.0, 1224.0, None, None]
    assert {rail.name: (rail.watts, rail.within, rail.source) for rail in values["power"]} == {
        "VDD_IN": (5.12, "", "jtop"),
        "VDD_CPU_GPU_CV": (1.405, "VDD_IN", "jtop"),
        "VDD_SOC": (1.5, "VDD_IN", "jtop"),
    }
    (gpu,) = values["gpus"]
    assert (gpu.name, gpu.utilization_percent, gpu.sm_clock_mhz) == ("ga10b", 33.5, 611.0)
    assert (gpu.temperature_c, gpu.power_w) == (49.0, None)
    assert values["engines"] == [
        EngineReading(name="EMC", utilization_percent=3, clock_mhz=2133.0),
        EngineReading(name="NVENC", on=False),
        EngineReading(name="APE", clock_mhz=200.0),
    ]
    assert values["power_mode"] == "MAXN"
    assert fields.unavailable == {}


def test_a_total_that_is_a_mere_sum_is_no_rail() -> None:
    fields = reading(
        power={"rail": {"VDD_GPU_SOC": {"power": 2000}, "VIN_SYS_5V0": {"power": 3000}}, "tot": {"power": 5000, "avg": 5000}}
    )
    assert [(rail.name, rail.watts, rail.within) for rail in fields.values["power"]] == [
        ("VDD_GPU_SOC", 2.0, ""),
        ("VIN_SYS_5V0", 3.0, ""),
    ]


def test_what_is_missing_or_odd_is_absent_with_its_reason() -> None:
    power = {"rail": {"A": {"power": True}}}
    fields = reading(cpu={"cpu": [{"online": False}]}, gpu={"gv11b": {"status": {"load": "-"}}}, power=power)
    assert fields.values["cpu_percent"] is None and fields.unavailable["cpu_percent"] == "every core is off"
    assert fields.values["gpus"][0].utilization_percent is None
    assert fields.values["power"][0].watts is None
    assert reading().unavailable == {"power": "jtop gives no power rails", "cpu_percent": "jtop gives no cores"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"error": "mismatch:\\n service [4.3.1], client [4.2.12]"}', "mismatch: service [4.3.1], client [4.2.12]"),
        (b"Traceback (most recent call last):", "Traceback (most recent call last):"),
        (b"[1, 2]", "[1, 2]"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_other_lines_are_refused_with_what_they_say(line: bytes, said: str) -> None:
    with pytest.raises(NotJtop) as raised:
        parse_line(line)
    assert str(raised.value) == said


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["cpu", "rail", "tot", "name", "EMC", "online", "status", "load", "temp", "freq"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["cpu", "gpu", "memory", "power", "temperature", "engine", "nvpmodel"]), odd))
def test_parts_of_any_shape_are_read(parts: dict[str, Any]) -> None:
    fields = parse_line(json.dumps(parts).encode())
    assert len(fields.values["gpus"]) == 1


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("NV Power Mode: MAXN\n0\n", "MAXN"),
        ("NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_15W_6CORE\n2", "MODE_15W_6CORE"),
        ("NV Power Mode: 30W \n", "30W"),
        ("NV Power Mode:\n0\n", None),
        ("permission denied", None),
        ("", None),
    ],
)
def test_power_mode(text: str, mode: str | None) -> None:
    assert power_mode(text) == mode
