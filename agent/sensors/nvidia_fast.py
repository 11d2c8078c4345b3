"""What every sample asks of an NVIDIA GPU: NVML's C functions through the binding, each with its arguments made once for a GPU.

The binding's own wrappers make structs and look functions up anew at each call, which costs several times the call itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distmon.agent.sensors.nvidia_calls import Ask, Call, Handle, Nvml

_SM_CLOCK = 1

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


def _bound(nvml: Nvml, name: str, handle: Handle, answer: Any, *arguments: object) -> Callable[[], None]:
    """The C function `name` that fills in `answer`."""
    function = nvml._nvmlGetFunctionPointer(name)
    reference = nvml.byref(answer)

    def call() -> None:
        code = function(handle, *arguments, reference)
        if code:
            raise nvml.NVMLError(code)

    return call


def _number(field: str, answer: Any, call: Callable[[], None], value: Callable[[int], object] = float) -> Ask:
    """Puts the one number that `call` leaves in `answer` into `field`."""

    def ask(into: dict[str, Any]) -> None:
        call()
        into[field] = value(answer.value)

    return ask


def _utilization(nvml: Nvml, handle: Handle) -> Ask:
    rates = nvml.c_nvmlUtilization_t()
    call = _bound(nvml, "nvmlDeviceGetUtilizationRates", handle, rates)

    def ask(into: dict[str, Any]) -> None:
        call()
        into["utilization_percent"] = float(rates.gpu)

    return ask


def bind_memory(nvml: Nvml, handle: Handle) -> Ask:
    """As nvidia-smi counts: without what the driver keeps for itself, which the first version of the call adds to `used`."""
    newer, older = nvml.c_nvmlMemory_v2_t(), nvml.c_nvmlMemory_t()
    newer.version = nvml.nvmlMemory_v2
    try:
        memory, call = newer, _bound(nvml, "nvmlDeviceGetMemoryInfo_v2", handle, newer)
        call()
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        memory, call = older, _bound(nvml, "nvmlDeviceGetMemoryInfo", handle, older)

    def ask(into: dict[str, Any]) -> None:
        call()
        into["memory_used_bytes"], into["memory_total_bytes"] = memory.used, memory.total

    return ask


def _temperature(nvml: Nvml, handle: Handle) -> Ask:
    celsius = nvml.c_uint()
    try:
        call = _bound(nvml, "nvmlDeviceGetTemperature", handle, celsius, 0)
    except nvml.NVMLError_FunctionNotFound:  # NVIDIA will drop it with CUDA 14; the other needs a driver of 2025
        return lambda into: into.update(temperature_c=float(nvml.nvmlDeviceGetTemperatureV(handle, 0)))

    return _number("temperature_c", celsius, call)


def _power(nvml: Nvml, handle: Handle) -> Ask:
    milliwatts = nvml.c_uint()
    call = _bound(nvml, "nvmlDeviceGetPowerUsage", handle, milliwatts)
    return _number("power_w", milliwatts, call, lambda value: value / 1000)


def _energy(nvml: Nvml, handle: Handle) -> Ask:
    millijoules = nvml.c_ulonglong()
    return _number("energy_j", millijoules, _bound(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle, millijoules), int)


def _sm_clock(nvml: Nvml, handle: Handle) -> Ask:
    megahertz = nvml.c_uint()
    return _number("sm_clock_mhz", megahertz, _bound(nvml, "nvmlDeviceGetClockInfo", handle, megahertz, _SM_CLOCK))


def _throttle(nvml: Nvml, handle: Handle) -> Ask:
    reasons = nvml.c_ulonglong()
    try:
        call = _bound(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle, reasons)
    except nvml.NVMLError_FunctionNotFound:  # its name before driver 535
        call = _bound(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, reasons)

    def ask(into: dict[str, Any]) -> None:
        call()
        bits = reasons.value
        into["throttle"] = [words for bit, words in THROTTLE_REASONS if bits & bit] if bits > 1 else []

    return ask


FAST = (
    Call(("utilization_percent",), _utilization),
    Call(("memory_used_bytes", "memory_total_bytes"), bind_memory),
    Call(("temperature_c",), _temperature),
    Call(("power_w",), _power),
    Call(("energy_j",), _energy),
    Call(("sm_clock_mhz",), _sm_clock),
    Call(("throttle",), _throttle),
)
"""`energy_j` holds the counter itself, in millijoules."""
