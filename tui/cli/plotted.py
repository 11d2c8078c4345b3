"""Reports with plots, for the verbs that write them: HTML pages, PNG and SVG. What draws them comes with the extra [report]."""

from __future__ import annotations

import importlib.util
import os
import secrets
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from distmon.core.errors import DistmonError, told
from distmon.replay.report.model import ScalingReport
from distmon.replay.report.plots import Plots
from distmon.replay.report.scaling import common_sections
from distmon.replay.report.sections import overview, sections
from distmon.replay.report.tables import Section
from distmon.replay.report.words import count
from distmon.tui.cli.reported import Reported

_NEEDED = ("altair", "vl_convert")


def require_plots() -> None:
    """Raises DistmonError where the libraries that draw are not installed."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise DistmonError("plots need distmon's extra [report]: pip install 'distmon[report]'")


def write_html(path: Path, reported: list[Reported], scaling: ScalingReport | None, no_scaling: str) -> None:
    """One page of all sessions, put in place when it is whole; a page of that name is replaced."""
    from distmon.replay.report.charts import session_charts
    from distmon.replay.report.html import Part, to_html
    from distmon.replay.report.scaling_charts import scaling_charts

    named = [(one.name, one.session) for one in reported]
    first = Part("", common_sections(named, scaling, no_scaling) or overview(named), [])
    if scaling is not None:
        first.charts.extend(scaling_charts(scaling))
    parts = [
        Part(one.name, [*sections(one.session), *_not_drawn(one.drawn)], session_charts(one.session, one.drawn))
        for one in reported
        if one.drawn is not None
    ]
    title = reported[0].name if len(reported) == 1 else f"{len(reported)} sessions"
    replace_file(path, to_html(title, [first, *parts], f"distmon {version('distmon')}"))


def _not_drawn(drawn: Plots) -> list[Section]:
    if not drawn.left_out:
        return []
    further = f"{count(drawn.left_out, 'further node')}: the first {len(drawn.nodes)} are drawn, the table of nodes has all"
    return [Section("Not drawn", lines=[further])]


class Pictures(NamedTuple):
    """The plots that were written: of what all sessions have in common, and of each; (title, file without its ending)."""

    scaling: list[tuple[str, Path]]
    each: list[list[tuple[str, Path]]]

    @property
    def files(self) -> int:
        """How many, two of each plot."""
        return 2 * (len(self.scaling) + sum(map(len, self.each)))


def write_png(folder: Path, reported: list[Reported], scaling: ScalingReport | None) -> Pictures:
    """The plots of all sessions; with several, the files' names begin with the session's number."""
    from distmon.replay.report.charts import session_charts
    from distmon.replay.report.drawing import Chart
    from distmon.replay.report.pictures import write_pictures
    from distmon.replay.report.scaling_charts import scaling_charts

    def written(charts: list[Chart], prefix: str = "") -> list[tuple[str, Path]]:
        write_pictures(folder, charts, prefix)
        return [(chart.title, folder / f"{prefix}{chart.name}") for chart in charts]

    prefixes = [f"{number}_" for number in range(1, len(reported) + 1)] if len(reported) > 1 else [""]
    return Pictures(
        written(scaling_charts(scaling)) if scaling is not None else [],
        [
            written(session_charts(one.session, one.drawn), prefix) if one.drawn is not None else []
            for prefix, one in zip(prefixes, reported, strict=True)
        ],
    )


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
