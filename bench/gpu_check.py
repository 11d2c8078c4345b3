"""Holds what distmon reads of this machine's NVIDIA GPUs against nvidia-smi, under a load where PyTorch has CUDA.

    .venv/bin/python bench/gpu_check.py [--python PYTHON] [--seconds 20] [--output docs/gpu-check.md]

PYTHON is an interpreter with a CUDA build of PyTorch; without one the GPUs are checked as they are. It takes a minute and a half.
Exit code 0 when all agrees, 1 when something does not or there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from distmon.agent.sensors import nvidia_library
from distmon.agent.sensors.base import REAL_ROOTS
from distmon.agent.sensors.nvidia import NvidiaSensor
from distmon.agent.sensors.nvidia_library import DriverError
from distmon.core.events import GpuReading
from distmon.core.formats.nvidia_smi import parse_nvidia_smi

MIB = float(1 << 20)
SLACK = {
    "utilization_percent": 15.0,
    "memory_used_bytes": 32 * MIB,
    "memory_total_bytes": MIB,
    "power_w": 25.0,
    "power_limit_w": 0.5,
    "temperature_c": 3.0,
    "sm_clock_mhz": 60.0,
    "memory_clock_mhz": 30.0,
    "fan_percent": 3.0,
    "performance_state": 0.0,
    "ecc_corrected": 0.0,
    "ecc_uncorrected": 0.0,
    "retired_pages": 0.0,
    "remapped_rows": 0.0,
}
"""By how much a value may lie outside of what nvidia-smi said just before and just after."""
ENERGY_WITHIN_PERCENT = 3.0
LOAD = """
import time, torch
a = [torch.randn(8192, 8192, device=f"cuda:{i}", dtype=torch.float16) for i in range(torch.cuda.device_count())]
end = time.monotonic() + float({seconds})
while time.monotonic() < end:
    for matrix in a:
        for _ in range(20):
            matrix @ matrix
    for i in range(len(a)):
        torch.cuda.synchronize(i)
"""


class Row(NamedTuple):
    """One value of one GPU; `agrees` is None where there is nothing to compare."""

    gpu: int
    field: str
    ours: float | str | None
    theirs: str
    agrees: bool | None


def compare(ours: GpuReading, before: GpuReading, after: GpuReading) -> list[Row]:
    """Value by value: between nvidia-smi's two readings, give or take the slack of the field."""
    rows = [
        Row(ours.index, name, getattr(ours, name), getattr(before, name), getattr(ours, name) == getattr(before, name))
        for name in ("uuid", "name")
    ]
    for name, slack in SLACK.items():
        value, bounds = getattr(ours, name), [getattr(reading, name) for reading in (before, after)]
        known = [bound for bound in bounds if bound is not None]
        theirs = " … ".join(dict.fromkeys(f"{bound:.10g}" for bound in known)) or "–"
        agrees = None if not known or value is None else min(known) - slack <= value <= max(known) + slack
        if value is None and known and name not in ours.unavailable:
            agrees = False  # absent, and no reason given
        rows.append(Row(ours.index, name, value, theirs, agrees))
    return rows


def energy_rows(samples: Sequence[tuple[float, list[GpuReading]]]) -> list[Row]:
    """Power summed over time against the driver's energy counter; `samples` are (seconds since the one before, GPUs)."""
    rows: list[Row] = []
    for index in sorted({gpu.index for _, gpus in samples for gpu in gpus if gpu.instance is None}):
        of = [(s, gpu) for s, gpus in samples for gpu in gpus if gpu.index == index and gpu.instance is None]
        both = [(s * gpu.power_w, gpu.energy_j) for s, gpu in of if gpu.power_w is not None and gpu.energy_j is not None]
        integral, counted = sum(watts for watts, _ in both), sum(joules for _, joules in both)
        off = 100 * (integral / counted - 1) if counted else None
        agrees = None if off is None else abs(off) <= ENERGY_WITHIN_PERCENT
        shown = "no energy counter" if off is None else f"{counted:.1f} J counted, {off:+.2f} %"
        rows.append(Row(index, "power over time (J)", round(integral, 1), shown, agrees))
    return rows


