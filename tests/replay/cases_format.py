"""The neutral JSON of the public cases (`kind` step, sample, node, job, ...; `t` in seconds) as events of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distmon.core import events as ev
from distmon.core.codec import encode_json

BASE = 1_741_946_400.0
"""When t is 0, in cases that do not say."""
CASES = Path(__file__).parents[1] / "data" / "cases"


class Converter:
    """Turns records one by one: progress records are counts so far, of which the differences become steps."""

    def __init__(self) -> None:
        self._base = BASE
        self._last: tuple[float, int, int] = (0.0, 0, 0)

    def events(self, record: dict[str, Any]) -> Iterator[ev.AnyEvent]:
        """The events of one record; none for a kind that is not of the cases."""
        make = getattr(self, f"_{record['kind']}", None)
        if make is not None:
            yield from make(record, self._base + float(record.get("t", 0.0)))

    def _session(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        self._base = at = record.get("started", BASE)
        yield ev.SessionStarted(
            at=at, session_id=record["id"], distmon_version="0", format=(record["schema"], 0), origin="case"
        )

    def _job(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        if record["state"] == "started":
            yield ev.JobStarted(at=at, job="job", command=record["command"], np=record["np"])
        else:
            yield ev.JobEnded(at=at, exit_code=record["exit"])

    def _node(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        node = record["node"]
        if record["state"] == "joined":
            gpus = [f"gpu {i}" for i in range(record["gpus"])]
            yield ev.NodeJoined(at=at, node=node, host=node, cores=record["cpus"], gpus=gpus)
        else:
            yield ev.NodeLeft(at=at, node=node)

    def _sample(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        gpus = [
            ev.GpuReading(
                index=gpu["i"],
                utilization_percent=gpu["util"],
                power_w=gpu["power_w"],
                temperature_c=gpu["temp_c"],
                memory_used_bytes=gpu["mem_used"],
                memory_total_bytes=gpu["mem_total"],
            )
            for gpu in record.get("gpus", [])
        ]
        yield ev.NodeSampled(
            at=at,
            node=record["node"],
            interval_s=1.0,
            cpu_percent=record["cpu_pct"],
            memory_used_bytes=record["mem_used"],
            memory_total_bytes=record["mem_total"],
            gpus=gpus,
        )

    def _step(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        def column(key: str) -> list[int | None] | None:
            return [round(record[key] * 1e9)] if key in record else None

        host = record["worker"].split("/")[0]
        yield ev.StepsRecorded(
            at=at,
            node=host,
            worker=record["worker"],
            rank=record["rank"],
            generation=0,
            first_step=record["step"],
            origin=at - record["dur_s"],
            start_ns=[0],
            duration_ns=[round(record["dur_s"] * 1e9)],
            compute_ns=column("compute_s"),
            exposed_communication_ns=column("comm_s"),
            samples=[record["samples"]],
        )

    def _resume(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        yield ev.SessionStarted(at=at, session_id="s-resume", distmon_version="0", origin="case")
        self._last = (at, record["step"], record["samples_total"])

    def _progress(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        since, step, samples = self._last
        self._last = (at, record["step"], record["samples_total"])
        count = record["step"] - step
        each = round((at - since) / count * 1e9)
        yield ev.StepsRecorded(
            at=at,
            node="n",
            worker="w",
            rank=0,
            generation=0,
            first_step=step,
            origin=since,
            start_ns=[each * i for i in range(count)],
            duration_ns=[each] * count,
            samples=[(record["samples_total"] - samples) // count] * count,
        )

    def _log(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        yield ev.OutputWritten(at=at, rank=record["rank"], host="", local_rank=0, output=record["stream"], lines=[record["line"]])

    def _event(self, record: dict[str, Any], at: float) -> Iterator[ev.AnyEvent]:
        yield ev.NoticeGiven(at=at, severity=record["level"], text=record["text"])


def case_events(path: Path) -> list[ev.AnyEvent]:
    """The events of a case without faults."""
    converter = Converter()
    return [event for line in path.read_bytes().splitlines() for event in converter.events(json.loads(line))]


def convert_lines(content: bytes) -> bytes:
    """A case's file as a session file, line for line: what is no record stays as it is, line ends and all."""
    converter = Converter()
    return b"\n".join(_convert_line(converter, line) for line in content.split(b"\n"))


def _convert_line(converter: Converter, line: bytes) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    made = [encode_json(event) for event in converter.events(record)]
    end = b"\r" if line.endswith(b"\r") else b""
    return made[0] + end if len(made) == 1 else json.dumps(record | {"at": record["t"]}).encode() + end
