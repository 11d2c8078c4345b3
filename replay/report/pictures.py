"""Plots as PNG and SVG files, for pages and papers; no browser is needed."""

from __future__ import annotations

from pathlib import Path

import vl_convert

from distmon.core.errors import DistmonError, told
from distmon.replay.report.drawing import Chart, Spec

WIDTH = 760
_SCALE = 2
_CONFIG = {
    "background": "#ffffff",
    "view": {"stroke": "transparent"},
    "axis": {"labelColor": "#57616e", "titleColor": "#57616e", "gridColor": "#e4e7eb", "titleFontWeight": "normal"},
    "legend": {"labelColor": "#57616e", "titleColor": "#57616e", "titleFontWeight": "normal"},
    "title": {"anchor": "start", "color": "#1c2530", "fontSize": 14},
}


def write_pictures(
    folder: Path, charts: list[Chart], prefix: str = "", kinds: tuple[str, ...] = ("png", "svg")
) -> list[Path]:
    """NAME.png and NAME.svg of each plot, in a folder that is made where it is missing; files of these names are replaced.

    Raises DistmonError where they cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            spec = chart.spec | {"title": chart.title, "width": WIDTH}
            path = folder / f"{prefix}{chart.name}"
            for kind in kinds:
                path.with_suffix(f".{kind}").write_bytes(_drawn(spec, kind))
                written.append(path.with_suffix(f".{kind}"))
    except OSError as error:
        raise DistmonError(f"the plots cannot be written: {told(error)}; give --png another folder") from None
    return written


def _drawn(spec: Spec, kind: str) -> bytes:
    if kind == "png":
        return vl_convert.vegalite_to_png(spec, scale=_SCALE, config=_CONFIG)
    return vl_convert.vegalite_to_svg(spec, config=_CONFIG).encode()
