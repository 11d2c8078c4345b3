"""A Jetson's readings from a program that prints them: jetson-stats' client, or NVIDIA's tegrastats."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from distmon.agent.sensors.jetson_child import LineChild
from distmon.core.formats import jtop, tegrastats, tegrastats_fields
from distmon.core.formats.board import Fields

_INTERVAL_S = 1.0
NOT_YET = "it has not answered yet"
_OLDEST_NS = 3 * 10**9
"""A reading older than this is not given any more: another source may know better."""
_CLIENT = Path(__file__).with_name("jetson_jtop_client.py")
_LOOK_AGAIN_NS = 60 * 10**9


class Answer(NamedTuple):
    """What a source says now. Without fields `reason` says why; with them it is empty."""

    fields: Fields | None
    age_s: float = 0.0
    reason: str = ""


class ProgramSource:
    """`command` finds the program, or says in words why there is none; it is asked again every minute.

    `parse` turns a line into fields, and raises ValueError for a line that holds none.
    """

    def __init__(self, name: str, command: Callable[[], list[str] | str], parse: Callable[[bytes], Fields]) -> None:
        self.name = name
        self._command = command
        self._parse = parse
        self._child: LineChild | None = None
        self._reason = ""
        self._look_ns = 0
        self._last: Fields | None = None
        self._last_ns = 0

    def read(self, now_ns: int) -> Answer:
        """The newest reading. Never waits for the program."""
        child = self._found(now_ns)
        if child is None:
            return Answer(None, reason=self._reason)
        for text, read_ns in child.lines(now_ns):
            self._take(child, text, read_ns)
        if child.problem:
            self._last = None
            return Answer(None, reason=self._reason or child.problem)
        if self._last is not None and now_ns - self._last_ns <= _OLDEST_NS:
            return Answer(self._last, (now_ns - self._last_ns) / 1e9)
        return Answer(None, reason=(self._reason or "it gives no reading now") if child.heard else NOT_YET)

    def stop(self) -> None:
        """Ends the program: another source answers."""
        if self._child is not None:
            self._child.stop()
        self._last = None

    def _found(self, now_ns: int) -> LineChild | None:
        if self._child is None and now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_AGAIN_NS
            command = self._command()
            if isinstance(command, str):
                self._reason = command
            else:
                self._child, self._reason = LineChild(self.name, command), ""
        return self._child

    def _take(self, child: LineChild, text: bytes, read_ns: int) -> None:
        try:
            self._last = self._parse(text)
        except ValueError as error:
            self._reason = str(error)
            return
        self._last_ns, self._reason = read_ns, ""
        child.answered()


def tegrastats_source() -> ProgramSource:
    return ProgramSource("tegrastats", _tegrastats_command, _tegrastats_fields)


def jtop_source(user_id: Callable[[], int] = os.geteuid) -> ProgramSource:
    return ProgramSource("jtop", lambda: _jtop_command(user_id()), jtop.parse_line)


def _tegrastats_command() -> list[str] | str:
    path = shutil.which("tegrastats")
    return [path, "--interval", str(round(_INTERVAL_S * 1000))] if path else "there is no tegrastats on PATH"


def _tegrastats_fields(text: bytes) -> Fields:
    """The kernel's own temperatures are read beside it."""
    line = text.decode(errors="replace")
    try:
        fields = tegrastats_fields.node_fields(tegrastats.parse_line(line))
    except tegrastats.NotTegrastats:
        raise ValueError(f"it printed {line[:100]!r}") from None
    return Fields(_without(fields.values), _without(fields.unavailable))


def _without(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "temperatures"}


def _jtop_command(user_id: int) -> list[str] | str:
    """The client under the Python of the `jtop` command, which names it in its first line."""
    program = shutil.which("jtop")
    if program is None:
        return "jetson-stats is not installed"
    if user_id == 0:
        return "jtop is not asked by root: its socket speaks pickle (run the agent as a user of the group jtop)"
    try:
        with open(program, "rb") as file:  # noqa: PTH123
            first = file.readline(4096)
    except OSError as error:
        return f"{program} cannot be read: {error.strerror}"
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if not words:
        return f"{program} does not name its Python in its first line"
    return [*words, str(_CLIENT), str(_INTERVAL_S)]
