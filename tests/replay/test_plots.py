"""Reports with plots: every series is there, the page works alone, and nothing of a session's own becomes markup or code."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.timeline import Timeline
from distmon.replay.recorder import Recorder
from distmon.replay.report.charts import session_charts
from distmon.replay.report.drawing import Chart
from distmon.replay.report.html import Part, to_html
from distmon.replay.report.pictures import write_pictures
from distmon.replay.report.plots import Plots, plots
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.tui.cli import plotted
from distmon.tui.cli.main import main

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


def folded(events: list[ev.AnyEvent]) -> tuple[SessionState, Plots]:
    state, timeline = SessionState(), Timeline()
    for event in events:
        apply(state, event)
        timeline.add(event)
    return state, plots(state, timeline)


@pytest.fixture(scope="module")
def eventful() -> list[ev.AnyEvent]:
    events = list(session(Script(ranks=2, nodes=2, seconds=40, gpus_per_node=1, steps_per_epoch=100)))
    at = events[0].at
    events[1:1] = [ev.NodeJoined(at=at, node="n0", host=HOSTILE)]
    hostile = ev.PowerRail(name=HOSTILE, watts=2.0, source="x")
    events[-3:-3] = [
        ev.NodeSampled(at=at + 41, node="n0", interval_s=1.0, power=[hostile]),
        ev.MembershipChanged(at=at + 30, change="host_failed", host=HOSTILE),
    ]
    return [e for event in events for e in (*begun(event), event) if not (isinstance(e, ev.NodeJoined) and e.host == "node-000")]


def begun(event: ev.AnyEvent) -> list[ev.AnyEvent]:
    """Rank 0 says so where an epoch begins, as the probes do."""
    if isinstance(event, ev.StepsRecorded) and event.rank == 0 and event.epoch is not None:
        return [ev.EpochStarted(at=event.at, worker=event.worker, rank=0, epoch=event.epoch)]
    return []


@pytest.fixture(scope="module")
def charts(eventful: list[ev.AnyEvent]) -> list[Chart]:
    state, drawn = folded(eventful)
    return session_charts(summarise(state), drawn)


@pytest.fixture(scope="module")
def page(eventful: list[ev.AnyEvent], charts: list[Chart]) -> str:
    state, _ = folded(eventful)
    return to_html(HOSTILE, [Part(HOSTILE, sections(summarise(state)), charts)] * 2, "distmon 0")


class Outline(HTMLParser):
    """Tags, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "code", ""))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.scripts:
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    return found


def test_every_plot_of_a_session_is_made(charts: list[Chart]) -> None:
    names = [chart.name for chart in charts]
    assert names[:6] == ["throughput", "step_time", "phases", "wall_time", "ranks", "elastic"]
    assert {"node1_load", "node1_power", "node2_load", "node2_power"} <= set(names)


def test_accounts_are_drawn_as_the_report_tells_them(eventful: list[ev.AnyEvent], charts: list[Chart]) -> None:
    by_name, told = {chart.name: chart for chart in charts}, summarise(folded(eventful)[0])
    assert told.energy is not None and told.communication is not None and told.communication.compute_s is not None
    whole = sum(row["v"] for row in values(by_name["energy_nodes"]))
    assert whole == pytest.approx(told.energy.energy_j, rel=1e-3)
    parts = {row["p"]: row["v"] for row in values(by_name["communication"])}
    assert parts["forward + backward"] == pytest.approx(1000 * told.communication.compute_s, rel=1e-3)
    waited = parts["waiting for the last rank"] + parts["transfer"]
    assert waited == pytest.approx(1000 * told.communication.exposed_s, rel=1e-3)
    bars = next(iter(by_name["energy_epochs"].spec["datasets"].values()))
    assert [row["v"] for row in bars] == pytest.approx([e.energy_j for e in told.energy.epochs], rel=1e-3)
    held = values(by_name["findings"])
    assert {row["k"] for row in held} == {v.kind for v in told.verdicts if v.from_s is not None}


