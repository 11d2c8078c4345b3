"""Every key of the table, pressed where it stands: it reaches its own action, on the node that has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.dom import DOMNode

from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp
from distmon.tui.bindings import COMMANDS, Command, key_name
from tests.tui.monkey import key_event, send

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, OpenApp, Settle

PLAYED = "play({action!r})"
"""The bar has no focus of its own: the app takes its keys."""


def expected(command: Command) -> str:
    return PLAYED.format(action=command.action) if command.where == "bar" else command.action


@pytest.mark.parametrize("where", sorted({command.where for command in COMMANDS}))
async def test_every_key_reaches_its_action(
    open_app: OpenApp,
    settle: Settle,
    fake_player: type[FakePlayer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    events = list(session(Script(ranks=4, nodes=2, seconds=20)))
    known, reached = {expected(command) for command in COMMANDS}, list[str]()

    async def note(self: DistmonApp, node: DOMNode, name: str, params: tuple[object, ...]) -> bool:
        """In place of running it: the action, if its node has it. What the framework has first is passed by."""
        shown = ", ".join(map(repr, params))
        written = f"{name}({shown})" if params else name
        if written in known and any(hasattr(node, f"{prefix}{name}") for prefix in ("action_", "_action_")):
            reached.append(written)
        return written in known

    async with open_app(events, player=fake_player(events)) as (app, pilot, _):
        if where not in ("app", "screen", "bar"):
            app.cockpit.go(where)
            await settle(pilot)
        if where != "bar":
            app.cockpit.point_at(events[50].at)  # or else left and right are the bar's
        monkeypatch.setattr(DistmonApp, "_dispatch_action", note)
        wrong = []
        for command in (command for command in COMMANDS if command.where == where):
            for key in command.keys:
                reached.clear()
                send(app, key_event(key))
                await pilot.pause()
                if expected(command) not in reached:
                    wrong.append(f"{key}: {reached} in place of {expected(command)}")
        assert not wrong, "\n".join(wrong)


def test_the_page_of_keys_is_of_this_table() -> None:
    docs = Path(__file__).parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("shortcuts", docs / "shortcuts.py")
    assert spec is not None and spec.loader is not None
    shortcuts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shortcuts)
    page = (docs / "shortcuts.md").read_text(encoding="utf-8")
    assert page == shortcuts.page(), "make pictures writes it anew"
    assert [key for command in COMMANDS for key in command.keys if f"`{key_name(key)}`" not in page] == []


@pytest.mark.parametrize(("screen", "charts"), [("overview", True), ("logs", True), ("nodes", False), ("verdicts", False)])
async def test_the_keys_of_charts_are_told_where_there_are_charts(
    open_app: OpenApp, settle: Settle, screen: str, charts: bool
) -> None:
    """Elsewhere they did nothing, though the help had them."""
    async with open_app(list(session(Script(ranks=4, nodes=2, seconds=20)))) as (app, pilot, _):
        app.cockpit.go(screen)
        await settle(pilot)
        of_charts = [command for command in app.cockpit.commands if command.help.startswith(("charts:", "a crosshair"))]
        told = {key for command in of_charts for key in command.keys}
        assert told == ({"w", "less_than_sign", "greater_than_sign", "l", "x"} if charts else set())
        for key in ("w", "less_than_sign", "l", "x"):
            app.cockpit.note = ""
            await pilot.press(key)
            assert (app.cockpit.note == "there is no chart on this screen") is not charts
