"""What is asked of an NVIDIA GPU: NVML's calls with the fields of GpuReading that they fill, and NVML's errors in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Nvml = Any
"""The module pynvml (nvidia-ml-py), which has no types."""
Handle = Any

SUM_OF_LINKS = 0xFFFFFFFF
_MEMORY_CLOCK = 2
_NEVER = 32
"""NVML's performance state for "unknown"."""


class Call(NamedTuple):
    """Fields of GpuReading, and the question about them: one value for each, or NVMLError."""

    fields: tuple[str, ...]
    ask: Callable[[Nvml, Handle], tuple[Any, ...]]


def _memory_clock(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (float(nvml.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK)),)


def _performance_state(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    state = nvml.nvmlDeviceGetPerformanceState(handle)
    return (None if state == _NEVER else state,)


def _power_limit(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,)


def _fan(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (float(nvml.nvmlDeviceGetFanSpeed(handle)),)


def _ecc_corrected(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),)


def _ecc_uncorrected(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),)


def _retired_pages(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return (sum(len(nvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in range(nvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)),)


def _remapped_rows(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    corrected, uncorrected, _, _ = nvml.nvmlDeviceGetRemappedRows(handle)
    return (corrected + uncorrected,)


def _processes(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    return ([(process.pid, process.usedGpuMemory) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)],)


def _pcie(nvml: Nvml, handle: Handle) -> tuple[Any, ...]:
    """The driver watches the bus for 20 ms for each of the two; in KB/s."""
    received = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
    return received * 1000.0, nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1000.0


PROCESSES = Call(("processes",), _processes)
SLOW = (
    PROCESSES,
    Call(("power_limit_w",), _power_limit),
    Call(("memory_clock_mhz",), _memory_clock),
    Call(("performance_state",), _performance_state),
    Call(("fan_percent",), _fan),
    Call(("ecc_corrected",), _ecc_corrected),
    Call(("ecc_uncorrected",), _ecc_uncorrected),
    Call(("retired_pages",), _retired_pages),
    Call(("remapped_rows",), _remapped_rows),
    Call(("pcie_received_bytes_per_s", "pcie_sent_bytes_per_s"), _pcie),
)
"""What changes slowly or takes long to ask; between samples."""

COUNTERS = (
    ("nvlink_received_bytes_per_s", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", SUM_OF_LINKS, 1024),
    ("nvlink_sent_bytes_per_s", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", SUM_OF_LINKS, 1024),
)
"""(field, NVML's field of a counter, its scope, bytes per count): asked in one call, with the slow ones. The bus has such
counters too, of 32 bits: at its full rate they start over every tenth of a second, so that no rate can be told from them."""

NOT_REPORTED = "this GPU does not report it"
_UNINITIALIZED, _NOT_SUPPORTED, _NO_PERMISSION, _DRIVER_NOT_LOADED, _FUNCTION_NOT_FOUND = 1, 3, 4, 9, 13
_GPU_IS_LOST, _RESET_REQUIRED, _VERSION_MISMATCH, _GPU_NOT_FOUND, _UNKNOWN = 15, 16, 18, 28, 999
_WORDS = {
    _UNINITIALIZED: "the NVIDIA driver was unloaded",
    _NOT_SUPPORTED: NOT_REPORTED,
    _NO_PERMISSION: "no permission to read it",
    _DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    _FUNCTION_NOT_FOUND: "the NVIDIA driver is too old to report it",
    _GPU_IS_LOST: "it has fallen off the bus",
    _RESET_REQUIRED: "it needs a reset",
    _VERSION_MISMATCH: "the NVIDIA driver and its library differ in version: restart the machine, or the container",
    _GPU_NOT_FOUND: "it is no longer there",
    _UNKNOWN: "the NVIDIA driver gives no reason; a container may have lost its GPUs: restart it",
}


def in_words(error: Any) -> str:
    """An NVMLError for people."""
    return _WORDS.get(error.value) or str(error)


def is_lasting(error: Any) -> bool:
    """Whether the same call on the same GPU will fail again until the driver is initialised anew."""
    return error.value in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND, _NO_PERMISSION)


def is_loss(error: Any) -> bool:
    """Whether it says that this GPU is gone, and no other call on it need be tried."""
    return error.value in (_GPU_IS_LOST, _GPU_NOT_FOUND, _RESET_REQUIRED)


def is_mismatch(error: Any) -> bool:
    """Whether the library that is loaded is of another version than the driver."""
    return bool(error.value == _VERSION_MISMATCH)
