"""Hostile input for all that takes bytes from outside: good ones, mutated from a seed. A target raises only for findings."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from distmon.agent.segments import Commit, Scan, encode
from distmon.agent.sensors.base import Reading, Roots
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.agent.together import together
from distmon.core.codec import BadEvent, decode_batch, decode_json, encode_batch, encode_json, encode_msgpack
from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, StepsRecorded
from distmon.core.fold import apply
from distmon.core.formats.horovod_timeline import parse_horovod_timeline
from distmon.core.formats.jtop import NotJtop
from distmon.core.formats.jtop import parse_line as parse_jtop
from distmon.core.formats.nvidia_smi import parse_nvidia_smi
from distmon.core.formats.nvpmodel import power_mode
from distmon.core.state import SessionState
from distmon.core.step_sums import summed
from distmon.core.synthetic import Script, session
from distmon.replay.importers.base import ImportNotes, ImportOptions
from distmon.replay.importers.tegrastats import import_tegrastats
from distmon.replay.session_file import Notes, open_session
from distmon.wire.backlog import Part
from distmon.wire.frames import (
    WIRE_VERSION,
    BadFrame,
    Header,
    Request,
    decode_body,
    decode_headers,
    decode_request,
    encode_header,
    encode_request,
)

EVENTS: list[AnyEvent] = list(session(Script(ranks=3, nodes=2, seconds=4, gpus_per_node=1)))
STEPS = [event for event in EVENTS if isinstance(event, StepsRecorded)]
WORKERS = sorted({event.worker for event in STEPS})
TABLES = list(together([[event for event in STEPS if event.worker == worker] for worker in WORKERS]))
EVENTS += [*TABLES, *(sums for event in TABLES if (sums := summed(event)) is not None)]
LINES = [encode_json(event) for event in EVENTS]
BODIES = [encode_batch(EVENTS[at : at + 3]) for at in range(0, len(EVENTS), 3)]
HEADER = encode_header(Header(v=WIRE_VERSION, node="n", boot="b", stream="n/b/s", seq=1, count=3, clock=(1, 2, 3)))
REQUEST = encode_request(Request(v=WIRE_VERSION, session="s", cursors={"n/b/s": 3}, stored={"n/b/s": 2}, sent_ns=5))
SEGMENT = b"".join(encode(Commit(1.0, [Part("n/b/s", seq, [encode_msgpack(event)])])) for seq, event in enumerate(EVENTS[:6], 1))
_FOLDER = tempfile.TemporaryDirectory(prefix="distmon-fuzz-")
_CASES = Path(__file__).parents[1] / "data" / "cases"
TEGRASTATS = [path.read_bytes()[:4000] for path in sorted((_CASES / "HW-01").glob("*.log"))]
TIMELINE = (_CASES / "RR-03" / "ok.json").read_bytes()
JTOP = b'{"cpu":[{"user":1,"idle":97}],"power":{"rail":{"VDD":{"power":1405}},"tot":{"power":5120}},"temperature":{"cpu":40.5}}'
SMI = b"<nvidia_smi_log><gpu id='0'><uuid>GPU-1</uuid><utilization><gpu_util>5 %</gpu_util></utilization></gpu></nvidia_smi_log>"
NVPMODEL = b"NV Power Mode: MODE_15W\n2\n"
OPTIONS = ImportOptions(session_id="s", distmon_version="0", host="board", start=100.0)
STAT = b"cpu  90 1 30 400 5 0 1 0 0 0\ncpu0 45 1 15 200 5 0 1 0 0 0\ncpu2 45 0 15 200 0 0 0 0 0 0\nintr 5 0\n"
MEMINFO = b"MemTotal: 900 kB\nMemAvailable:  300 kB\nSwapTotal: 10 kB\nSwapFree:   7 kB\n"
DISKSTATS = b"8 0 sda 1 0 20 0 1 0 30 0 0 40 0\n8 1 sda1 1 0 2 0 1 0 3 0 0 4 0\n259 0 nvme0n1 1 0 5 0 1 0 6 0 0 7\n"
NET_DEV = b" face |bytes\n  eth0: 700 1 0 0 0 0 0 0 800 1 0\n    lo: 50 1 0 0 0 0 0 0 50 1\nib0: 0 0 0 0 0 0 0 0 0\n"
PROCESS = b"7 (py) x) R " + b"1 " * 10 + b"70 8 0 0 20 0 12 0 99 10 345 0 0\n"
KERNEL_FILES: list[tuple[Any, str, bytes]] = [
    (CpuSensor, "proc/stat", STAT),
    (MemorySensor, "proc/meminfo", MEMINFO),
    (DiskSensor, "proc/diskstats", DISKSTATS),
    (NetworkSensor, "proc/net/dev", NET_DEV),
    (ProcessSensor, "proc/7/stat", PROCESS),
]
ODD: list[Any] = [None, True, -1, 0, 1, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, -1e308, 1e-308, float("nan"), float("inf")]
ODD += [10**12, 10**15, -(10**15), 1e11, "", "\x1b[2J", "\u202e[red]", "x" * 5000, [], {}, [[[[]]]], b"\xff"]
_FLIPS = b"\x00\x01\x7f\x80\x90\xc0\xc1\xd9\xdb\xdd\xdf\xff"


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A few cuts, copies, flips and insertions."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(out) + 1)
        move = dice.randrange(6)
        if move == 0 and at < len(out):
            out[at] ^= 1 << dice.randrange(8)
        elif move == 1 and at < len(out):
            out[at] = dice.choice(_FLIPS)
        elif move == 2:
            del out[at : at + dice.randrange(1, 40)]
        elif move == 3:
            out[at:at] = dice.randbytes(dice.randrange(1, 12))
        elif move == 4:
            begin = dice.randrange(len(out) + 1)
            out[at:at] = out[begin : begin + dice.randrange(1, 60)]
        else:
            del out[at:]
    return bytes(out)


def header(dice: random.Random) -> None:
    """An agent's message."""
    try:
        found = decode_headers([mutated(HEADER, dice), b""])[0]
        decode_body(found, mutated(dice.choice(BODIES), dice))
    except BadFrame as bad:
        assert bad.reason


