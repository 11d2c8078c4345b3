"""A reading of jtop (jetson-stats 4 and later), as distmon's child process prints it: one JSON object a line.

Its parts are the client's own dictionaries. Their keys and units differ between its versions and boards, so that every value is
taken only if it is what it should be: what is missing or odd is None.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from distmon.core.events import EngineReading
from distmon.core.formats.board import Fields, integrated_gpu, mean_of_cores, power_rails

SOURCE = "jtop"
_BUSY = ("user", "nice", "system")
_NO_LOAD = "jtop gives no GPU load on this board"


class NotJtop(ValueError):
    """A line that is no reading. Its text says what the child said instead."""


class JtopLine(Struct):
    """`error` is why there are no readings, in the client's words."""

    error: str | None = None
    cpu: Any = None
    gpu: Any = None
    memory: Any = None
    power: Any = None
    temperature: Any = None
    engine: Any = None
    nvpmodel: Any = None


_decoder = msgspec.json.Decoder(JtopLine)


def parse_line(line: bytes) -> Fields:
    """Raises NotJtop."""
    try:
        read = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotJtop(" ".join(line.decode(errors="replace").split())[:200]) from None
    if read.error is not None:
        raise NotJtop(" ".join(read.error.split())[:200])
    zones = _zones(read.temperature)
    percents = cores_percent(read.cpu)
    rails = _rails(read.power)
    missing = {} if rails else {"power": "jtop gives no power rails"}
    busy = mean_of_cores(percents)
    if busy is None:
        missing["cpu_percent"] = "every core is off" if percents else "jtop gives no cores"
    values = {
        "cpu_percent": busy,
        "cores_percent": percents,
        "cores_mhz": [_mhz(_at(core, "freq", "cur")) for core in _list(_at(read.cpu, "cpu"))],
        "power": power_rails(rails, SOURCE),
        "gpus": [_gpu(read.gpu, zones)],
        "engines": _engines(read.engine, read.memory),
        "power_mode": read.nvpmodel if isinstance(read.nvpmodel, str) and read.nvpmodel else None,
    }
    return Fields(values, missing)


def cores_percent(cpu: Any) -> list[float | None]:
    """Of each core; None for one that is off, which has no counters."""
    return [_busy(core) if _at(core, "online") is True else None for core in _list(_at(cpu, "cpu"))]


def _busy(core: Any) -> float | None:
    shares = [_number(_at(core, name)) for name in _BUSY]
    known = [share for share in shares if share is not None]
    return round(min(100.0, sum(known)), 2) if known else None


def _gpu(gpus: Any, zones: dict[str, float | None]) -> Any:
    name, gpu = next(iter(_dict(gpus).items()), ("", None))
    return integrated_gpu(_number(_at(gpu, "status", "load")), _mhz(_at(gpu, "freq", "cur")), zones, _NO_LOAD, name)


def _rails(power: Any) -> dict[str, float | None]:
    """Watts by rail. The rail of the whole board, where there is one, stands apart under its name; a mere sum has none."""
    rails = dict(_dict(_at(power, "rail")))
    total = _at(power, "tot")
    name = _at(total, "name")
    if isinstance(name, str) and name:
        rails[name] = total
    return {str(rail): _watts(value) for rail, value in rails.items()}


def _watts(rail: Any) -> float | None:
    milliwatts = _number(_at(rail, "power"))
    return None if milliwatts is None or _at(rail, "online") is False else milliwatts / 1000


def _zones(temperature: Any) -> dict[str, float | None]:
    return {
        str(name): None if _at(zone, "online") is False else _number(_at(zone, "temp"))
        for name, zone in _dict(temperature).items()
    }


def _engines(groups: Any, memory: Any) -> list[EngineReading]:
    engines = []
    controller = _at(memory, "EMC")
    if controller is not None:
        share, clock = _number(_at(controller, "val")), _mhz(_at(controller, "cur"))
        engines.append(EngineReading(name="EMC", utilization_percent=share, clock_mhz=clock))
    for group in _dict(groups).values():
        for name, engine in _dict(group).items():
            on = _at(engine, "online") is True
            engines.append(EngineReading(name=str(name), clock_mhz=_mhz(_at(engine, "cur")) if on else None, on=on))
    return engines


def _at(value: Any, *path: str) -> Any:
    """What lies under the keys, one in the other; None where one is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """None for booleans, text and what is negative."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _mhz(kilohertz: Any) -> float | None:
    value = _number(kilohertz)
    return None if value is None else value / 1000
