"""Every key does what the table of bindings says; mouse; and the screen's manners."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import MouseScrollDown

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.measures import rank_status
from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp
from distmon.tui.bindings import COMMANDS, WHILE_HELPING, commands_for
from distmon.tui.screens.arrange import frame_places, is_single
from distmon.tui.screens.overview import Overview
from distmon.tui.screens.registry import SCREENS
from distmon.tui.theme import PALETTES
from distmon.tui.view.chrome import help_lines
from distmon.tui.view.filters import LANGUAGE
from distmon.tui.widgets.canvas import Canvas
from tests.tui.conftest import folded

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, Grid, OpenApp


PANELS = ("throughput", "split", "nodes", "ranks", "events", "output")


def landing(app: DistmonApp) -> Overview:
    """The page of the landing screen."""
    page = app.cockpit.page
    assert isinstance(page, Overview)
    return page


def running(ranks: int = 4, nodes: int = 2, seconds: int = 30) -> list[AnyEvent]:
    """A job under way, one rank of it slow."""
    script = Script(ranks=ranks, nodes=nodes, seconds=seconds, slow_rank=1, delay_s=0.03)
    return [
        event for event in session(script) if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
    ]


async def test_a_small_screen_says_who_and_what_cause(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running(), size=(40, 12)) as (app, _, _):
        rows = text_grid(app)
        told = " ".join(row.strip() for row in rows[2:4])
        assert told.startswith("▲ rank 1 is late by") and "in its input" in told
        assert app.cockpit.facts.verdicts[0].text.startswith(told.removeprefix("▲ ").rstrip("…"))
        assert rows[3].startswith("   ") and rows[4].startswith("─ 4 ranks")


async def test_a_round_that_forms_is_no_training(open_app: OpenApp, text_grid: Grid) -> None:
    """Header, ranks and the sentence say the same, and no speed of the round before is shown for it."""
    events = running()
    at = events[-1].at
    places = [ev.RankPlace(rank=rank, host=f"node-{rank % 2:03d}", local_rank=rank // 2) for rank in range(6)]
    assigned = ev.RanksAssigned(at=at + 1, generation=1, world_size=6, places=places)
    stage = ev.LaunchProgressed(at=at + 2, stage="rendezvous", detail="the first rank is there and waits for the others")
    ticks = [ev.NodeSampled(at=at + 20, node=f"n{i}", interval_s=1.0) for i in range(2)]
    async with open_app([*events, assigned, stage, *ticks], size=(120, 40)) as (app, _, _):
        rows = text_grid(app)
        assert "◐ forming: rendezvous" in rows[0] and "6 ranks on 2 nodes" in rows[0] and "round 1" in rows[0]
        assert "– samples/s" in rows[1] and "training" not in rows[0]
        assert rows[3].startswith(" ◐ forming: rendezvous  the first rank is there")
        assert [app.cockpit.facts.ranks[rank].state for rank in range(6)] == ["forming"] * 6
        assert all(row.recent is None and row.samples_per_s is None for row in app.cockpit.facts.ranks.values())
        assert sum("◐ forming" in row and "  –  " in row for row in rows) == 6
    ended = ev.JobEnded(at=at + 30, exit_code=1, reason="failed")
    assert {rank_status(folded([*events, assigned, ended]), rank) for rank in range(4)} == {"ended"}


def test_no_key_is_bound_twice() -> None:
    for screen in SCREENS:
        # Left and right are the heat map's and the crosshair's where the focus has one, and else the replay bar's; up and down
        # are the command line's in the launch form.
        own = ("aside", "recall")
        commands = [c for c in commands_for("app", "screen", "bar", screen.name) if not c.action.startswith(own)]
        keys = [key for command in commands for key in command.keys]
        assert len(keys) == len(set(keys)), screen.name


def test_the_help_names_every_command_and_fits_in_80_columns() -> None:
    lines = [
        "".join(text for text, _ in line.pieces)
        for line in help_lines(list(COMMANDS), {"runs": ("samples_per_s",)}, PALETTES["distmon-dark"], 72, 40)
    ]
    for command in COMMANDS:
        assert any(command.help in line for line in lines)
    assert max(map(len, lines)) <= 72
    told = " ".join(" ".join(lines).split())
    fields = ("fields of ranks: rank host state", "fields of output: rank host at severity out")
    for part in ("!ended", *fields, "slow: a verdict names the rank"):
        assert part in told


@pytest.mark.parametrize("width", [34, 44, 54])
def test_in_a_narrow_window_the_help_is_told_in_full(width: int) -> None:
    """It was cut after 16 letters at 40 columns."""
    lines = help_lines(list(COMMANDS), {}, PALETTES["distmon-dark"], width, 8)
    assert max(line.width for line in lines) <= width
    told = " ".join(" ".join(text for line in lines for text, _ in line.pieces).split())
    for words in (*(command.help for command in COMMANDS), *(meaning for _, meaning in LANGUAGE)):
        assert words in told


@pytest.mark.parametrize("bar", [False, True])
def test_the_tour_says_from_which_size_on_there_are_several_panels(bar: bool) -> None:
    tour = (Path(__file__).parents[2] / "docs" / "tour.md").read_text()
    said = re.search(r"Below (\d+)x(\d+), or (\d+)x(\d+) with the replay bar, one panel", tour)
    assert said is not None
    width, height = map(int, said.groups()[2:] if bar else said.groups()[:2])

    def single(width: int, height: int) -> bool:
        page = frame_places(width, height, bar=bar, prompt=0)["page"]
        return is_single(page.width, page.height)

    assert not single(width, height) and single(width - 1, height) and single(width, height - 1)


async def test_the_screen_says_what_the_state_says(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running()) as (app, _, _):
        screen = "\n".join(text_grid(app))
    for part in (
        "training",
        "python train.py --lr 0.1",
        "4 ranks on 2 nodes",
        "rank 1 is late",
        "node-001",
        "▲ slow",
        "rendezvous 0",
        "step 1",
    ):
        assert part in screen, part


async def test_the_lines_of_the_landing_screen_are_sorted_too(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.press("6", "s", "s")
        assert "output by rank" in app.cockpit.note
        assert any("output" in row and "by rank↑" in row for row in text_grid(app))
        ranks_of = [record["ranks"] for record in landing(app).output.records()]
        assert ranks_of == sorted(ranks_of, key=str) and len(ranks_of) > 1
        await pilot.press("1", "s")
        assert "nodes by " in app.cockpit.note, "elsewhere the table, as before"


async def test_panels_grow_with_ranks_and_nodes_that_come_later(open_app: OpenApp, text_grid: Grid) -> None:
    events = running()
    first = next(i for i, event in enumerate(events) if isinstance(event, ev.NodeJoined))
    async with open_app(events[:first]) as (app, pilot, source):
        source.waiting.extend(events[first:])
        app.frame()
        await pilot.pause()
        rows = text_grid(app)
        for text in ("▲ node-000", " slow  cpu", "● node-001       cpu", "   0 node-000", "   1 node-000"):
            assert any(text in row for row in rows), text
        assert landing(app).ranks.size.height >= 4


@pytest.mark.parametrize("number", range(1, 7))
async def test_a_number_focuses_its_panel_and_again_zooms_it(open_app: OpenApp, number: int) -> None:
    async with open_app(running()) as (app, pilot, _):
        name = PANELS[number - 1]
        overview = landing(app)
        overview.choices.focused = PANELS[number % 6]
        await pilot.press(str(number))
        assert overview.choices.focused == name
        assert app.screen.focused is overview.panels[name]
        await pilot.press(str(number))
        assert overview.choices.zoomed == name
        assert [p for p in PANELS if overview.panels[p].display] == [name]
        await pilot.press("escape")
        assert overview.choices.zoomed is None
        assert all(panel.display for panel in overview.panels.values())


async def test_tab_goes_round_the_panels_and_back(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        seen = []
        for _ in PANELS:
            await pilot.press("tab")
            seen.append(landing(app).choices.focused)
        assert sorted(seen) == sorted(PANELS)
        await pilot.press("shift+tab")
        assert landing(app).choices.focused == seen[-2]


async def test_arrows_select_and_enter_opens_details_that_follow_and_escape_closes(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(running()) as (app, pilot, _):
        await pilot.press("down", "down")
        assert landing(app).ranks.model.selected == 1
        await pilot.press("enter")
        assert landing(app).choices.details == ("rank", 1)
        assert any("rank 1" in row and "Esc closes" in row for row in text_grid(app))
        await pilot.press("j")
        assert landing(app).choices.details == ("rank", 2)
        await pilot.press("k", "G")
        assert landing(app).ranks.model.selected == 3
        await pilot.press("g")
        assert landing(app).ranks.model.selected == 0
        await pilot.press("escape")
        assert landing(app).choices.details is None


async def test_a_missing_value_has_its_reason_one_key_away(open_app: OpenApp, text_grid: Grid) -> None:
    events = running(ranks=2, nodes=1)
    at = events[-1].at
    sample = ev.NodeSampled(at=at, node="n0", interval_s=1.0, unavailable={"power": "no power counter can be read"})
    unseen = ev.PhaseUnseen(at=at, worker="w0", rank=0, field="compute", reason="the step is compiled")
    steps = ev.StepsRecorded(
        at=at,
        node="n0",
        worker="w0",
        rank=0,
        generation=0,
        first_step=900,
        origin=at,
        start_ns=[i * 10**8 for i in range(40)],
        duration_ns=[10**8] * 40,
    )
    async with open_app([*events, steps, unseen, sample], size=(120, 40)) as (app, pilot, _):
        assert any("   0 node-000" in row and "–" in row for row in text_grid(app))
        await pilot.press("g", "enter")
        assert any("compute" in row and "–" in row and "the step is compiled" in row for row in text_grid(app))
        await pilot.press("3", "g", "enter")
        assert any("power –" in row and "no power counter can be read" in row for row in text_grid(app))


async def test_tab_reaches_open_details_to_scroll_them(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        await pilot.press("v", "6", "tab")
        assert app.screen.focused is landing(app).details
        assert landing(app).focused_panel is landing(app).details


async def test_v_tells_why_with_evidence_and_what_to_try(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.press("v")
        for _ in range(2):
            screen = " ".join(" ".join(row.strip("│ ┃") for row in text_grid(app)).split())
            for verdict in app.cockpit.facts.verdicts[:1]:
                assert verdict.evidence in screen and verdict.try_first in screen
            await pilot.resize_terminal(116, 50)


async def test_s_sorts_by_the_next_column_and_capital_s_reverses(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        await pilot.press("s")
        assert landing(app).choices.sorts["ranks"] == ("late", True)
        assert landing(app).ranks.model.keys[0] == 1
        await pilot.press("S")
        assert landing(app).ranks.model.keys[-1] == 1


async def test_a_click_on_a_column_sorts_by_it_and_again_reverses(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        table = landing(app).ranks
        header = "".join(segment.text for segment in table.draw_body(*table.body_size)[0])
        await pilot.click("#ranks", offset=(table.body_left + header.index("comm") + 1, 1))
        assert landing(app).choices.sorts["ranks"] == ("exposed_communication", True)
        await pilot.click("#ranks", offset=(table.body_left + header.index("comm") + 1, 1))
        assert landing(app).choices.sorts["ranks"] == ("exposed_communication", False)


async def test_a_click_selects_a_row_and_the_wheel_scrolls_without_selecting(open_app: OpenApp) -> None:
    async with open_app(running(ranks=64, nodes=8)) as (app, pilot, _):
        table = landing(app).ranks
        await pilot.click("#ranks", offset=(5, 3))
        assert table.model.selected == 1
        assert app.screen.focused is table
        await pilot._post_mouse_events([MouseScrollDown], "#ranks", (5, 3), button=0)
        await pilot.pause()
        assert table.model.top == 3
        assert table.model.selected == 1


async def test_a_click_on_the_footer_does_its_command_and_one_on_the_verdict_tells_why(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(running()) as (app, pilot, _):
        row = text_grid(app)[-1]
        await pilot.click("#footer", offset=(row.index("help"), 0))
        assert app.cockpit.helping
        await pilot.click("#footer", offset=(row.index("? help"), 0))
        assert not app.cockpit.helping
        await pilot.click("#footer", offset=(row.index("zoom"), 0))
        assert landing(app).choices.zoomed == "ranks"
        await pilot.click("#verdict", offset=(5, 0))
        assert landing(app).choices.details == ("verdicts", None)
        await pilot.click("#footer", offset=(row.index("panels"), 0))
        await pilot.click("#footer", offset=(79, 0))
        assert app.is_running


async def test_slash_filters_the_focused_panel_while_typing_and_escape_drops_it(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(running(ranks=64, nodes=8)) as (app, pilot, _):
        table = landing(app).ranks
        await pilot.press("slash", *"node-003")
        assert table.model.keys == list(range(24, 32))
        await pilot.press("enter")
        assert not app.cockpit.prompting
        assert table.model.keys == list(range(24, 32))
        assert any("8 of 64" in row for row in text_grid(app))
        await pilot.press("escape")
        assert len(table.model.keys) == 64
        await pilot.press("slash", *"slow", "escape")
        assert not app.cockpit.prompting
        assert len(table.model.keys) == 64


@pytest.mark.parametrize(
    ("text", "left"), [("cpu>1", 2), ("!zzz", 2), ("~nd1", 1), ("node=node-000", 1), ("cpu>101", 0), ("slow", 1)]
)
async def test_the_panel_of_nodes_takes_the_whole_language_of_filters(open_app: OpenApp, text: str, left: int) -> None:
    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.press("3", "slash")
        landing(app).set_filter(text)
        assert len(landing(app).nodes.model.keys) == left
        landing(app).choices.sorts["nodes"] = ("cpu", True)
        landing(app).redraw()
        assert len(landing(app).nodes.model.keys) == left


@pytest.mark.parametrize("panel", ["ranks", "nodes", "events", "output"])
async def test_a_panel_whose_rows_are_all_hidden_says_what_hides_them(
    open_app: OpenApp, text_grid: Grid, panel: str
) -> None:
    async with open_app(running(), size=(160, 50)) as (app, pilot, _):
        landing(app).choices.focused = panel
        landing(app).set_filter("zzz")
        await pilot.pause()
        assert any("no row passes the filter: /zzz" in row for row in text_grid(app))
        landing(app).set_filter("/(/")
        await pilot.pause()
        assert any("/(/ missing )" in row for row in text_grid(app)), "what is wrong with it is told where all rows pass"


async def test_p_is_told_in_the_captions_and_escape_ends_it(open_app: OpenApp, text_grid: Grid) -> None:
    healthy = list(session(Script(ranks=4, nodes=2, seconds=5)))[:60]
    async with open_app(healthy, size=(160, 50)) as (app, pilot, _):
        assert not any("problems only" in row for row in text_grid(app))
        await pilot.press("p")
        rows = text_grid(app)[:-1]
        assert sum("no row passes the filter: problems only" in row for row in rows) >= 2
        assert any("problems only 0 of 4" in row for row in rows) and any("problems only 0 of 2" in row for row in rows)
        await pilot.press("escape")
        assert len(landing(app).ranks.model.keys) == 4 and not any("problems only" in row for row in text_grid(app))


async def test_a_selected_row_that_a_filter_hides_has_not_left(open_app: OpenApp) -> None:
    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.press("4", "down", "down")
        landing(app).set_filter("rank=0")
        assert landing(app).ranks.model.selected == 0 and not app.cockpit.note
        await pilot.press("f4", "g", "down")
        app.cockpit.page.set_filter("rank=3")
        assert not app.cockpit.note
        await pilot.press("f3", "2", "down")
        app.cockpit.page.set_filter("zzz")
        assert not app.cockpit.note


async def test_p_leaves_only_what_needs_a_look(open_app: OpenApp) -> None:
    async with open_app(running(ranks=64, nodes=8), size=(120, 40)) as (app, pilot, _):
        await pilot.press("p")
        assert landing(app).ranks.model.keys == [1]
        assert landing(app).nodes.model.keys == ["n0"]
        await pilot.press("p")
        assert len(landing(app).ranks.model.keys) == 64


async def test_r_shows_the_output_of_the_selected_rank_only(open_app: OpenApp) -> None:
    events = running()
    lines = ev.OutputWritten(
        at=events[-1].at, rank=2, host="node-001", local_rank=0, output="stderr", lines=["only rank two"]
    )
    async with open_app([*events, lines]) as (app, pilot, _):
        await pilot.press("g", "down", "down", "r")
        output = landing(app).output
        assert [line.text for line in output.all_lines] == ["only rank two"]
        await pilot.press("r")
        assert len(output.all_lines) == 31


async def test_question_mark_opens_and_closes_help_and_keys_do_not_fall_through(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(running()) as (app, pilot, _):
        await pilot.press("question_mark")
        assert any("? or Esc closes" in row for row in text_grid(app))
        await pilot.press("z", "s", "down")
        assert landing(app).choices.zoomed is None
        assert landing(app).choices.sorts["ranks"] == ("rank", False)
        assert app.cockpit.overlays["help"]._top == 1
        await pilot.press("question_mark")
        assert not app.cockpit.helping
        assert {"help", "back", "navigate", "leave"} <= set(WHILE_HELPING)


async def test_t_goes_through_all_themes_and_back(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        seen = [app.theme]
        for _ in PALETTES:
            await pilot.press("t")
            seen.append(app.theme)
        assert seen[0] == seen[-1]
        assert set(seen) == set(PALETTES)


async def test_w_changes_the_time_window_of_the_chart(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running()) as (app, pilot, _):
        await pilot.press("w")
        assert any("last 1 min" in row for row in text_grid(app))
        await pilot.press("w", "w", "w")
        assert landing(app).choices.window == 0


async def test_the_palette_offers_every_command(open_app: OpenApp) -> None:
    async with open_app(running()) as (app, pilot, _):
        offered = {command.title for command in app.get_system_commands(app.screen)}
        assert offered == {c.label for c in app.cockpit.commands if c.action != "command_palette"}
        assert {"zoom", "Overview", "panel 6", "rank's output"} <= offered
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"zoom", "enter")
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert landing(app).choices.zoomed == "ranks"


async def test_the_palette_finds_commands_by_what_they_do(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(running(), environment={"DISTMON_ASCII": "1"}) as (app, pilot, _):
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"chart")
        await app.workers.wait_for_complete()
        await pilot.pause()
        rows = text_grid(app)
        assert any("time window" in row for row in rows) and any("log axis" in row for row in rows), rows
        assert not any("?" in row for row in rows if "chart" in row), "the sign before the prompt"


@pytest.mark.parametrize(("text", "told"), [("foo=3", "foo: no field"), ("late>x", "x is no number")])
async def test_a_filter_that_may_not_mean_what_was_typed_says_so(
    open_app: OpenApp, text_grid: Grid, text: str, told: str
) -> None:
    keys = [{"=": "equals_sign", ">": "greater_than_sign"}.get(letter, letter) for letter in text]
    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.press("4", "slash", *keys, "enter")
        await pilot.pause()
        assert any(told in row for row in text_grid(app)), text


async def test_a_filter_of_lines_says_how_many_pass(open_app: OpenApp, text_grid: Grid) -> None:
    events = running()
    said = ["Epoch 3 of 9", "3 of Epoch 9"]
    told = ev.OutputWritten(at=events[-1].at, rank=0, host="node-000", local_rank=0, output="stdout", lines=said)
    async with open_app([*events, told], size=(120, 40)) as (app, pilot, _):
        await pilot.press("6", "slash", *'"epoch', "space", "3", '"', "enter")
        await pilot.pause()
        assert any(f"1 of {app.state.output_lines:,}" in row for row in text_grid(app))
        await pilot.press("f8")
        app.cockpit.page.set_filter('"epoch 3"')
        await pilot.pause()
        assert any(f"1 of {app.state.output_lines:,}" in row for row in text_grid(app))
        await pilot.press("f7")
        app.cockpit.page.set_filter("job")
        await pilot.pause()
        assert any(f" of {len(app.state.log):,}" in row for row in text_grid(app) if "/job" in row)


async def test_lost_lines_of_output_are_counted_above_it(open_app: OpenApp, text_grid: Grid) -> None:
    events = running()
    lost = ev.OutputWritten(
        at=events[-1].at, rank=0, host="node-000", local_rank=0, output="stdout", lines=["kept"], dropped=1234
    )
    async with open_app([*events, lost]) as (app, pilot, _):
        await pilot.press("6")
        assert any("1,234 lines lost" in row for row in text_grid(app))


async def test_q_leaves_at_once_when_no_job_would_end(open_app: OpenApp, fake_job: type[FakeJob]) -> None:
    job = fake_job(running=False)
    async with open_app(running(), job=job) as (app, pilot, _):
        await pilot.press("q")
        assert app.return_value == 0
        assert job.stopped == 0


@pytest.mark.parametrize("answer", ["n", "escape"])
async def test_q_asks_when_a_job_would_end_and_no_stays(
    open_app: OpenApp, fake_job: type[FakeJob], text_grid: Grid, answer: str
) -> None:
    job = fake_job()
    async with open_app(running(), job=job) as (app, pilot, _):
        await pilot.press("q")
        assert any("Stop it and leave?" in row for row in text_grid(app))
        await pilot.press("s", "z", answer)
        assert app.cockpit.question == ""
        assert landing(app).choices.zoomed is None
        assert app.is_running and job.stopped == 0


@pytest.mark.parametrize("keys", [("q", "y"), ("q", "ctrl+c"), ("ctrl+c", "y"), ("ctrl+c", "ctrl+c")], ids="-".join)
async def test_yes_stops_the_job_and_leaves(open_app: OpenApp, fake_job: type[FakeJob], keys: tuple[str, str]) -> None:
    job = fake_job()
    async with open_app(running(), job=job) as (app, pilot, _):
        await pilot.press(*keys)
        assert job.stopped == 1
        assert app.return_value == 0


async def test_drawing_the_same_moment_again_refreshes_nothing(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(running()) as (app, pilot, _):
        app.frame()
        await pilot.pause()
        refreshed: list[tuple[str | None, object]] = []
        monkeypatch.setattr(Canvas, "refresh", lambda self, *regions, **options: refreshed.append((self.id, regions)))
        app.cockpit.redraw()
        assert refreshed == []
        app.cockpit.note = "something new"
        app.cockpit.redraw()
        assert [name for name, _ in refreshed] == ["footer"]


async def test_user_made_names_show_as_they_are_and_command_nothing(open_app: OpenApp, text_grid: Grid) -> None:
    bad = "\x1b[2Jevil[red]\x1b]0;t\x07"
    events = [
        ev.SessionStarted(at=0.0, session_id="s", distmon_version="0"),
        ev.JobStarted(at=0.0, job="j", command=["python", bad], np=1),
        ev.NodeJoined(at=0.1, node="n0", host=bad),
        ev.WorkerStarted(at=0.2, host=bad, local_rank=0, rank=0),
        ev.OutputWritten(at=0.3, rank=0, host=bad, local_rank=0, output="stdout", lines=[bad + "said"]),
        ev.NoticeGiven(at=0.3, severity="error", text=bad),
    ]
    async with open_app(events, size=(120, 40)) as (app, _, _):
        screen = "\n".join(text_grid(app))
    assert "\x1b" not in screen
    assert screen.count("evil[red]") >= 5


@pytest.mark.parametrize("environment", [{"DISTMON_ASCII": "1"}, {"LC_ALL": "C"}])
async def test_ascii_only_is_ascii_only_everywhere(
    open_app: OpenApp, text_grid: Grid, environment: dict[str, str]
) -> None:
    async with open_app(running(), environment=environment) as (app, pilot, _):
        for keys in ("escape", "question_mark", "escape", "ctrl+p"):
            await pilot.press(keys)
            assert "\n".join(text_grid(app)).isascii()


async def test_no_color_draws_no_colour(open_app: OpenApp, style_grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_app(running(), environment={"NO_COLOR": "1"}) as (app, _, _):
        colours = {
            run.partition(":")[2].rpartition("/")[0] if run.count("/") > 1 else run.partition(":")[2]
            for row in style_grid(app)
            for run in row.split()
        }
    assert colours <= {"-/-", "default/default", "-/default", "default/-", "-"}


async def test_a_gap_in_what_was_received_stands_on_the_screen_with_its_length(open_app: OpenApp, text_grid: Grid) -> None:
    gap = ev.GapFound(at=150.0, node="n0", started=116.0, ended=150.0, lost_records=2959, cause="the journal was too small")
    events = [ev.SessionStarted(at=0.0, session_id="s", distmon_version="0"), ev.NodeJoined(at=0.1, node="n0", host="box"), gap]
    async with open_app(events, size=(160, 50)) as (app, pilot, _):
        for keys in ((), ("f7",)):
            await pilot.press(*keys)
            assert "2,959 records of box lost over 34 s" in "\n".join(text_grid(app))


async def test_what_did_not_change_is_not_written_again(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key's note is the footer's alone; ranks and split are drawn when their measures were renewed; tabs never."""
    composed: list[str] = []
    compose = Canvas._compose_lines

    def noted(canvas: Canvas, width: int, height: int) -> object:
        composed.append(str(canvas.id))
        return compose(canvas, width, height)

    async with open_app(running(), size=(120, 40)) as (app, pilot, _):
        await pilot.pause()
        monkeypatch.setattr(Canvas, "_compose_lines", noted)
        app.cockpit.say("a note")
        assert composed == ["footer"]
        composed.clear()
        app.cockpit.redraw()
        assert "throughput" in composed
        assert not {"tabs", "footer", "ranks", "split"} & set(composed)
