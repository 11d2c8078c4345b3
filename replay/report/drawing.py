"""What all plots share: their form, their colours, and how they become data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

Spec = dict[str, Any]

HEIGHT = 200
ROW_HEIGHT = 26
PHASE_COLOURS = {
    "input wait": "#c07a00",
    "forward + backward": "#2f80c8",
    "exposed communication": "#a45cc0",
    "optimizer": "#1f9e8f",
    "rest": "#8a94a0",
}
SERIES = ["#2f80c8", "#c07a00", "#1f9e8f", "#a45cc0", "#d4574e", "#5f9e3e", "#8a94a0", "#b5803f"]
"""Hues with a contrast of 3:1 and more on a light and on a dark page."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot. `name` is fit for a file; `section` is the title of the report's section that it belongs to."""

    name: str
    title: str
    section: str
    spec: Spec


def data(rows: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=rows)


def spec_of(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> Spec:
    found: Spec = chart.to_dict()
    found.pop("config", None)  # the page's theme brings its own
    return found
