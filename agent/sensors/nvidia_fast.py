"""What every sample asks of an NVIDIA GPU: NVML's C functions by their addresses, with arguments made once for a GPU.

The binding's own wrappers make structs and look functions up anew at each call, which costs several times the call itself.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from distmon.agent.machine_code import native
from distmon.agent.sensors.nvidia_calls import Handle, Nvml

_FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH = 13, 25
_SM_CLOCK = 1
_NO_ARGUMENT = -1
_ANSWER_BYTES = 64

THROTTLE_REASONS = (
    (0x002, "clocks set by a user"),
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x010, "sync boost"),
    (0x020, "hot (driver)"),
    (0x040, "hot (hardware)"),
    (0x080, "power brake"),
    (0x100, "display clocks"),
)
"""Bits of NVML's clock event reasons. An idle GPU (bit 1) is not slowed down."""


class Form(NamedTuple):
    """A C function `int name(device[, argument], answer)`, and where in its answer the numbers are."""

    name: str
    layout: str
    """As in module struct, in native order and alignment."""
    argument: int = _NO_ARGUMENT
    version: int = 0
    """What the answer has to begin with."""

    @property
    def numbers(self) -> int:
        """How many its answer has."""
        return len(struct.unpack(f"@{self.layout}", bytes(_size(self))))

    def place(self, number: int) -> tuple[int, str]:
        """At which byte of the answer a number of it begins, and its letter."""
        ends = [end for end, letter in enumerate(self.layout, 1) if letter in "iIQ"]
        letter = self.layout[ends[number] - 1]
        return struct.calcsize(f"@{self.layout[: ends[number]]}") - struct.calcsize(letter), letter


def _thousandth(number: int) -> float:
    return number / 1000


@cache
def _in_words(bits: int) -> tuple[str, ...]:
    return tuple(words for bit, words in THROTTLE_REASONS if bits & bit)


def _throttle(bits: int) -> list[str]:
    return [*_in_words(bits)] if bits > 1 else []


_MADE: dict[Callable[[int], Any], str] = {int: "i", float: "f", _thousandth: "m", _throttle: "b"}
"""What is made of a number, as machine code is told it."""
Value = tuple[str, int, Callable[[int], Any]]
"""A field of GpuReading, which of a call's numbers it is, and what is made of that."""


class Call(NamedTuple):
    """The forms of a call, of which the first that the driver knows is used, and what it gives."""

    values: tuple[Value, ...]
    forms: tuple[Form, ...]

    @property
    def fields(self) -> list[str]:
        return [name for name, _, _ in self.values]


_VERSION_2_OF_MEMORY, _VERSION_1_OF_TEMPERATURE = 0x2000028, 0x100000C
MEMORY = Call(
    (("memory_used_bytes", 1, int), ("memory_total_bytes", 0, int)),
    # As nvidia-smi counts: without what the driver keeps for itself, which the first version of the call adds to `used`.
    (
        Form("nvmlDeviceGetMemoryInfo_v2", "8xQ16xQ", version=_VERSION_2_OF_MEMORY),
        Form("nvmlDeviceGetMemoryInfo", "Q8xQ"),
    ),
)
FAST = (
    Call((("utilization_percent", 0, float),), (Form("nvmlDeviceGetUtilizationRates", "I"),)),
    MEMORY,
    Call(
        (("temperature_c", 0, float),),
        # NVIDIA will drop the first with CUDA 14; the other needs a driver of 2025.
        (
            Form("nvmlDeviceGetTemperature", "I", argument=0),
            Form("nvmlDeviceGetTemperatureV", "8xi", version=_VERSION_1_OF_TEMPERATURE),
        ),
    ),
    Call((("power_w", 0, _thousandth),), (Form("nvmlDeviceGetPowerUsage", "I"),)),
    Call((("energy_j", 0, int),), (Form("nvmlDeviceGetTotalEnergyConsumption", "Q"),)),
    Call((("sm_clock_mhz", 0, float),), (Form("nvmlDeviceGetClockInfo", "I", argument=_SM_CLOCK),)),
    Call(
        (("throttle", 0, _throttle),),
        # The other is its name before driver 535.
        (
            Form("nvmlDeviceGetCurrentClocksEventReasons", "Q"),
            Form("nvmlDeviceGetCurrentClocksThrottleReasons", "Q"),
        ),
    ),
)
"""`energy_j` holds the counter itself, in millijoules."""


class Refusal(NamedTuple):
    call: Call
    code: int
    """NVML's."""


