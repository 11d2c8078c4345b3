"""Plays the public hardware cases through the agent's sensors and writes what the agent says into docs/sensors.md.

    .venv/bin/python bench/sensor_cases.py            rewrites the table between the two marks of that file

With the real logs beside the checkout (DISTMON_REAL_DATA) their table is rewritten too.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from distmon.agent.sensors.base import Roots
from distmon.agent.sensors.nvidia import NvidiaSensor
from distmon.core.devices import Device, device_of
from distmon.core.events import NodeSampled, PowerRail
from distmon.core.fold import node_power_w
from distmon.core.formats.tegrastats import NotTegrastats, parse_line
from distmon.core.formats.tegrastats_fields import node_fields
from tests.stubs.nvml.scenario import build, case_scenario, preload

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests/data/cases"
REAL = Path(os.environ.get("DISTMON_REAL_DATA", ROOT.parent / "shared/realdata")) / "tegrastats"
PAGE = ROOT / "docs/sensors.md"
PATIENT_S = 20.0


def main() -> None:
    text = PAGE.read_text()
    text = replaced(text, "cases", ["| case | input | the agent's JSON |", "| --- | --- | --- |", *rows()])
    if REAL.is_dir():
        text = replaced(text, "logs", ["| log | lines | not read | pieces not understood | mean board power, W |", *real_rows()])
    PAGE.write_text(text)


def replaced(text: str, name: str, lines: list[str]) -> str:
    """With what stands between `<!-- name -->` and `<!-- /name -->` replaced."""
    body = "".join(f"{line}\n" for line in lines)
    return re.sub(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda match: match[1] + body + match[2], text, flags=re.DOTALL)


def rows() -> Iterator[str]:
    for log in sorted((CASES / "HW-01").glob("*.log")):
        for line in log.read_text().splitlines():
            yield row("HW-01", log.stem, short(sample_of(line)))
    for number, line in enumerate((CASES / "HW-03/lines.log").read_text().splitlines(), 1):
        sample = sample_of(line)
        yield row("HW-03", f"line {number}", {"cpu_percent": sample.cpu_percent, "cores_percent": sample.cores_percent})
    yield from lost_gpu_rows()
    yield from rank_rows()


def row(case: str, what: str, said: Any) -> str:
    return f"| {case} | {what} | `{json.dumps(said)}` |"


def sample_of(line: str) -> NodeSampled:
    fields = node_fields(parse_line(line))
    values = {name: value for name, value in fields.values.items() if value is not None}
    return NodeSampled(at=0.0, node="", interval_s=1.0, **values, unavailable=fields.unavailable)


def short(sample: NodeSampled) -> dict[str, Any]:
    """The GPU's part, with a reason for what is null."""
    said: list[dict[str, Any]] = []
    for gpu in sample.gpus:
        plain = {name: getattr(gpu, name) for name in ("utilization_percent", "sm_clock_mhz", "temperature_c")}
        absent = {name: gpu.unavailable[name] for name, value in plain.items() if value is None and name in gpu.unavailable}
        said.append(plain | ({"unavailable": absent} if absent else {}))
    return {"gpus": said}


def lost_gpu_rows() -> Iterator[str]:
    case = json.loads((CASES / "HW-05/nvml.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder) / "nvml")
        os.environ["LD_LIBRARY_PATH"] = str(library.parent)
        os.environ["DISTMON_STUB_NVML"] = str(Path(folder) / "scenario")
        preload(library)
        scenario = case_scenario(case, Path(folder) / "scenario")
        sensor = NvidiaSensor(Roots(Path(folder), Path(folder)), PATIENT_S, Path(folder) / "none")
        for tick in range(10):
            scenario.go_to(tick)
            reading = sensor.read(tick * 10**9)
            sample = NodeSampled(at=0.0, node="", interval_s=1.0, gpus=reading.values["gpus"])
            told = [notice.text for notice in reading.notices]
            said: dict[str, Any] = {f"GPU {gpu.index}": gpu.power_w if gpu.state == "ok" else gpu.state for gpu in sample.gpus}
            if tick in (3, 4, 9):
                yield row("HW-05", f"tick {tick}", said | {"node_power_w": node_power_w(sample), "notices": told})
        sensor.close()


def rank_rows() -> Iterator[str]:
    cases = json.loads((CASES / "HW-07/cases.json").read_text())
    devices = [Device(item["index"], item["uuid"], item["name"]) for item in cases["devices"]]
    for case in cases["rows"]:
        choice = device_of(devices, case["env"], case["local_rank"])
        where = ", ".join(f"{name}={value}" for name, value in case["env"].items()) or "no variable"
        index = choice.place.index if choice.place else None
        said = {"gpu": index, "utilization_percent": None if index is None else cases["util"][index]}
        yield row("HW-07", f"{where}; local rank {case['local_rank']}", said)


def real_rows() -> Iterator[str]:
    yield "| --- | --- | --- | --- | --- |"
    for log in sorted(REAL.glob("*.log")):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        counts: Counter[str] = Counter()
        watts: list[float] = []
        for line in lines:
            try:
                parsed = parse_line(line)
            except NotTegrastats:
                counts["refused"] += 1
                continue
            counts["unread"] += len(parsed.unread)
            rails: list[PowerRail] = node_fields(parsed).values.get("power") or []
            known = [rail.watts for rail in rails if not rail.within and rail.watts is not None]
            watts += [sum(known)] if known else []
        mean = f"{sum(watts) / len(watts):.2f}" if watts else "no rail"
        yield f"| {log.name} | {len(lines)} | {counts['refused']} | {counts['unread']} | {mean} |"


if __name__ == "__main__":
    main()
