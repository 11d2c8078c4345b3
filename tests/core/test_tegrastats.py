"""Lines of every release of tegrastats, made-up lines of any kind, and real logs where they are at hand."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distmon.core.formats.board import gpu_zone, is_measured
from distmon.core.formats.tegrastats import Core, Load, NotTegrastats, Rail, TegrastatsLine, parse_line

DATA = Path(__file__).parents[1] / "data"
HW01 = DATA / "cases" / "HW-01"
HW03 = DATA / "cases" / "HW-03"
REAL = Path(os.environ.get("DISTMON_REAL_DATA", Path(__file__).parents[3] / "shared" / "realdata"))
MB = 1 << 20


def expected(case: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((case / "expected.json").read_text())
    return found


def lines(path: Path) -> list[TegrastatsLine]:
    return [parse_line(line) for line in path.read_text().splitlines()]


# --- the public cases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", sorted(path.name for path in HW01.glob("*.log")))
def test_hw01_gpu_load_clock_and_temperature_in_every_spelling(log: str) -> None:
    wanted = expected(HW01)
    read = lines(HW01 / log)
    loads = [line.gpu or Load() for line in read]
    assert [{"util": load.percent, "freq_mhz": load.clock_mhz} for load in loads] == wanted["gpu"][log]  # type: ignore[index]
    zones = [line.temperatures_c for line in read]
    assert [found[gpu_zone(found) or ""] for found in zones] == wanted["gpu_temp_c"][log]  # type: ignore[index]
    assert [line.unread for line in read] == [(), ()]


def test_hw03_cores_that_are_off_are_no_zeros() -> None:
    for line, wanted in zip(lines(HW03 / "lines.log"), expected(HW03)["lines"], strict=True):  # type: ignore[call-overload]
        known = [core.percent for core in line.cores if core.percent is not None]
        assert len(line.cores) == wanted["cores"]
        assert len(known) == sum(core.on for core in line.cores) == wanted["online"]
        assert (sum(known) / len(known) if known else None) == wanted["cpu_pct"]


def test_spaces_between_cores_are_no_fault() -> None:
    line = parse_line("CPU [5%@120, off ,7%]")
    assert (line.cores, line.unread) == ((Core(True, 5, 120), Core(False), Core(True, 7)), ())


# --- single spellings -----------------------------------------------------------------------------------------------


def test_the_oldest_form() -> None:
    line = parse_line("RAM 3468/3983MB (lfb 48x4MB) SWAP 8/81MB (cached 2MB) cpu [17%,13%]@408 EMC 1%@408 APE 25 GR3D 3%@76")
    assert line.cores == (Core(True, 17, 408), Core(True, 13, 408))
    assert (line.gpu, line.memory_controller) == (Load(3, (76,)), Load(1, (408,)))
    assert line.engines == {"APE": Load(None, (25,))}
    assert line.ram is not None and line.ram.used_bytes == 3468 * MB
    assert line.largest_free_block_bytes == 4 * MB
    assert line.unread == ()


def test_rails_with_names_of_other_fields_units_or_three_numbers() -> None:
    line = parse_line("RAM 1/2MB CPU [2%@1190] GPU@37.5C CPU@37.5C GPU 0/0 CPU 311/312 SYS5V 1482mW/1480mW VIN 3mW/2mW/1mW")
    assert line.rails == (Rail("GPU", 0, 0), Rail("CPU", 311, 312), Rail("SYS5V", 1482, 1480), Rail("VIN", 3, 2))
    assert line.temperatures_c == {"GPU": 37.5, "CPU": 37.5}
    assert line.cores == (Core(True, 2, 1190),)


def test_a_clock_and_two_temperatures() -> None:
    line = parse_line("07-31-2026 14:58:05 RAM 1/2MB CV0@-256C soc1@49C/99.5C PMIC@100C")
    assert line.clock == datetime(2026, 7, 31, 14, 58, 5)
    assert line.temperatures_c == {"CV0": None, "soc1": 49.0, "PMIC": 100.0}
    assert [is_measured(zone, value) for zone, value in line.temperatures_c.items()] == [False, True, False]


def test_engines_that_are_off_are_told_from_idle_ones() -> None:
    line = parse_line("RAM 1/2MB NVENC0_FREQ @0 NVDEC off VIC 36%@115 VIC1_FREQ 729 GR3D_FREQ @[0,5,3]")
    assert line.engines == {
        "NVENC0": Load(None, (0,)),
        "NVDEC": Load(on=False),
        "VIC": Load(36, (115,)),
        "VIC1": Load(None, (729,)),
    }
    assert line.gpu == Load(None, (0, 5, 3))
    assert line.gpu.clock_mhz == 5


@pytest.mark.parametrize(
    ("cut", "unread"),
    [
        ("VDD_SOC 140", ("VDD_SOC 140",)),
        ("VDD_SOC 1405/", ("VDD_SOC 1405/",)),
        ("GPU@44", ("GPU@44",)),
        ("CPU [5%@120,", ("CPU [5%@120,",)),
        ("GR3D_FREQ", ("GR3D_FREQ",)),
        ("99-99-2025 10:00:00", ("99-99-2025 10:00:00",)),
        ("GR3D_FREQ 5% GR3D_FREQ 9%", ("GR3D_FREQ 9%",)),
        ("CPU [5%,weird,off]", ("core 1: weird",)),
        ("GR3D_FREQ 101%", ("GR3D_FREQ 101%",)),
        ("CPU [1%2%,]", ("core 0: 1%2%", "core 1: ")),
        ("CPU []", ("CPU []",)),
        ("one two  GPU@1C three", ("one two", "three")),
    ],
)
def test_what_is_cut_or_strange_is_kept_as_unread(cut: str, unread: tuple[str, ...]) -> None:
    assert parse_line(f"RAM 1/2MB {cut}").unread == unread


@pytest.mark.parametrize("text", ["", "nvidia@linux:~$ sudo tegrastats", "VDD_IN 5/5 GPU@40C", "10-01-2025 20:05:55", "RAM 12"])
def test_other_lines_are_refused(text: str) -> None:
    with pytest.raises(NotTegrastats):
        parse_line(text)


# --- any line -------------------------------------------------------------------------------------------------------

words = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(["RAM 1/2MB", "CPU [", "CPU [off]", "]", "GR3D_FREQ", "@", "9%@[1,2]", "GPU@1C"]),
        st.sampled_from(["VDD_IN 1/", "\u0661%", "off", "RAM \u0661/\u0662MB"]),
    ),
    max_size=30,
)


@given(words)
@example(["RAM " + "9" * 5000 + "/1MB"])
@example(["A" * 100_000])
def test_any_text_is_read_or_refused_and_nothing_of_it_is_lost(parts: list[str]) -> None:
    text = " ".join(parts)
    try:
        line = parse_line(text)
    except NotTegrastats:
        return
    words = set(text.split())
    assert all(piece.startswith("core ") or set(piece.split()) <= words for piece in line.unread)


names = st.from_regex(r"[A-Z][A-Z0-9_]{0,10}[A-Z0-9]", fullmatch=True).filter(
    lambda name: name not in {"RAM", "SWAP", "IRAM", "CPU", "EMC", "GR3D", "MTS", "APE"} and not name.endswith("_FREQ")
)
numbers = st.integers(0, 99_999)
percents = st.integers(0, 100)
clocks = st.lists(numbers, max_size=3).map(tuple)
loads = st.builds(Load, st.none() | percents, clocks) | st.just(Load(on=False))
cores = st.builds(Core, st.just(True), percents, st.none() | numbers) | st.just(Core(False))
generated = st.builds(
    TegrastatsLine,
    clock=st.none() | st.datetimes(datetime(2015, 1, 1), datetime(2040, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    cores=st.lists(cores, min_size=1, max_size=16).map(tuple),
    gpu=st.none() | loads.filter(lambda load: load.on and load != Load()),
    engines=st.dictionaries(names, loads.filter(lambda load: load != Load()), max_size=4),
    temperatures_c=st.dictionaries(names, st.none() | st.integers(-90_000, 120_000).map(lambda milli: milli / 1000), max_size=6),
    rails=st.lists(st.builds(Rail, names, numbers, numbers), max_size=6, unique_by=lambda rail: rail.name).map(tuple),
)


def write_load(name: str, load: Load) -> str:
    if not load.on:
        return f"{name} off"
    share = "" if load.percent is None else f"{load.percent}%"
    clocks = ",".join(map(str, load.clocks_mhz))
    clock = "" if not clocks else f"@{clocks}" if len(load.clocks_mhz) == 1 else f"@[{clocks}]"
    return f"{name} {share}{clock}"


def write_core(core: Core) -> str:
    if not core.on:
        return "off"
    return f"{core.percent}%" + ("" if core.clock_mhz is None else f"@{core.clock_mhz}")


def write(line: TegrastatsLine, unit: str) -> str:
    pieces = [line.clock.strftime("%m-%d-%Y %H:%M:%S")] if line.clock else []
    pieces.append("CPU [" + ",".join(map(write_core, line.cores)) + "]")
    pieces += [write_load("GR3D_FREQ", line.gpu)] if line.gpu else []
    pieces += [write_load(name, load) for name, load in line.engines.items()]
    pieces += [f"{name}@{-256 if value is None else value}C" for name, value in line.temperatures_c.items()]
    pieces += [f"{rail.name} {rail.milliwatts}{unit}/{rail.mean_milliwatts}{unit}" for rail in line.rails]
    return " ".join(pieces)


@given(generated, st.sampled_from(["", "mW"]))
def test_lines_come_back_as_they_were_written(line: TegrastatsLine, unit: str) -> None:
    assert parse_line(write(line, unit)) == line


# --- real logs ------------------------------------------------------------------------------------------------------


def real_logs() -> list[tuple[str, str]]:
    """(file, its truth values) from the index beside the logs."""
    index = REAL / "INDEX.md"
    rows = re.findall(r"^\| `tegrastats/([\w.-]+\.log)` .*\| ([^|]+) \|$", index.read_text(), re.M) if index.is_file() else []
    return rows or [("none", "")]


@pytest.mark.parametrize(("name", "truth"), real_logs())
def test_real_logs_are_read_in_full_and_give_their_known_truths(name: str, truth: str) -> None:
    if name == "none":
        pytest.skip(f"no real logs in {REAL}; DISTMON_REAL_DATA names another folder")
    read, refused = [], 0
    for text in (REAL / "tegrastats" / name).read_text().splitlines():
        try:
            read.append(parse_line(text))
        except NotTegrastats:
            refused += bool(text.strip())
    assert [piece for line in read for piece in line.unread] == []
    assert len(read) + refused == int(re.match(r"(\d+) non-blank", truth)[1])  # type: ignore[index]
    megabytes = [line.ram.used_bytes // MB for line in read if line.ram]
    ram = re.search(r"RAM MB first/last/max (\d+)/(\d+)/(\d+) \((\d+) readings", truth)
    assert ram and (megabytes[0], megabytes[-1], max(megabytes), len(megabytes)) == tuple(map(int, ram.groups()))
    for rail, n, first, last, mean in re.findall(r"(\w+) n=(\d+) first (\d+) last (\d+) mean ([\d.]+) mW", truth):
        found = [entry.milliwatts for line in read for entry in line.rails if entry.name == rail]
        assert (len(found), found[0], found[-1]) == (int(n), int(first), int(last))
        assert sum(found) / len(found) == pytest.approx(float(mean), abs=5e-4)
    shares = [line.gpu.percent for line in read if line.gpu and line.gpu.percent is not None]
    gpu = re.search(r"GR3D% n=(\d+) mean ([\d.]+) max (\d+)", truth)
    assert bool(gpu) == bool(shares)
    if gpu:
        assert (len(shares), max(shares)) == (int(gpu[1]), int(gpu[3]))
        assert sum(shares) / len(shares) == pytest.approx(float(gpu[2]), abs=5e-4)
