"""AMD GPUs through `amdsmi`, the Python binding that ROCm brings along."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distmon.core.events import GpuProcess, GpuReading

Binding = Any
"""The module amdsmi, which has no types."""
Handle = Any
_MIB = 1 << 20
_NOT_REPORTED = "this GPU does not report it"
_ONE_COUNT = "its counter has not been read in two samples in a row"
_OTHERS = {"others": "not asked of an AMD GPU"}
_OF_ANOTHER_VERSION = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What comes of an answer whose shape is that of another version of the binding."""
_THROTTLES = (
    ("active_ppt_pwr", "power cap"),
    ("active_socket_thrm", "hot (hardware)"),
    ("active_hbm_thrm", "hot (memory)"),
    ("active_vr_thrm", "hot (regulators)"),
    ("active_prochot_thrm", "hot (signalled from outside)"),
)
"""What amdsmi calls violations, in the words that other GPUs' reasons have."""


class LibraryAway(ValueError):
    """No GPU can be asked, and why, in words."""


class _Gpu:
    def __init__(self, smi: Binding, index: int, handle: Handle) -> None:
        self.index = index
        self.handle = handle
        self.uuid, self.name = "", ""
        self.energy_uj: float | None = None
        """The counter at the last reading."""
        with suppress(smi.AmdSmiException, *_OF_ANOTHER_VERSION):
            self.uuid = smi.amdsmi_get_gpu_device_uuid(handle)
        with suppress(smi.AmdSmiException, *_OF_ANOTHER_VERSION):
            self.name = smi.amdsmi_get_gpu_asic_info(handle)["market_name"]


class AmdLibrary:
    """Raises LibraryAway when the binding is missing, old, or finds no GPU that it may open."""

    def __init__(self) -> None:
        try:
            import amdsmi  # type: ignore[import-not-found]  # only where there is an AMD GPU
        except ImportError:
            raise LibraryAway("amdsmi is not installed in distmon's environment (ROCm has it in share/amd_smi)") from None
        except (OSError, AttributeError, KeyError) as error:  # its library is missing, or of another version
            raise LibraryAway(f"amdsmi cannot be loaded: {error}") from None
        self._smi: Binding = amdsmi
        try:
            amdsmi.amdsmi_init()
            handles = amdsmi.amdsmi_get_processor_handles()
        except amdsmi.AmdSmiException as error:
            raise LibraryAway(f"amdsmi: {_words(error)}; this user may lack the groups render and video") from None
        if not handles:
            raise LibraryAway("amdsmi finds no GPU that this user may open (groups render and video)")
        self._gpus = [_Gpu(amdsmi, index, handle) for index, handle in enumerate(handles)]

    def read(self) -> list[GpuReading]:
        """All GPUs; a call that fails costs its own values. Raises LibraryAway when every call on every GPU fails."""
        gpus = [self._read(gpu) for gpu in self._gpus]
        if all(gpu.state != "ok" for gpu in gpus):
            with suppress(self._smi.AmdSmiException):
                self._smi.amdsmi_shut_down()
            raise LibraryAway(next(iter(gpus[0].unavailable.values())))
        return gpus

    def _read(self, gpu: _Gpu) -> GpuReading:
        smi, handle = self._smi, gpu.handle
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}

        def ask(call: Callable[[], dict[str, Any]], *fields: str, absent: str = _NOT_REPORTED) -> None:
            try:
                found = call()
            except smi.AmdSmiException as error:
                found = {}
                reasons.update(dict.fromkeys(fields, _words(error)))
            except _OF_ANOTHER_VERSION as error:
                found = {}
                reasons.update(dict.fromkeys(fields, f"amdsmi answers in another form: {type(error).__name__} {error}"))
            for name in fields:
                if (value := found.get(name)) is None:
                    reasons.setdefault(name, absent)
                else:
                    values[name] = value

        ask(lambda: {"utilization_percent": _number(smi.amdsmi_get_gpu_activity(handle)["gfx_activity"])}, "utilization_percent")
        ask(lambda: _memory(smi.amdsmi_get_gpu_vram_usage(handle)), "memory_used_bytes", "memory_total_bytes")
        ask(lambda: {"power_w": _power_w(smi.amdsmi_get_power_info(handle))}, "power_w")
        ask(lambda: {"power_limit_w": _scaled(smi.amdsmi_get_power_cap_info(handle)["power_cap"], 1e-6)}, "power_limit_w")
        ask(lambda: {"temperature_c": _temperature(smi, handle)}, "temperature_c")
        ask(lambda: {"sm_clock_mhz": _clock_mhz(smi, handle, smi.AmdSmiClkType.GFX)}, "sm_clock_mhz")
        ask(lambda: {"memory_clock_mhz": _clock_mhz(smi, handle, smi.AmdSmiClkType.MEM)}, "memory_clock_mhz")
        ask(lambda: _errors(smi.amdsmi_get_gpu_total_ecc_count(handle)), "ecc_corrected", "ecc_uncorrected")
        ask(lambda: {"throttle": _throttle(smi.amdsmi_get_violation_status(handle))}, "throttle")
        ask(lambda: {"processes": _processes(smi.amdsmi_get_gpu_process_list(handle))}, "processes")
        ask(lambda: {"energy_j": self._energy_j(gpu)}, "energy_j", absent=_ONE_COUNT)
        if not values:
            why = {"all": next(iter(reasons.values()))}
            return GpuReading(index=gpu.index, uuid=gpu.uuid, name=gpu.name, state="unreadable", unavailable=why)
        return GpuReading(index=gpu.index, uuid=gpu.uuid, name=gpu.name, **values, unavailable=reasons | _OTHERS)

    def _energy_j(self, gpu: _Gpu) -> float | None:
        """Since the last reading, from the counter; None when that had none, or it began anew with the driver."""
        before, gpu.energy_uj = gpu.energy_uj, None
        count = self._smi.amdsmi_get_energy_count(gpu.handle)
        now = gpu.energy_uj = float(count["energy_accumulator"]) * count["counter_resolution"]
        return None if before is None or now < before else (now - before) / 1e6