def values(chart: Chart) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = chart.spec["datasets"][chart.spec["data"]["name"]]
    return rows


def test_lines_show_what_the_session_held(charts: list[Chart]) -> None:
    by_name = {chart.name: chart for chart in charts}
    rates = [row["v"] for row in values(by_name["throughput"])]
    assert sum(rates) / len(rates) == pytest.approx(2 * 32 / 0.1, rel=0.05)
    phases = values(by_name["phases"])
    one_moment = [row["v"] for row in phases if row["t"] == phases[20]["t"]]
    assert sum(one_moment) == pytest.approx(100, rel=0.05)
    power = {row["s"] for row in values(by_name["node2_power"])}
    assert power == {"total", "package-0", "GPU"}


def test_the_page_needs_nothing_and_runs_only_its_own_scripts(page: str) -> None:
    found = outline(page)
    assert not [attrs for _, attrs in found.tags if {"src", "onerror", "onclick"} & attrs.keys()]
    assert [attrs["href"] for _, attrs in found.tags if "href" in attrs] == ["#part-0", "#part-1"]
    policy = next(attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    code = [text for kind, text in found.scripts if kind == "code"]
    assert len(code) == 2 and policy.count("sha256-") == 2
    assert "alert(" not in "".join(code)


def test_nothing_of_the_sessions_own_is_markup(page: str) -> None:
    found = outline(page)
    assert "img" not in {tag for tag, _ in found.tags}
    data = [json.loads(text) for kind, text in found.scripts if kind == "application/json"]
    assert len(data) == len({attrs["data-spec"] for _, attrs in found.tags if "data-spec" in attrs})
    assert HOSTILE in json.dumps(data, ensure_ascii=False).replace('\\"', '"')
    assert "<script>alert" not in page


def test_a_few_stalls_do_not_flatten_a_plot_and_are_told() -> None:
    events = list(session(Script(ranks=1, nodes=1, seconds=120, warmup_steps=1, warmup_factor=20)))
    state, drawn = folded(events)
    chart = next(c for c in session_charts(summarise(state), drawn) if c.name == "step_time")
    assert chart.spec["encoding"]["y"]["scale"]["domain"][1] == pytest.approx(150, rel=0.1)
    assert re.search(r"\([1-3] points? above the plot, up to [\d,]+ ms\)", chart.title)


def test_pictures_are_png_and_svg(charts: list[Chart], tmp_path: Path) -> None:
    written = write_pictures(tmp_path / "plots", [c for c in charts if c.name in ("ranks", "elastic")])
    assert sorted(path.name for path in written) == ["elastic.png", "elastic.svg", "ranks.png", "ranks.svg"]
    assert (tmp_path / "plots" / "ranks.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" not in (tmp_path / "plots" / "elastic.svg").read_text()


def test_the_verb_writes_a_page_and_replaces_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording, page = tmp_path / "a.jsonl", tmp_path / "a.html"
    with Recorder(recording) as recorder:
        for event in session(Script(ranks=2, nodes=1, seconds=5)):
            recorder.write(event)
    page.write_text("old")
    assert main(["report", str(recording), "--html", str(page)]) == 0
    assert page.read_text() != "old" and "<h2>Summary</h2>" in page.read_text()
    assert list(tmp_path.glob(".*")) == []
    assert main(["report", str(recording), "--html", str(tmp_path / "no" / "a.html")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("cannot be written: No such file or directory")


def test_markdown_links_the_plots_that_were_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--demo", "--markdown", "--png", str(tmp_path / "p")]) == 0
    said = capsys.readouterr()
    linked = re.findall(r"!\[.*?\]\(<(.*?)>\)", said.out)
    assert linked and all(Path(path).is_file() for path in linked)
    assert f"wrote {2 * len(linked)} files" in said.err


def test_without_the_extra_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plotted, "_NEEDED", ("no_such_library",))
    assert main(["report", "--demo", "--html", str(tmp_path / "a.html")]) == 1
    assert "pip install 'distmon[report]'" in capsys.readouterr().err
