"""The sampler and the loop around it: several sources of one field, rare readings, dead mounts, the sampling grid."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from distmon.agent.loop import Agent
from distmon.agent.sampler import Sampler
from distmon.agent.sensors import SOURCES, Source
from distmon.agent.sensors.base import Reading, Roots, Sensor
from distmon.agent.sensors.cpu import CpuSensor
from distmon.core.codec import encode_msgpack
from distmon.core.events import NodeSampled, PowerRail, Temperature

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from host_tree import HostTree

from tests.agent.trees import write

SECOND = 10**9
HOST = ("cpu", "frequency", "memory", "load", "pressure", "disks", "power")
RECORD_WHAT_IS_OPENED = """
import os, sys
from pathlib import Path
from distmon.agent.sampler import Sampler
from distmon.agent.sensors import SOURCES
from distmon.agent.sensors.base import Roots

HOST = ("cpu", "frequency", "memory", "load", "pressure", "disks", "power", "temperatures")
sources = [source for source in SOURCES if source.name in HOST]
assert len(sources) == len(HOST)
touched = []
def watch(name, arguments):
    if name in ("open", "os.listdir", "os.scandir"):
        touched.append(str(arguments[0]))
def asked_file_system(*arguments):
    raise AssertionError(arguments)
os.statvfs = os.fstatvfs = asked_file_system
tree = Path(sys.argv[1])
sys.addaudithook(watch)
sampler = Sampler("n", Roots(tree / "proc", tree / "sys"), sources)
sampler.prime()
sampler.sample(at=1.0)
print("\\n".join(touched))
"""


class Told:
    """Answers what it was given, and counts how often it was asked."""

    def __init__(self, *readings: Reading) -> None:
        self.fields: tuple[str, ...] = tuple(readings[0].values)
        self.readings = readings
        self.reads = 0

    def read(self, now_ns: int) -> Reading:
        self.reads += 1
        return self.readings[min(self.reads, len(self.readings)) - 1]


class Clock:
    """A machine's monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 100 * SECOND

    def seconds(self) -> float:
        return self.now_ns / SECOND

    def pass_time(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    write(tmp_path / "proc/net/dev", "eth0: 1 0 0 0 0 0 0 0 1")
    return Roots(tmp_path / "proc", tmp_path / "sys")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("distmon.agent.sampler.time.monotonic_ns", lambda: clock.now_ns)
    return clock


def source(sensor: Sensor, every_s: float = 0.0, *, may_block: bool = False) -> Source:
    return Source("test", lambda roots: sensor, may_block, every_s)


def rail(name: str) -> PowerRail:
    return PowerRail(name=name, watts=1.0, source="test")


def test_devices_of_several_sources_add_up(roots: Roots) -> None:
    sources = [source(Told(Reading({"power": [rail(name)], "sources": {name: "x"}}, {}))) for name in ("package-0", "VDD_IN")]
    sample = Sampler("n", roots, sources).sample(at=1.0)
    assert [rail.name for rail in sample.power] == ["package-0", "VDD_IN"]
    assert sample.sources == {"package-0": "x", "VDD_IN": "x"}


def test_a_source_without_a_value_neither_hides_another_s_nor_leaves_its_reason(roots: Roots) -> None:
    absent = Told(Reading({"power": [], "load_1m": None}, {"power": "no counters", "load_1m": "unknown"}))
    sample = Sampler("n", roots, [source(Told(Reading({"load_1m": 2.0, "power": [rail("a")]}, {}))), source(absent)]).sample(
        at=1.0
    )
    assert (sample.load_1m, [rail.name for rail in sample.power]) == (2.0, ["a"])
    assert not {"power", "load_1m"} & set(sample.unavailable)


def test_reasons_of_several_sources_without_a_value_are_all_told(roots: Roots) -> None:
    sources = [source(Told(Reading({"power": []}, {"power": reason}))) for reason in ("no RAPL", "no board")]
    assert Sampler("n", roots, sources).sample(at=1.0).unavailable["power"] == "no RAPL; no board"


def test_part_of_a_source_s_devices_may_be_absent_with_their_reason(roots: Roots) -> None:
    told = Told(Reading({"power": [rail("package-0")]}, {"power": "package-1: not readable"}))
    assert Sampler("n", roots, [source(told)]).sample(at=1.0).unavailable["power"] == "package-1: not readable"


@pytest.mark.parametrize("may_block", [False, True])
def test_what_is_read_rarely_goes_out_with_its_age(roots: Roots, clock: Clock, may_block: bool) -> None:
    told = Told(*(Reading({"temperatures": [Temperature(name="t", celsius=float(i))]}, {}) for i in range(9)))
    sampler = Sampler("n", roots, [source(told, 5.0, may_block=may_block)])
    shown: list[tuple[float, float]] = []
    for _ in range(8):
        sample = sampler.sample(at=0.0)
        shown.append((sample.temperatures[0].celsius, sample.age_s.get("temperatures", 0.0)))
        clock.pass_time(0.99)
    assert shown == [(0, 0), (1, 0), (1, 0.99), (1, 1.98), (1, 2.97), (1, 3.96), (2, 0), (2, 0.99)]


def test_no_file_system_is_asked_so_that_a_dead_mount_stops_nothing(roots: Roots) -> None:
    write(roots.proc / "mounts", "server:/export /dead nfs4 rw,hard 0 0")
    write(roots.proc / "stat", "cpu  1 0 0 1")
    (roots.sys / "block/sda").mkdir(parents=True)
    command = [sys.executable, "-c", RECORD_WHAT_IS_OPENED, str(roots.proc.parent)]
    touched = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert str(roots.proc / "stat") in touched
    assert [path for path in touched if not path.startswith((str(roots.proc), str(roots.sys)))] == []


def test_ten_samples_a_second_for_an_hour_on_an_injected_clock_do_not_drift(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, luck, late_ns = Clock(), random.Random(4), list[int]()
    start_ns, rounding_ns = clock.now_ns, 1000
    (tmp_path / "run").mkdir(mode=0o700)
    agent = Agent([f"ipc://{tmp_path}/run/agent.sock"], [], 10.0, 1.0, roots, clock.seconds)

    def serve(seconds: float) -> None:
        """A wait that ends up to 30 ms too late; once, the machine stands still for 5 seconds."""
        clock.pass_time(max(0.0, seconds) + luck.random() * 0.03 + (5.0 if len(late_ns) == 20_000 else 0.0))

    def sample(at: float) -> NodeSampled:
        late_ns.append((clock.now_ns - start_ns + rounding_ns) % (SECOND // 10))
        if clock.now_ns - start_ns >= 3600 * SECOND:
            agent.stop("an hour is over")
        return NodeSampled(at=at, node="n", interval_s=0.1)

    monkeypatch.setattr(agent.publisher, "serve", serve)
    monkeypatch.setattr(agent.sampler, "sample", sample)
    agent.run()
    agent.close()
    assert max(late_ns) < 0.03 * SECOND + rounding_ns
    assert len(late_ns) == pytest.approx(36_000 - 50, abs=2)


def test_one_sample_alone_waits_for_a_source_that_takes_long_to_start(tmp_path: Path) -> None:
    started = threading.Event()

    class Driver:
        fields: tuple[str, ...] = ("load_1m",)

        def read(self, now_ns: int) -> Reading:
            started.wait()
            return Reading({"load_1m": 1.5}, {})

    sampler = Sampler("n", Roots(tmp_path / "proc", tmp_path / "sys"), [Source("slow", lambda roots: Driver(), may_block=True)])
    sampler.prime()
    assert sampler.sample(1.0).load_1m is None
    threading.Timer(0.2, started.set).start()
    sampler.settle(60.0)
    assert sampler.sample(2.0).load_1m == 1.5


def test_a_sample_that_is_sent_on_says_the_same(tmp_path: Path, clock: Clock) -> None:
    tree = HostTree(tmp_path, range(101, 105), 3, cores=4)
    try:
        host = [source for source in SOURCES if source.name in HOST]
        samplers = [Sampler("n", Roots(tree.proc, tree.sys), host, packed=packed) for packed in (False, True)]
        for sampler in samplers:
            sampler.network.used_by_training = frozenset({"eth0"})
            for rank, pid in enumerate(range(101, 105)):
                sampler.processes.watch(pid, rank)
        for second in range(4):
            tree.move()
            clock.pass_time(1.0)
            plain, packed = (sampler.sample(float(second)) for sampler in samplers)
            assert encode_msgpack(packed) == encode_msgpack(plain)
        raw = {name for name in plain.__struct_fields__ if isinstance(getattr(packed, name), msgspec.Raw)}
        assert raw >= {"cores_percent", "networks", "infiniband", "processes", "power", "disks", "cores_mhz"}
    finally:
        tree.close()


def test_values_that_several_sources_make_are_not_packed(tmp_path: Path) -> None:
    write(tmp_path / "proc/stat", "cpu 1 2 3 4")
    roots = Roots(tmp_path / "proc", tmp_path / "sys")
    board = Told(Reading({"cores_percent": [5.0]}, {}))
    board.fields = ("cores_percent",)
    sampler = Sampler("n", roots, [Source("cpu", CpuSensor), source(board)], packed=True)
    sampler.prime()
    assert sampler.sample(1.0).cores_percent == [5.0]