def _words(error: Exception) -> str:
    """amdsmi's own explanation, without the name of its constant."""
    told = getattr(error, "get_error_info", lambda: str(error))()
    return str(told).rpartition(" - ")[2] or type(error).__name__


def _number(value: Any, below: int = 0xFFFF_FFFF) -> float | None:
    """amdsmi says "N/A" where a value is absent, and on some GPUs all bits set."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value < below else None


def _scaled(value: Any, by: float) -> float | None:
    number = _number(value)
    return None if number is None else round(number * by, 3)


def _memory(usage: dict[str, Any]) -> dict[str, Any]:
    sizes = {"memory_used_bytes": _number(usage["vram_used"]), "memory_total_bytes": _number(usage["vram_total"])}
    return {name: None if size is None else int(size) * _MIB for name, size in sizes.items()}


def _power_w(power: dict[str, Any]) -> float | None:
    """The newest of its readings that this GPU has; which one depends on its generation."""
    found = (_number(power.get(name)) for name in ("current_socket_power", "average_socket_power", "socket_power"))
    return next((watts for watts in found if watts), None)


def _temperature(smi: Binding, handle: Handle) -> float | None:
    """At the edge, or, where there is no such sensor (MI300), at the hottest spot."""
    kinds, now = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
    try:
        return _number(smi.amdsmi_get_temp_metric(handle, kinds.EDGE, now))
    except smi.AmdSmiException:
        return _number(smi.amdsmi_get_temp_metric(handle, kinds.HOTSPOT, now))


def _clock_mhz(smi: Binding, handle: Handle, kind: Any) -> float | None:
    return _number(smi.amdsmi_get_clock_info(handle, kind)["clk"])


def _errors(count: dict[str, Any]) -> dict[str, Any]:
    counts = {"ecc_corrected": _number(count["correctable_count"]), "ecc_uncorrected": _number(count["uncorrectable_count"])}
    return {name: None if number is None else int(number) for name, number in counts.items()}


def _throttle(status: dict[str, Any]) -> list[str] | None:
    if all(not isinstance(status.get(name), bool | int) for name, _ in _THROTTLES):
        return None
    return [words for name, words in _THROTTLES if status.get(name) in (True, 1)]


def _processes(listed: list[dict[str, Any]]) -> list[GpuProcess]:
    """A size beyond any GPU's, which some drivers say for none, is None."""
    sizes = [(int(item["pid"]), _number(item["memory_usage"]["vram_mem"], below=1 << 50)) for item in listed]
    return [GpuProcess(pid=pid, memory_bytes=None if size is None else int(size)) for pid, size in sizes]
