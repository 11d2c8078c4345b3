"""Holds what distmon reads of this machine's NVIDIA GPUs against nvidia-smi, under a load where PyTorch has CUDA.

    .venv/bin/python bench/gpu_check.py [--python PYTHON] [--seconds 20] [--output docs/gpu-check.md]

PYTHON is an interpreter with a CUDA build of PyTorch; without one the GPUs are checked as they are. It takes two minutes.
What was measured is written even where a later part fails. Exit code 0 when all agrees, 1 when not, or without a GPU.
"""

from __future__ import annotations

import argparse
import os
import select
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
SWINGS = {"power_w": 0.05, "sm_clock_mhz": 0.15}
"""The same as a share of the value, for what a GPU at its power limit changes all the time."""
ENERGY_WITHIN_PERCENT = 3.0
LOAD = """
import time, torch
a = [torch.randn(8192, 8192, device=f"cuda:{i}", dtype=torch.float16) for i in range(torch.cuda.device_count())]
end = time.monotonic() + 600
first = True
while time.monotonic() < end:
    for matrix in a:
        for _ in range(20):
            matrix @ matrix
    for i in range(len(a)):
        torch.cuda.synchronize(i)
    if first:
        print("up", flush=True)
        first = False
"""
LOAD_WITHIN_S = 120.0
SETTLE_S = 5.0
"""Until the clocks have risen and the driver's power, a mean of the last second, is the load's alone."""


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
        slack = max([slack, *(SWINGS.get(name, 0.0) * bound for bound in known)])
        theirs = " … ".join(dict.fromkeys(f"{bound:.10g}" for bound in known)) or "–"
        agrees = None if not known or value is None else min(known) - slack <= value <= max(known) + slack
        if value is None and known:
            value = ours.unavailable.get(name)
            agrees = None if value else False  # absent, and no reason given
        rows.append(Row(ours.index, name, value, theirs, agrees))
    return [*rows, _listed("throttle", ours, before, after), _listed("processes", ours, before, after)]


def _listed(name: str, ours: GpuReading, before: GpuReading, after: GpuReading) -> Row:
    """What comes and goes: all that nvidia-smi had both times, and nothing that it never had."""
    found, first, second = (_names(name, reading) for reading in (ours, before, after))
    reason = ours.unavailable.get(name)
    agrees = None if reason else (first & second) <= found <= (first | second)
    return Row(ours.index, name, reason or _words(found), _words(first | second), agrees)


def _names(name: str, reading: GpuReading) -> set[str]:
    return set(reading.throttle) if name == "throttle" else {str(process.pid) for process in reading.processes}


def _words(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


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


def table(rows: Sequence[Row], costs: Sequence[tuple[str, str]], about: str) -> str:
    """The page in docs/."""
    words = {True: "yes", False: "**no**", None: "not comparable"}
    lines = ["# GPUs against nvidia-smi", "", f"Written by `bench/gpu_check.py`. {about}", ""]
    lines += ["| GPU | value | distmon | nvidia-smi before … after | agrees |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        ours = "–" if row.ours is None else row.ours if isinstance(row.ours, str) else f"{row.ours:.10g}"
        lines.append(f"| {row.gpu} | {row.field} | {ours} | {row.theirs} | {words[row.agrees]} |")
    if costs:
        lines += ["", "| agent | of one core |", "| --- | --- |", *(f"| {name} | {share} |" for name, share in costs)]
    return "\n".join(lines) + "\n"


def ask_nvidia_smi() -> list[GpuReading]:
    """Raises DriverError."""
    if shutil.which("nvidia-smi") is None:
        raise DriverError("there is no nvidia-smi on this machine")
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise DriverError(f"nvidia-smi fails: {said[0] if said else f'exit code {done.returncode}'}")
    return parse_nvidia_smi(done.stdout)


def ask_agent() -> list[GpuReading]:
    """What `distmon-agent --once --json` prints."""
    command = [sys.executable, "-m", "distmon.agent.main", "--once", "--json"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    if done.returncode:
        raise DriverError(f"distmon-agent --once --json fails: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return msgspec.convert(msgspec.json.decode(done.stdout)["gpus"], list[GpuReading])


def check_values() -> list[Row]:
    """Raises DriverError, ValueError and subprocess.SubprocessError."""
    before, ours, after = ask_nvidia_smi(), ask_agent(), ask_nvidia_smi()
    later = {gpu.uuid: gpu for gpu in after if gpu.instance is None}
    by_uuid = {gpu.uuid: (gpu, later[gpu.uuid]) for gpu in before if gpu.instance is None and gpu.uuid in later}
    whole = [gpu for gpu in ours if gpu.instance is None]
    rows = [row for gpu in whole if gpu.uuid in by_uuid for row in compare(gpu, *by_uuid[gpu.uuid])]
    missing = by_uuid.keys() - {gpu.uuid for gpu in whole}
    return [*rows, *(Row(by_uuid[uuid][0].index, "uuid", None, uuid, False) for uuid in sorted(missing))]


def measure_energy(seconds: float) -> list[Row]:
    """Ten readings a second. Raises DriverError."""
    sensor = NvidiaSensor(REAL_ROOTS)
    samples: list[tuple[float, list[GpuReading]]] = []
    try:
        sensor.read(time.monotonic_ns())  # takes up the driver, which can take seconds
        last = time.monotonic()
        sensor.read(int(last * 1e9))
        end = last + seconds
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


def measure_costs(seconds: float) -> list[tuple[str, str]]:
    """Of an agent at 1 and at 10 samples a second; in words where one could not be measured."""
    costs: list[tuple[str, str]] = []
    for hz in (1, 10):
        try:
            costs.append((f"{hz} Hz", f"{agent_core_percent(hz, seconds):.3f} %"))
        except OSError as error:
            costs.append((f"{hz} Hz", f"not measured, the agent ended: {error}"))
    return costs


def start_load(stack: ExitStack, python: str) -> str:
    """Gives what the load is, in words, once it is there."""
    probe = [python, "-c", "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"]
    if shutil.which(python) is None or subprocess.run(probe, capture_output=True, timeout=LOAD_WITHIN_S).returncode:
        return f"without a load ({python} has no PyTorch that sees a GPU)"
    load = subprocess.Popen([python, "-c", LOAD], stdout=subprocess.PIPE)
    assert load.stdout is not None
    stack.callback(load.stdout.close)
    stack.callback(load.wait)
    stack.callback(load.kill)
    ready, _, _ = select.select([load.stdout], [], [], LOAD_WITHIN_S)
    if not ready or not load.stdout.readline():
        load.kill()
        return f"without a load (that of PyTorch did not start within {LOAD_WITHIN_S:.0f} s, or failed)"
    time.sleep(SETTLE_S)
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
    rows: list[Row] = []
    costs: list[tuple[str, str]] = []
    about = failed = ""
    try:
        with ExitStack() as stack:
            about = f"Measured {start_load(stack, options.python)}, {os.cpu_count()} cores"
            rows += check_values()
            rows += measure_energy(options.seconds)
        costs = measure_costs(options.seconds)
    except (DriverError, ValueError, OSError, msgspec.MsgspecError, subprocess.SubprocessError) as error:
        failed = f"; the rest is missing: {error}"
        sys.stderr.write(f"gpu_check: {error}: {'not all' if rows else 'nothing'} was checked\n")
        if not rows:
            return 1
    page = table(rows, costs, f"{about}{failed}.")
    options.output.write_text(page, encoding="utf-8")
    sys.stdout.write(page)
    return 1 if failed or any(row.agrees is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
