"""A report as one HTML file that needs nothing beside it: tables, and plots that zoom, in light and dark.

Nothing of a session's own is trusted: its text is escaped, data lie in blocks that no browser runs, and the page's policy lets
only the two scripts run that are made here, known by their hashes, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from html import escape

import vl_convert

from distmon.replay.report.drawing import Chart
from distmon.replay.report.tables import Section, Table

_STYLE = """
:root { color-scheme: light dark; --text: #1c2530; --muted: #57616e; --page: #fbfbfa; --line: #c3cad3; --raised: #eceef1 }
@media (prefers-color-scheme: dark) {
  :root { --text: #d7dde6; --muted: #939eac; --page: #0e1116; --line: #323b48; --raised: #171c24 }
}
body { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .7rem; text-align: right; white-space: nowrap }
th { color: var(--muted); font-weight: 600 } .left { text-align: left } td.long { white-space: normal; overflow-wrap: anywhere }
a { color: inherit } nav ul { columns: 20rem } li { overflow-wrap: anywhere }
 .chart { width: 100% } footer, noscript { color: var(--muted) }
details.vega-embed, .vega-embed details { color: var(--muted) }
"""
_SCRIPT = """
const theme = dark => {
  const text = dark ? "#939eac" : "#57616e", grid = dark ? "#232a34" : "#e4e7eb", line = dark ? "#323b48" : "#c3cad3";
  return { background: "transparent", font: "system-ui, sans-serif", view: { stroke: "transparent" },
    axis: { labelColor: text, titleColor: text, gridColor: grid, domainColor: line, tickColor: line, titleFontWeight: "normal" },
    legend: { labelColor: text, titleColor: text, titleFontWeight: "normal" } };
};
const query = window.matchMedia("(prefers-color-scheme: dark)");
const draw = () => document.querySelectorAll(".chart").forEach(place => {
  const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
  vegaEmbed(place, spec, { ast: true, renderer: "svg", config: theme(query.matches),
    tooltip: { theme: query.matches ? "dark" : "light" },
    actions: { export: true, source: false, compiled: false, editor: false } });
});
query.addEventListener("change", draw);
draw();
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A heading (none where it is empty) with its sections; each plot stands below the section that it names, or at the end."""

    title: str
    sections: list[Section]
    charts: list[Chart]


def to_html(title: str, parts: list[Part], made_by: str) -> str:
    """The page. `made_by` names the program and its version."""
    drawn = any(part.charts for part in parts)
    scripts = [_library(), _SCRIPT] if drawn else []
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}"
    body = [_part(number, part) for number, part in enumerate(parts)]
    titled = [f'<li><a href="#part-{number}">{escape(part.title)}</a></li>' for number, part in enumerate(parts) if part.title]
    hint = "Drag or use the wheel over a plot to move along the time, double-click to see all; click a name to single it out."
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            "<noscript>The plots need JavaScript; the tables do not.</noscript>" if drawn else "",
            f"<nav><ul>{''.join(titled)}</ul></nav>" if len(titled) > 1 else "",
            *body,
            f"<footer><p>{hint if drawn else ''}</p><p>Made by {escape(made_by)}.</p></footer>",
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )


@cache
def _library() -> str:
    """What draws, as one script; nothing in it may end the script early, whatever its version holds."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _part(number: int, part: Part) -> str:
    left = {id(chart): chart for chart in part.charts}
    blocks = [f'<h1 id="part-{number}">{escape(part.title)}</h1>'] if part.title else []
    for section in part.sections:
        blocks.append(_section(section))
        for chart in part.charts:
            if chart.section == section.title:
                blocks.append(_chart(number, left.pop(id(chart))))
    return "\n".join([*blocks, *(_chart(number, chart) for chart in left.values())])


def _chart(number: int, chart: Chart) -> str:
    name = f"spec-{number}-{chart.name}"
    # `<` could end the block, or begin a comment in it.
    data = json.dumps(chart.spec, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<h3>{escape(chart.title)}</h3><div class="chart" data-spec="{escape(name)}"></div>'
        f'<script type="application/json" id="{escape(name)}">{data}</script>'
    )


def _section(section: Section) -> str:
    blocks = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    if section.facts:
        rows = "".join(
            f'<tr><th class="left">{escape(label)}</th><td class="left long">{escape(value)}</td></tr>'
            for label, value in section.facts
        )
        blocks.append(f'<div class="scroll"><table>{rows}</table></div>')
    if section.lines:
        blocks.append("<ul>" + "".join(f"<li>{escape(line.strip())}</li>" for line in section.lines) + "</ul>")
    if section.table:
        blocks.append(_table(section.table))
    return "\n".join(blocks)


def _table(table: Table) -> str:
    def row(cells: list[str], tag: str) -> str:
        side = [' class="left"' if index in table.left else "" for index in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{at}>{escape(cell)}</{tag}>" for at, cell in zip(side, cells, strict=True)) + "</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return f'<div class="scroll"><table><thead>{row(table.header, "th")}</thead><tbody>{body}</tbody></table></div>'
