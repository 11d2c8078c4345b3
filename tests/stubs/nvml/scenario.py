"""The stub of libnvidia-ml.so.1 in the hands of a test: it is built once a run, and plays the lines that a test adds."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("stub_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
GIB = 1 << 30
ERRORS = {
    "NotSupported": 3,
    "NoPermission": 4,
    "DriverNotLoaded": 9,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "LibRmVersionMismatch": 18,
    "Unknown": 999,
}
LIBRARY_ITSELF = -1


def build(folder: Path, *flags: str) -> Path:
    """Compiles the stub into a folder, under the real library's name."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", *flags]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(SOURCE)], check=True)
    return folder / LIBRARY


class Scenario:
    """What the stub answers, and the tick that it is at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tick = Path(f"{path}.tick")
        self._lines: list[str] = []
        self._tick.write_bytes(struct.pack("i", 0))

    def answer(self, gpu: int, call: str, *values: object, tick: int = 0, error: str = "", hold: int = -1) -> None:
        """From `tick` on; with `hold`, the call does not return before that tick."""
        self._lines.append(f"{tick} {gpu} {call} {ERRORS.get(error, 0)} {hold} {' '.join(map(str, values))}\n")
        self.path.write_text("".join(self._lines))

    def silence(self, gpu: int, call: str, until: int, *values: object, tick: int = 0) -> None:
        self.answer(gpu, call, *values, tick=tick, hold=until)

    def go_to(self, tick: int) -> None:
        with self._tick.open("r+b") as file:
            file.write(struct.pack("i", tick))

    def add_gpu(self, index: int, name: str = "NVIDIA Stub 3090") -> None:
        """A GPU that answers the usual calls; `count` is set to have it."""
        self.answer(LIBRARY_ITSELF, "count", index + 1)
        self.answer(index, "uuid", uuid(index))
        self.answer(index, "name", name)
        self.answer(index, "util", 90 + index, 40)
        self.answer(index, "mem", 24 * GIB, 20 * GIB)
        self.answer(index, "temp", 65 + index)
        self.answer(index, "power_mw", 200_000 + 1000 * index)
        self.answer(index, "limit_mw", 350_000)
        self.answer(index, "energy_mj", 1_000_000)
        self.answer(index, "clock.1", 1695)
        self.answer(index, "clock.2", 9751)
        self.answer(index, "reasons", 0)
        self.answer(index, "pstate", 2)
        self.answer(index, "fan", 55)


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def case_scenario(case: dict[str, Any], path: Path) -> Scenario:
    """A public case's devices and ticks in the stub's lines."""
    scenario = Scenario(path)
    for device in case["devices"]:
        for call in ("uuid", "name"):
            scenario.answer(device["index"], call, device[call])
        scenario.answer(device["index"], "mig", device["mig"], device["mig"])
    for tick in case["ticks"]:
        scenario.answer(LIBRARY_ITSELF, "count", tick["count"], tick=tick["t"])
        for name, value in tick["calls"].items():
            gpu, _, call = name.partition(".")
            if isinstance(value, dict):
                scenario.answer(int(gpu), call, tick=tick["t"], error=value["raise"])
            else:
                scenario.answer(int(gpu), call, *(value if isinstance(value, list) else [value]), tick=tick["t"])
    return scenario


def preload(library: Path) -> ctypes.CDLL:
    """Loads the stub into this process, where the binding then finds it by its name."""
    return ctypes.CDLL(str(library), mode=os.RTLD_GLOBAL)
