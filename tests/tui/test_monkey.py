"""The short form of `make monkey`: random use of the app, live and in a recording; and what the long form has found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual import events

from distmon.core.synthetic import Script, session
from distmon.tui.screens.launch import Launch
from tests.tui.monkey import mouse, play, send

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, FakePlayer, OpenApp, Settle

ACTIONS = 150


@pytest.mark.parametrize("replay", [False, True], ids=["live", "replay"])
async def test_random_use_ends_in_no_error_and_never_gets_stuck(replay: bool) -> None:
    monkey = await play(6 + replay, replay, ACTIONS)
    assert monkey.done.total() == ACTIONS


async def test_a_prompt_that_a_click_took_the_keys_from_still_closes(open_app: OpenApp) -> None:
    async with open_app(session(Script(seconds=5))) as (app, pilot, _):
        await pilot.press("slash", "a")
        await pilot.click(offset=(10, 8))
        assert app.cockpit.prompting
        await pilot.press("escape")
        assert not app.cockpit.prompting


async def test_a_question_gets_its_answer_though_a_field_had_the_keys(
    open_app: OpenApp, settle: Settle, fake_job: type[FakeJob]
) -> None:
    job = fake_job()
    async with open_app(session(Script(seconds=5)), job=job, size=(100, 30)) as (app, pilot, _):
        app.cockpit.go("launch")
        await settle(pilot)
        await pilot.press("a", "ctrl+q", "n", "b", "ctrl+q")
        assert app.cockpit.question
        page = app.cockpit.page
        assert isinstance(page, Launch) and page.form.form.command.endswith("ab")
        await pilot.press("y")
        assert job.stopped == 1


async def test_ctrl_c_drops_what_is_written_in_a_prompt_and_does_not_leave(open_app: OpenApp) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("slash", "z", "ctrl+c")
        assert not app.cockpit.prompting and app.is_running and app.return_value is None
        assert not any(app.cockpit.page.choices.filters.values())


async def test_another_screen_closes_the_prompt(open_app: OpenApp) -> None:
    async with open_app(session(Script(seconds=5))) as (app, pilot, _):
        await pilot.press("slash", "a", "f7")
        assert not app.cockpit.prompting and app.cockpit.page.screen_name == "events"


async def test_a_second_click_beside_the_palette_does_nothing(open_app: OpenApp) -> None:
    async with open_app(session(Script(seconds=5))) as (app, pilot, _):
        await pilot.press("ctrl+p")
        assert app.screen is not app.cockpit
        for _ in range(2):
            send(app, mouse(events.MouseDown, 0, 0, 1), mouse(events.MouseUp, 0, 0, 1))
        await pilot.pause()
        await pilot.press("f7")
        assert app.screen is app.cockpit and app.cockpit.page.screen_name == "events"


@pytest.mark.parametrize("key", ["J", "o", "f5"])
async def test_keys_while_the_app_is_left_do_nothing(open_app: OpenApp, fake_player: type[FakePlayer], key: str) -> None:
    made = list(session(Script(seconds=5)))
    async with open_app(made, player=fake_player(made)) as (app, pilot, _):
        await pilot.press("q", key)
        assert app.return_code == 0


@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_a_page_key_in_a_palette_without_room_does_nothing(open_app: OpenApp, key: str) -> None:
    async with open_app([]) as (app, pilot, _):
        await pilot.press("ctrl+p")
        await pilot.resize_terminal(40, 3)
        await pilot.press(key, "escape")
        assert app.screen is app.cockpit


async def test_a_click_that_comes_after_the_end_is_for_nobody(open_app: OpenApp) -> None:
    async with open_app(session(Script(seconds=5))) as (app, _, _):
        pass
    for kind in (events.MouseDown, events.MouseMove, events.MouseUp):
        await app.on_event(mouse(kind, 4, 4, 1))