def body(dice: random.Random) -> None:
    """A frame's events: each is one, or told as bad."""
    try:
        events, bad = decode_batch(mutated(dice.choice(BODIES), dice))
    except BadEvent:
        return
    assert all(isinstance(error, BadEvent) for error in bad)
    assert len(events) + len(bad) < 1 << 20


def request(dice: random.Random) -> None:
    """A viewer's message."""
    try:
        decode_request([mutated(REQUEST, dice)])
    except BadFrame as bad:
        assert bad.reason


def line(dice: random.Random) -> None:
    """A line of a session file."""
    try:
        decode_json(mutated(dice.choice(LINES), dice))
    except BadEvent:
        return


def session_file(dice: random.Random) -> None:
    """A recording, plain or compressed: read to its end, or refused in one line."""
    content = b"\n".join([LINES[0], *dice.sample(LINES, 4)])
    packed = dice.random() < 0.5
    if packed:
        content = zstandard.compress(content, 1)
    path = Path(_FOLDER.name) / ("s.jsonl.zst" if packed else "s.jsonl")
    path.write_bytes(mutated(content, dice))
    notes = Notes()
    try:
        for _ in open_session(path).events(notes):
            pass
    except DistmonError as error:
        assert "\n" not in str(error)
    assert all("\n" not in sentence for sentence in notes.sentences())


def tegrastats(dice: random.Random) -> None:
    """A log to be imported: each of its events is one that a session file takes."""
    path = Path(_FOLDER.name) / "board.log"
    log = dice.choice(TEGRASTATS)
    begin = dice.randrange(len(log))
    path.write_bytes(mutated(log[begin : begin + 1000], dice))
    try:
        for event in import_tegrastats(path, OPTIONS, ImportNotes()):
            decode_json(encode_json(event))
    except DistmonError as error:
        assert "\n" not in str(error)


