"""Keys that come at once go where each would have gone alone."""

from __future__ import annotations

from textual.events import Key

from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp
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