def table(rows: Sequence[Row], costs: Sequence[tuple[str, float]], about: str) -> str:
    """The page in docs/."""
    words = {True: "yes", False: "**no**", None: "not comparable"}
    lines = ["# GPUs against nvidia-smi", "", f"Written by `bench/gpu_check.py`. {about}", ""]
    lines += ["| GPU | value | distmon | nvidia-smi before … after | agrees |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        ours = "–" if row.ours is None else row.ours if isinstance(row.ours, str) else f"{row.ours:.10g}"
        lines.append(f"| {row.gpu} | {row.field} | {ours} | {row.theirs} | {words[row.agrees]} |")
    if costs:
        lines += ["", "| agent | of one core |", "| --- | --- |", *(f"| {name} | {percent:.3f} % |" for name, percent in costs)]
    return "\n".join(lines) + "\n"


def ask_nvidia_smi() -> list[GpuReading]:
    """Raises DriverError."""
    if shutil.which("nvidia-smi") is None:
        raise DriverError("there is no nvidia-smi on this machine")
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise DriverError(f"nvidia-smi fails: {(done.stdout + done.stderr).strip().splitlines()[0]}")
    return parse_nvidia_smi(done.stdout)


def ask_agent() -> list[GpuReading]:
    """What `distmon-agent --once --json` prints."""
    command = [sys.executable, "-m", "distmon.agent.main", "--once", "--json"]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    return msgspec.convert(msgspec.json.decode(text)["gpus"], list[GpuReading])


def check_values() -> list[Row]:
    before, ours, after = ask_nvidia_smi(), ask_agent(), ask_nvidia_smi()
    by_uuid = {gpu.uuid: (gpu, later) for gpu, later in zip(before, after, strict=True) if gpu.instance is None}
    whole = [gpu for gpu in ours if gpu.instance is None]
    rows = [row for gpu in whole if gpu.uuid in by_uuid for row in compare(gpu, *by_uuid[gpu.uuid])]
    missing = by_uuid.keys() - {gpu.uuid for gpu in whole}
    return [*rows, *(Row(by_uuid[uuid][0].index, "uuid", None, uuid, False) for uuid in sorted(missing))]


def measure_energy(seconds: float) -> list[Row]:
    """Ten readings a second. Raises DriverError."""
    sensor = NvidiaSensor(REAL_ROOTS)
    samples: list[tuple[float, list[GpuReading]]] = []
    last = time.monotonic()
    end = last + seconds
    try:
        while last < end:
            time.sleep(max(0.0, last + 0.1 - time.monotonic()))
            now = time.monotonic()
            samples.append((now - last, sensor.read(int(now * 1e9)).values["gpus"]))
            last = now
    finally:
        sensor.close()
    return energy_rows(samples)


def agent_core_percent(rate_hz: int, seconds: float) -> float:
    """CPU time of an agent that samples at this rate, as a share of one core, without its start."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = f"ipc://{folder}/agent.sock"
        command = [sys.executable, "-m", "distmon.agent.main", "--listen", address, "--rate", str(rate_hz)]
        agent = subprocess.Popen(command)
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        time.sleep(min(5.0, seconds))
        clock = (~agent.pid << 3) | 2
        before, began = time.clock_gettime(clock), time.monotonic()
        time.sleep(seconds)
        return 100 * (time.clock_gettime(clock) - before) / (time.monotonic() - began)


def start_load(stack: ExitStack, python: str, seconds: float) -> str:
    """Gives what the load is, in words."""
    probe = [python, "-c", "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"]
    if subprocess.run(probe, capture_output=True).returncode:
        return f"no load: {python} has no PyTorch that sees a GPU"
    load = subprocess.Popen([python, "-c", LOAD.format(seconds=seconds)])
    stack.callback(load.wait)
    stack.callback(load.kill)
    time.sleep(8)  # until CUDA is up and the clocks have risen
    return "under matrix products of PyTorch on all GPUs"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Holds what distmon reads of the GPUs here against nvidia-smi.")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with a CUDA build of PyTorch")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long energy and each cost are measured")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs/gpu-check.md")
    options = parser.parse_args(arguments)
    if not nvidia_library.is_present():
        sys.stderr.write("gpu_check: there is no NVIDIA GPU on this machine (no libnvidia-ml.so.1): nothing was checked\n")
        return 1
    try:
        with ExitStack() as stack:
            load = start_load(stack, options.python, options.seconds + 30)
            rows = check_values() + measure_energy(options.seconds)
        costs = [(f"{hz} Hz", agent_core_percent(hz, options.seconds)) for hz in (1, 10)]
    except (DriverError, ValueError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"gpu_check: {error}: nothing was checked\n")
        return 1
    page = table(rows, costs, f"Measured {load}, {os.cpu_count()} cores.")
    options.output.write_text(page, encoding="utf-8")
    sys.stdout.write(page)
    return 1 if any(row.agrees is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
