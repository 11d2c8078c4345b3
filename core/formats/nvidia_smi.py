"""What `nvidia-smi -q -x` prints: its GPUs as readings. Elements' names changed over the years; each value has all of them."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from distmon.core.events import GpuProcess, GpuReading

_UNITS = {"": 1.0, "%": 1.0, "W": 1.0, "C": 1.0, "MHz": 1.0, "MiB": 1 << 20, "GiB": 1 << 30, "KiB": 1 << 10, "KB/s": 1000.0}
_POWER = (
    *("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "gpu_power_readings/instant_power_draw"),
    "power_readings/power_draw",
)
_LIMIT = ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit")
THROTTLE_WORDS = {
    "applications_clocks_setting": "clocks set by a user",
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "hot (driver)",
    "hw_thermal_slowdown": "hot (hardware)",
    "hw_power_brake_slowdown": "power brake",
    "display_clocks_setting": "display clocks",
}


def parse_nvidia_smi(text: str) -> list[GpuReading]:
    """GPUs and MIG instances in their order; a value that the text does not give is None. Raises ValueError for other text."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"not the output of nvidia-smi -q -x: {error}") from None
    if root.tag != "nvidia_smi_log":
        raise ValueError(f"not the output of nvidia-smi -q -x: its root is {root.tag}")
    readings: list[GpuReading] = []
    for index, gpu in enumerate(root.iter("gpu")):
        readings.append(_gpu(index, gpu))
        readings += [_instance(index, found) for found in gpu.iter("mig_device")]
    return readings


def _gpu(index: int, gpu: Element) -> GpuReading:
    errors = gpu.find("ecc_errors/volatile")
    return GpuReading(
        index=index,
        uuid=_text(gpu, "uuid"),
        name=_text(gpu, "product_name"),
        utilization_percent=_number(gpu, "utilization/gpu_util"),
        memory_used_bytes=_whole(gpu, "fb_memory_usage/used"),
        memory_total_bytes=_whole(gpu, "fb_memory_usage/total"),
        power_w=_first(gpu, _POWER),
        power_limit_w=_first(gpu, _LIMIT),
        temperature_c=_number(gpu, "temperature/gpu_temp"),
        sm_clock_mhz=_number(gpu, "clocks/sm_clock"),
        memory_clock_mhz=_number(gpu, "clocks/mem_clock"),
        fan_percent=_number(gpu, "fan_speed"),
        performance_state=_performance_state(_text(gpu, "performance_state")),
        pcie_received_bytes_per_s=_number(gpu, "pci/rx_util"),
        pcie_sent_bytes_per_s=_number(gpu, "pci/tx_util"),
        ecc_corrected=_errors(errors, "_correctable"),
        ecc_uncorrected=_errors(errors, "_uncorrectable"),
        retired_pages=_sum(
            gpu, "retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages/double_bit_retirement/retired_count"
        ),
        remapped_rows=_sum(gpu, "remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc"),
        throttle=_throttle(gpu),
        processes=[
            GpuProcess(pid=int(_text(process, "pid")), memory_bytes=_whole(process, "used_memory"))
            for process in gpu.iterfind("processes/process_info")
            if _text(process, "type") == "C"
        ],
    )


def _instance(index: int, found: Element) -> GpuReading:
    return GpuReading(
        index=index,
        instance=_whole(found, "gpu_instance_id"),
        memory_used_bytes=_whole(found, "fb_memory_usage/used"),
        memory_total_bytes=_whole(found, "fb_memory_usage/total"),
    )


def _throttle(gpu: Element) -> list[str]:
    active = {
        reason.tag.partition("_reason_")[2]
        for name in ("clocks_event_reasons", "clocks_throttle_reasons")
        for reason in gpu.iterfind(f"{name}/*")
        if reason.text == "Active"
    }
    return [words for name, words in THROTTLE_WORDS.items() if name in active]


def _errors(counts: Element | None, kind: str) -> int | None:
    """Summed over the parts of the chip; some are counted in two ways, parity and SEC-DED."""
    if counts is None:
        return None
    known = [_quantity(count.text) for count in counts if kind in count.tag]
    numbers = [number for number in known if number is not None]
    return int(sum(numbers)) if numbers else None


def _performance_state(text: str) -> int | None:
    return int(text[1:]) if text.startswith("P") and text[1:].isdigit() else None


def _first(gpu: Element, paths: Sequence[str]) -> float | None:
    return next((value for value in (_number(gpu, path) for path in paths) if value is not None), None)


def _sum(gpu: Element, *paths: str) -> int | None:
    numbers = [value for value in (_number(gpu, path) for path in paths) if value is not None]
    return int(sum(numbers)) if numbers else None


def _whole(gpu: Element, path: str) -> int | None:
    value = _number(gpu, path)
    return None if value is None else int(value)


def _number(gpu: Element, path: str) -> float | None:
    return _quantity(_text(gpu, path))


def _quantity(text: str | None) -> float | None:
    """A number with its unit in the base unit; None for "N/A" and the like."""
    number, _, unit = (text or "").strip().partition(" ")
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None


def _text(gpu: Element, path: str) -> str:
    return (gpu.findtext(path) or "").strip()
