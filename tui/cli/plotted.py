"""Reports with plots, for the verbs that write them: HTML pages, PNG and SVG. What draws them comes with the extra [report]."""

from __future__ import annotations

import importlib.util
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from distmon.core.errors import DistmonError, told
from distmon.core.timeline import Timeline
from distmon.replay.report import model
from distmon.replay.report.plots import Plots, plots
from distmon.replay.report.sections import overview, sections
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state
from distmon.tui.cli.sessions import label, warn

_NEEDED = ("altair", "vl_convert")


@dataclass(frozen=True, slots=True)
class Reported:
    """A session with what its plots show."""

    name: str
    session: model.Session
    drawn: Plots


def load_reported(path: Path) -> Reported:
    """Reads a recording through, with the series of its plots. Raises DistmonError."""
    require_plots()
    timeline = Timeline()
    state, notes = load_state(path, timeline.add)
    return Reported(label(path), summarise(state, str(path), warn(path, notes)), plots(state, timeline))


def require_plots() -> None:
    """Raises DistmonError where the libraries that draw are not installed."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise DistmonError("plots need distmon's extra [report]: pip install 'distmon[report]'")


def write_html(path: Path, reported: list[Reported]) -> None:
    """One page of all sessions, put in place when it is whole; a page of that name is replaced."""
    from distmon.replay.report.charts import session_charts
    from distmon.replay.report.html import Part, to_html

    parts = [Part(one.name, sections(one.session), session_charts(one.session, one.drawn)) for one in reported]
    summary = Part("", overview([(one.name, one.session) for one in reported]), [])
    title = reported[0].name if len(reported) == 1 else f"{len(reported)} sessions"
    replace_file(path, to_html(title, [summary, *parts], f"distmon {version('distmon')}"))


def write_png(folder: Path, reported: list[Reported]) -> list[Path]:
    """The plots of all sessions; with several, the files' names begin with the session's number."""
    from distmon.replay.report.charts import session_charts
    from distmon.replay.report.pictures import write_pictures

    prefixes = [f"{number}_" for number in range(1, len(reported) + 1)] if len(reported) > 1 else [""]
    written: list[Path] = []
    for prefix, one in zip(prefixes, reported, strict=True):
        written += write_pictures(folder, session_charts(one.session, one.drawn), prefix)
    return written


def replace_file(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises DistmonError."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(3)}")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise DistmonError(f"{path} cannot be written: {os.strerror(error.errno) if error.errno else told(error)}") from None
