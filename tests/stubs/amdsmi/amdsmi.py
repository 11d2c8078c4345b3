"""A stub of AMD's binding, the lowest layer of the AMD sensor that is replaced: functions, keys and errors as in amdsmi 7.0.

DISTMON_STUB_AMDSMI names a JSON file: {"init": null or a text, "gpus": [{call: answer, ...}]}. A call that a GPU does not
name is not supported; an answer that is a text starting with "!" is that error.
"""

import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Any


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, text: str) -> None:
        super().__init__(2)
        self.err_info = text

    def get_error_info(self, detailed: bool = True) -> str:
        return self.err_info


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


def _scenario() -> dict[str, Any]:
    scenario: dict[str, Any] = json.loads(Path(os.environ["DISTMON_STUB_AMDSMI"]).read_text())
    return scenario


def _ask(handle: int, call: str) -> Any:
    answer = _scenario()["gpus"][handle].get(call, "!AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
    if isinstance(answer, str) and answer.startswith("!"):
        raise AmdSmiLibraryException(answer[1:])
    return answer


def amdsmi_init() -> None:
    if (error := _scenario().get("init")) is not None:
        raise AmdSmiLibraryException(error)


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(_scenario()["gpus"])))


def amdsmi_get_gpu_device_uuid(handle: int) -> Any:
    return _ask(handle, "uuid")


def amdsmi_get_gpu_asic_info(handle: int) -> Any:
    return {"market_name": _ask(handle, "name")}


def amdsmi_get_gpu_activity(handle: int) -> Any:
    return {"gfx_activity": _ask(handle, "activity"), "umc_activity": "N/A", "mm_activity": "N/A"}


def amdsmi_get_gpu_vram_usage(handle: int) -> Any:
    used, total = _ask(handle, "vram")
    return {"vram_used": used, "vram_total": total}


def amdsmi_get_power_info(handle: int) -> Any:
    return {"current_socket_power": "N/A", "average_socket_power": "N/A", **_ask(handle, "power")}


def amdsmi_get_power_cap_info(handle: int) -> Any:
    return {"power_cap": _ask(handle, "power_cap")}


def amdsmi_get_temp_metric(handle: int, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> Any:
    return _ask(handle, f"temperature.{AmdSmiTemperatureType(sensor).name}")


def amdsmi_get_clock_info(handle: int, kind: AmdSmiClkType) -> Any:
    return {"clk": _ask(handle, f"clock.{AmdSmiClkType(kind).name}")}


def amdsmi_get_gpu_total_ecc_count(handle: int) -> Any:
    corrected, uncorrected = _ask(handle, "ecc")
    return {"correctable_count": corrected, "uncorrectable_count": uncorrected}


def amdsmi_get_violation_status(handle: int) -> Any:
    return _ask(handle, "violations")


def amdsmi_get_gpu_process_list(handle: int) -> Any:
    return [{"pid": pid, "mem": 0, "memory_usage": {"vram_mem": size}} for pid, size in _ask(handle, "processes")]


def amdsmi_get_energy_count(handle: int) -> Any:
    return {"energy_accumulator": _ask(handle, "energy"), "counter_resolution": 15.3, "timestamp": 0}
