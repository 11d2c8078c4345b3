"""A Jetson's own sensors: jetson-stats where its service answers, else NVIDIA's tegrastats, else the kernel's files."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from distmon.agent.sensors.base import Notice, Reading, Roots
from distmon.agent.sensors.jetson_programs import NOT_YET, Answer, jtop_source, tegrastats_source
from distmon.agent.sensors.jetson_sysfs import SysfsSource
from distmon.core.formats.board import doubt, mislabelled
from distmon.core.formats.nvpmodel import power_mode

_MODE_AGAIN_NS = 60 * 10**9
_MODE_WITHIN_S = 2.0
_READINGS_IN_DOUBT = 30
_BOARD_FIELDS = ("gpus", "power", "engines", "power_mode")
_NO_SOURCE = "no source on this board: "


class BoardSource(Protocol):
    name: str

    def read(self, now_ns: int) -> Answer: ...

    def stop(self) -> None: ...


class JetsonSensor:
    """`sources` of its readings names the program in use; why a better one is not is told under that one's name."""

    fields: tuple[str, ...] = _BOARD_FIELDS

    def __init__(self, roots: Roots, sources: Sequence[BoardSource] | None = None) -> None:
        self._sources = (jtop_source(), tegrastats_source(), SysfsSource(roots)) if sources is None else sources
        self._mode = _PowerMode()
        self._doubts = _Doubts()
        self._starting = False

    def settled(self) -> bool:
        """False while a program that was started for the last reading may yet answer better."""
        return not self._starting

    def read(self, now_ns: int) -> Reading:
        reasons: dict[str, str] = {}
        self._starting = False
        for index, source in enumerate(self._sources):
            answer = source.read(now_ns)
            if answer.fields is not None:
                for other in self._sources[index + 1 :]:
                    other.stop()
                return self._reading(source.name, answer, reasons, now_ns)
            reasons[source.name] = answer.reason
            self._starting = self._starting or answer.reason == NOT_YET
        told = _NO_SOURCE + "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        # A reading with nothing in it would have this sensor asked every half minute only.
        return Reading({"sources": {"power": "none"}}, reasons | dict.fromkeys(("gpus", "power"), told))

    def _reading(self, name: str, answer: Answer, reasons: dict[str, str], now_ns: int) -> Reading:
        assert answer.fields is not None
        values = {field: value for field, value in answer.fields.values.items() if value is not None}
        ages = dict.fromkeys(values, answer.age_s) if answer.age_s else {}
        missing = answer.fields.unavailable | reasons
        if "power_mode" not in values:
            mode, reason, age_s = self._mode.read(now_ns)
            if mode is None:
                missing["power_mode"] = reason
            else:
                values["power_mode"], ages["power_mode"] = mode, age_s
        values["sources"] = dict.fromkeys(values, name)
        watts = {rail.name: rail.watts for rail in values.get("power", [])}
        return Reading(values, missing, self._doubts.notices(watts), age_s=ages)


class _Doubts:
    """Names of rails that contradict their values for long: single readings may, for rails are read one after the other."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def notices(self, watts: dict[str, float | None]) -> tuple[Notice, ...]:
        """A warning the moment that a pair has contradicted itself in so many readings in a row."""
        pairs = mislabelled(watts)
        self._seen = Counter({pair: self._seen[pair] + 1 for pair in pairs})
        return tuple(Notice("warning", doubt(*pair)) for pair in pairs if self._seen[pair] == _READINGS_IN_DOUBT)


class _PowerMode:
    """Asked of `nvpmodel` once a minute: it changes when somebody changes it."""

    def __init__(self) -> None:
        self._mode: str | None = None
        self._reason = ""
        self._asked_ns: int | None = None

    def read(self, now_ns: int) -> tuple[str | None, str, float]:
        """(mode, why there is none, age in seconds)."""
        if self._asked_ns is None or now_ns - self._asked_ns > _MODE_AGAIN_NS:
            self._asked_ns = now_ns
            self._mode, self._reason = _ask_mode()
        return self._mode, self._reason, (now_ns - self._asked_ns) / 1e9


def _ask_mode() -> tuple[str | None, str]:
    program = shutil.which("nvpmodel")
    if program is None:
        return None, "there is no nvpmodel on PATH"
    try:
        done = subprocess.run([program, "-q"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_MODE_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvpmodel -q: {error}"
    mode = power_mode(done.stdout.decode(errors="replace"))
    return mode, "" if mode else f"nvpmodel -q did not tell it (exit code {done.returncode})"
