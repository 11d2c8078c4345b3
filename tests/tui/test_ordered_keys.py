"""Keys that come at once go where each would have gone alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Key

from distmon.core.synthetic import Script, session
from distmon.launcher.form import Form
from distmon.tui.app import DistmonApp
from distmon.tui.screens.launch import Launch
from tests.tui.conftest import OpenApp

NAMES = {"/": "slash", ">": "greater_than_sign", "-": "minus"}
RUNNING = list(session(Script(ranks=4, nodes=2, seconds=20)))[:-6]


def type_at_once(app: DistmonApp, *keys: str) -> None:
    """As a paste or a link that gathers keys does: nothing is done in between."""
    for key in keys:
        name = NAMES.get(key, key)
        app.post_message(Key(name, key if len(key) == 1 else None))


async def test_what_comes_with_the_key_that_opens_a_prompt_is_written_in_it(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        type_at_once(app, "f4", "/", *"late>5", "enter", "f3", "/", *"node-000")
        while app.cockpit.page.screen_name != "nodes" or app.cockpit.prompt.value != "node-000":
            await pilot.pause()
        assert app.cockpit.page.choices.filters.get("nodes") == "node-000"
        type_at_once(app, "enter", "f4")
        while app.cockpit.page.screen_name != "ranks":
            await pilot.pause()
        assert app.cockpit.page.choices.filters.get("ranks") == "late>5"


async def test_a_key_whose_receiver_goes_away_holds_nothing_up(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        type_at_once(app, "f8", "question_mark", "escape", "f2", "f5")
        while app.cockpit.page.screen_name != "scaling":
            await pilot.pause()


@pytest.mark.parametrize("opening", [None, ("launch", Form())], ids=["J", "distmon launch"])
async def test_what_is_typed_while_the_form_opens_is_written_in_it(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opening: tuple[str, object] | None
) -> None:
    """However long that takes; the session behind stays as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    take, places = Launch._take_wanted_focus, asyncio.Event()
    monkeypatch.setattr(Launch, "_take_wanted_focus", lambda page: take(page) if places.is_set() else None)
    async with open_app(RUNNING, size=(120, 40), opening=opening) as (app, pilot, _):
        theme = app.theme
        type_at_once(app, *(["J"] if opening is None else []), *"tKqp")
        for _ in range(20):
            await pilot.pause()
        page = app.cockpit.page
        assert isinstance(page, Launch) and page.wants_focus
        assert not app.cockpit.question and app.return_value is None and app.theme == theme
        places.set()
        page._take_wanted_focus()
        while not page.form.inputs["command"].value.endswith("tKqp"):
            await pilot.pause()
        assert app.theme == theme


async def test_keys_are_not_held_for_a_form_that_has_no_place(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(20, 5)) as (app, pilot, _):
        type_at_once(app, "J", "escape", "q")
        while app.return_value is None:
            app.frame()
            await pilot.pause()