class Questions:
    """Some calls for one GPU, bound to the functions of the library that is loaded now. Not for two threads at once."""

    def __init__(self, nvml: Nvml, handle: Handle, calls: Iterable[Call]) -> None:
        self._nvml = nvml
        self._handle = _address(nvml, handle)
        self._bind([(call, 0) for call in calls])

    def ask(self) -> tuple[dict[str, Any], list[Refusal]]:
        """Values by field, and the calls that gave none."""
        return self.told(self._ask_in_python() if native is None else native.ask_driver(*self.packed))

    def told(self, answers: bytes) -> tuple[dict[str, Any], list[Refusal]]:
        """The same of what machine code was answered."""
        if native is not None and not self._unknown and (found := native.values_told(answers, self.places)) is not None:
            return found, []
        return self.told_python(answers)

    def told_python(self, answers: bytes) -> tuple[dict[str, Any], list[Refusal]]:
        """The same in Python, which also looks at refusals."""
        numbers = self._layout.unpack(answers)
        if not (self._unknown or any(map(numbers.__getitem__, self._codes))):
            return {name: make(numbers[place]) for name, place, make in self._values}, []
        refused = [Refusal(bound[0], numbers[at]) for bound, at in zip(self._bound, self._codes, strict=True) if numbers[at]]
        too_new = [call for call, code in refused if code in (_FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH)]
        if any(call in too_new and place + 1 < len(call.forms) for call, place, _ in self._bound):
            self._bind([(call, place + (call in too_new)) for call, place, _ in self._bound])
            return self.ask()
        absent = {name for call, _ in refused for name in call.fields}
        return {n: make(numbers[place]) for n, place, make in self._values if n not in absent}, [*refused, *self._unknown]

    def leave_out(self, calls: Sequence[Call]) -> None:
        """They are not asked any more."""
        self._bind([(call, place) for call, place, _ in self._bound if call not in calls])

    def _bind(self, calls: list[tuple[Call, int]]) -> None:
        """Each call in the form of that place, or in the next one that the library has."""
        self._bound: list[tuple[Call, int, Any]] = []
        self._unknown: list[Refusal] = []
        for call, first in calls:
            functions = ((place, self._function(call.forms[place].name)) for place in range(first, len(call.forms)))
            place, function = next((found for found in functions if found[1] is not None), (0, None))
            if function is None:
                self._unknown.append(Refusal(call, _FUNCTION_NOT_FOUND))
            else:
                self._bound.append((call, place, function))
        forms = [call.forms[place] for call, place, _ in self._bound]
        pairs = zip(self._bound, forms, strict=True)
        addresses = ((_address(self._nvml, function), form) for (_, _, function), form in pairs)
        packed = b"".join(_QUESTION.pack(address, form.argument, form.version) for address, form in addresses)
        self.packed = self._handle, packed
        """The device and the questions for machine code, whose answers are for `told`."""
        self._layout = struct.Struct("@" + "".join(f"q{form.layout}{_ANSWER_BYTES - _size(form)}x" for form in forms))
        self._codes = [0, *accumulate(1 + form.numbers for form in forms)][: len(forms)]
        places = zip(self._bound, self._codes, strict=True)
        self._values: list[Value] = [
            (name, code + 1 + number, make) for (call, _, _), code in places for name, number, make in call.values
        ]
        self.places = [
            (name, answer, *forms[answer].place(number), _MADE[make])
            for answer, (call, _, _) in enumerate(self._bound)
            for name, number, make in call.values
        ]
        """The same for machine code."""

    def _ask_in_python(self) -> bytes:
        """As native.ask_driver does it."""
        answers: list[bytes] = []
        for call, place, function in self._bound:
            form = call.forms[place]
            answer = self._nvml.create_string_buffer(form.version.to_bytes(4, sys.byteorder), _ANSWER_BYTES)
            arguments = () if form.argument == _NO_ARGUMENT else (form.argument,)
            code = function(self._nvml.c_void_p(self._handle), *arguments, self._nvml.byref(answer))
            answers.append(struct.pack("@q", code) + answer.raw)
        return b"".join(answers)

    def _function(self, name: str) -> Any:
        """None where the library lacks it."""
        try:
            return self._nvml._nvmlGetFunctionPointer(name)
        except self._nvml.NVMLError:
            return None


_QUESTION = struct.Struct("@qiI")


def _size(form: Form) -> int:
    return struct.calcsize(f"@{form.layout}")


def _address(nvml: Nvml, pointer: Any) -> int:
    return nvml.cast(pointer, nvml.c_void_p).value or 0