def timeline(dice: random.Random) -> None:
    """Horovod's own timeline."""
    begin = dice.randrange(len(TIMELINE))
    try:
        parse_horovod_timeline(mutated(TIMELINE[:1] + TIMELINE[begin : begin + 1500], dice).decode("utf-8", "replace"))
    except DistmonError as error:
        assert "\n" not in str(error)


def programs(dice: random.Random) -> None:
    """What jtop, nvidia-smi and nvpmodel print."""
    with suppress(NotJtop):
        parse_jtop(mutated(JTOP, dice))
    with suppress(ValueError):
        parse_nvidia_smi(mutated(SMI, dice).decode("utf-8", "replace"))
    power_mode(mutated(NVPMODEL, dice).decode("utf-8", "replace"))


def kernel_files(dice: random.Random) -> None:
    """What the agent reads at every sample: machine code makes of it what Python makes, or leaves it to Python."""
    kind, path, text = dice.choice(KERNEL_FILES)
    if path not in _SENSORS:
        folder = Path(_FOLDER.name) / kind.__name__
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        for disk in ("sda", "nvme0n1"):
            (folder / "sys/block" / disk).mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)
        _SENSORS[path] = [kind(Roots(folder / "proc", folder / "sys")) for _ in range(2)]
        for sensor in _SENSORS[path]:
            if isinstance(sensor, ProcessSensor):
                sensor.watch(7, 0)
    packed, plain = _SENSORS[path]
    for content in (mutated(text, dice), mutated(text, dice)):
        (Path(_FOLDER.name) / kind.__name__ / path).write_bytes(content)
        _NOW_NS[0] += dice.randrange(2 * 10**9)
        said = [_said(ask, _NOW_NS[0]) for ask in (packed.packed, plain.read)]
        assert said[0] == said[1], (content, said)
    if isinstance(packed, ProcessSensor):
        for sensor in (packed, plain):
            sensor.watch(7, 0)  # one whose file made no sense is given up


def _said(ask: Callable[[int], Reading], now_ns: int) -> object:
    try:
        reading = ask(now_ns)
    except (ValueError, IndexError) as error:
        return type(error)
    return {name: msgspec.msgpack.encode(value) for name, value in reading.values.items()}, reading.unavailable


_SENSORS: dict[str, list[Any]] = {}
_NOW_NS = [0]


def segment(dice: random.Random) -> None:
    """An agent's journal: what is found is whole, in order, and within the file."""
    data = mutated(SEGMENT, dice)
    found = list(Scan(data))
    assert all(before.offset + before.size <= after.offset for before, after in pairwise(found))
    assert not found or found[-1].offset + found[-1].size <= len(data)


def odd_values(dice: random.Random) -> None:
    """A well-formed event with values that nobody means, folded between good ones."""
    plain = msgspec.json.decode(encode_json(dice.choice(EVENTS)))
    for _ in range(dice.randrange(1, 4)):
        _put_odd(plain, dice)
    try:
        event = decode_json(msgspec.json.encode(plain))
    except (BadEvent, msgspec.EncodeError, ValueError, TypeError):
        return
    if dice.randrange(200) == 0 or not _STATES:
        state = SessionState()
        for good in EVENTS[:60]:
            apply(state, good)
        _STATES[:] = [state]
    apply(_STATES[0], event)


_STATES: list[SessionState] = []


def _put_odd(value: Any, dice: random.Random) -> None:
    """Replaces something inside."""
    if isinstance(value, dict) and value:
        key = dice.choice(list(value))
        if isinstance(value[key], dict | list) and value[key] and dice.random() < 0.7:
            _put_odd(value[key], dice)
        elif key != "kind":
            value[key] = deepcopy(dice.choice(ODD))
    elif isinstance(value, list) and value:
        at = dice.randrange(len(value))
        if isinstance(value[at], dict | list) and value[at] and dice.random() < 0.7:
            _put_odd(value[at], dice)
        else:
            value[at] = deepcopy(dice.choice(ODD))


TARGETS: dict[str, Callable[[random.Random], None]] = {
    target.__name__: target
    for target in (
        *(header, body, request, line, session_file, tegrastats, timeline, programs),
        *(segment, kernel_files, odd_values),
    )
}
