"""A line of NVIDIA's `tegrastats`, from the TX1's (L4T 28) to Thor's (JetPack 7).

The fields come in any order, and the program's releases spell them in several ways. What is not understood is kept in `unread`.
Its MB are 1024 * 1024 bytes; of a pair `now/mean` the first number is the reading, the second a mean since the program's start.
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from distmon.core.formats.board import SENSOR_OFF_C


class NotTegrastats(ValueError):
    """A line that tegrastats did not print."""


class Load(Struct, frozen=True):
    """An engine or a memory controller. A part that the line does not give is None or empty."""

    percent: int | None = None
    clocks_mhz: tuple[int, ...] = ()
    """One for each of its clusters."""
    on: bool = True

    @property
    def clock_mhz(self) -> int | None:
        """The fastest of its clocks: idle clusters are gated."""
        return max(self.clocks_mhz, default=None)


class Core(Struct, frozen=True):
    on: bool
    percent: int | None = None
    clock_mhz: int | None = None


class Memory(Struct, frozen=True):
    used_bytes: int
    total_bytes: int


class Rail(Struct, frozen=True):
    name: str
    milliwatts: int
    mean_milliwatts: int


class TegrastatsLine(Struct, frozen=True, kw_only=True):
    clock: datetime | None = None
    """Of the board, without a time zone and to the second; older releases print none."""
    ram: Memory | None = None
    largest_free_block_bytes: int | None = None
    swap: Memory | None = None
    iram: Memory | None = None
    cores: tuple[Core, ...] = ()
    gpu: Load | None = None
    memory_controller: Load | None = None
    engines: dict[str, Load] = {}
    """Without `_FREQ` in their names."""
    temperatures_c: dict[str, float | None] = {}
    """None for a sensor that is switched off."""
    rails: tuple[Rail, ...] = ()
    unread: tuple[str, ...] = ()


_PERCENT = r"(?:100|\d\d?)%"
_CLOCK = r"@(?:\d{1,6}|\[[\d,]{0,60}\])"
_NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,39}"
_MILLIWATTS = r"\d{1,9}(?:mW)?"
_CELSIUS = r"-?\d{1,4}(?:\.\d{1,6})?C"
_UNITS = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_SIZE = r"(?:kB|MB|GB)"
_DETAIL = rf"\((?:lfb (?:\d{{1,9}}x)?\d{{1,9}}{_SIZE}|cached \d{{1,9}}{_SIZE})\)"

_PIECES = re.compile(
    "(?:"
    r"(?P<clock>\d\d-\d\d-\d{4} \d\d:\d\d:\d\d)"
    rf"|(?P<memory>(?:RAM|SWAP|IRAM) \d{{1,9}}/\d{{1,9}}{_SIZE}(?: ?{_DETAIL})?)"
    r"|(?P<cores>(?:CPU|cpu) \[[^\][]{0,4000}\](?:@\d{1,6})?)"
    rf"|(?P<tasks>MTS fg {_PERCENT} bg {_PERCENT})"
    rf"|(?P<celsius>{_NAME}@{_CELSIUS}(?:/{_CELSIUS})?)"
    rf"|(?P<rail>{_NAME} {_MILLIWATTS}/{_MILLIWATTS}(?:/{_MILLIWATTS})?)"
    rf"|(?P<load>{_NAME} (?:{_PERCENT}(?:{_CLOCK})?|{_CLOCK}|off))"
    rf"|(?P<frequency>(?:APE|{_NAME}_FREQ) \d{{1,6}})"
    r")(?!\S)|(?P<unread>\S+)",
    re.ASCII,
)
_MEMORY = re.compile(rf"(\w+) (\d+)/(\d+)({_SIZE})(?: ?\(lfb (?:(\d+)x)?(\d+)({_SIZE})\))?", re.ASCII)
_CORES = re.compile(r"off|(?:100|\d\d?)%(?:@\d{1,6})?", re.ASCII)
_NUMBERS = re.compile(r"\d+", re.ASCII)
_GPU = "GR3D"
_MEMORY_CONTROLLER = "EMC"


def parse_line(text: str) -> TegrastatsLine:
    """Raises NotTegrastats for a line with neither memory nor cores in it. Of a field that comes twice the first one counts."""
    reader = _Reader()
    for piece in _PIECES.finditer(text):
        kind = piece.lastgroup or ""
        if not getattr(reader, kind)(piece[0]):
            reader.unread(piece[0])
        elif kind != "unread":
            reader.end_unread()
    if reader.ram is None and not reader.core_list:
        raise NotTegrastats("neither RAM nor CPU in it")
    return reader.line()


class _Reader:
    """Collects the pieces of one line; a method for each kind of piece, which says whether it could use it."""

    def __init__(self) -> None:
        self.ram: Memory | None = None
        self.core_list: tuple[Core, ...] = ()
        self._clock: datetime | None = None
        self._largest: int | None = None
        self._memories: dict[str, Memory] = {}
        self._loads: dict[str, Load] = {}
        self._celsius: dict[str, float | None] = {}
        self._rails: dict[str, Rail] = {}
        self._unread: list[str] = []
        self._in_unread = False

    def line(self) -> TegrastatsLine:
        loads = self._loads
        gpu, controller = loads.pop(_GPU, None), loads.pop(_MEMORY_CONTROLLER, None)
        return TegrastatsLine(
            clock=self._clock,
            ram=self.ram,
            largest_free_block_bytes=self._largest,
            swap=self._memories.get("SWAP"),
            iram=self._memories.get("IRAM"),
            cores=self.core_list,
            gpu=gpu,
            memory_controller=controller,
            engines=loads,
            temperatures_c=self._celsius,
            rails=tuple(self._rails.values()),
            unread=tuple(self._unread),
        )

    def clock(self, text: str) -> bool:
        month, day, year, hour, minute, second = map(int, _NUMBERS.findall(text))
        if self._clock is not None:
            return False
        try:
            self._clock = datetime(year, month, day, hour, minute, second)
        except ValueError:
            return False
        return True

    def memory(self, text: str) -> bool:
        found = _MEMORY.match(text)
        if found is None or found[1] in self._memories:
            return False
        name, used, total, unit, blocks, block, block_unit = found.groups()
        memory = self._memories[name] = Memory(int(used) * _UNITS[unit], int(total) * _UNITS[unit])
        if name == "RAM":
            self.ram = memory
            self._largest = int(block) * _UNITS[block_unit] if blocks else None
        return True

    def cores(self, text: str) -> bool:
        if self.core_list:
            return False
        inside, _, shared = text[text.index("[") + 1 :].partition("]")
        entries = _CORES.findall(inside)
        if ",".join(entries) != inside:
            entries = self._odd_cores(inside)
        everyone = int(shared[1:]) if shared else None
        self.core_list = tuple([_core(entry, everyone) for entry in entries])
        return bool(entries)

    def _odd_cores(self, inside: str) -> list[str]:
        """The entries where not all are understood; empty for one that is not."""
        entries = [entry.strip() for entry in inside.split(",")] if inside.strip() else []
        known = [entry if _CORES.fullmatch(entry) else "" for entry in entries]
        pairs = zip(entries, known, strict=True)
        self._unread += [f"core {i}: {entry}" for i, (entry, good) in enumerate(pairs) if not good]
        return known

    def tasks(self, text: str) -> bool:
        """Time that the Denver cores' own code translator takes; of no use here, and understood."""
        return True

    def celsius(self, text: str) -> bool:
        name, _, value = text.partition("@")
        if name in self._celsius:
            return False
        degrees = float(value[: value.index("C")])
        self._celsius[name] = None if degrees <= SENSOR_OFF_C else degrees
        return True

    def rail(self, text: str) -> bool:
        name, _, values = text.partition(" ")
        if name in self._rails:
            return False
        now, mean = _NUMBERS.findall(values)[:2]
        self._rails[name] = Rail(name, int(now), int(mean))
        return True

    def load(self, text: str) -> bool:
        name, _, value = text.partition(" ")
        share, _, clocks = value.partition("@")
        percent = int(share[:-1]) if share.endswith("%") else None
        return self._add_load(name, Load(percent, tuple(map(int, _NUMBERS.findall(clocks))), on=value != "off"))

    def frequency(self, text: str) -> bool:
        name, _, value = text.partition(" ")
        return self._add_load(name, Load(None, (int(value),)))

    def unread(self, text: str) -> bool:
        """Words that follow each other are one piece."""
        if self._in_unread and self._unread:
            self._unread[-1] += " " + text
        else:
            self._unread.append(text)
        self._in_unread = True
        return True

    def end_unread(self) -> None:
        self._in_unread = False

    def _add_load(self, name: str, load: Load) -> bool:
        name = name.removesuffix("_FREQ")
        if name in self._loads:
            return False
        self._loads[name] = load
        return True


_OFF = Core(on=False)


def _core(entry: str, everyone_mhz: int | None) -> Core:
    """A core whose entry is not understood is on, with nothing known of it."""
    if entry == "off":
        return _OFF
    if not entry:
        return Core(True)
    share, _, clock = entry.partition("%")
    return Core(True, int(share), int(clock[1:]) if clock else everyone_mhz)
