"""A seeded monkey at the app: keys, clicks, drags, the wheel, pasted text, sizes and events, without waiting for any of them.

`python -m tests.tui.monkey --actions 10000 --seeds 1 2` is the long form (`make monkey`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

from textual import events
from textual.geometry import Size
from textual.keys import _get_unicode_name_from_key

from distmon.core.events import AnyEvent
from distmon.launcher.check import CheckResult, HostCheck
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.bindings import COMMANDS
from distmon.tui.screens.arrange import too_small
from tests.answers.streams import FAULTS, HEALTHY, Stream
from tests.tui.conftest import FakeJob, _open_app, text_grid
from tests.tui.terminal_model import Terminal, assert_shown, terminal

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from distmon.launcher.plan import Plan
    from distmon.tui.app import DistmonApp

SUSPEND = "ctrl+z"
KEYS = [key for command in COMMANDS for key in command.keys if key != SUSPEND]
KEYS += ["n", "y", "0", "backspace", "ctrl+w", "shift+left", "é", "字", "space", "tab", "enter", "escape"]
PASTED = ("late>5", "/[", "~rk !host=x", "\x1b[2J\x07", "[red]x", "rank=" * 40, "python train.py --x 'a", "…\u202e字🙂")
LOOK_EVERY = 25
"""Actions after which the app must show that it is not stuck."""
PATIENCE_S = 60.0


class NoHosts:
    """In place of asking real hosts."""

    def run(self, waiting: object) -> CheckResult | None:
        return None

    def cancel(self) -> None:
        pass


def no_hosts(plan: Plan, agent: str) -> HostCheck:
    return cast(HostCheck, NoHosts())


class Monkey:
    """One app at a time; where it ends as it may (a recording is opened, a job is started, the user leaves), the next begins."""

    def __init__(self, seed: int, replay: bool, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.replay = replay
        fault = HEALTHY if seed % 12 == 0 else FAULTS[seed % 12 - 1]
        self.waiting: list[AnyEvent] = [event for second in Stream(fault, seed).seconds(75) for event in second]
        self.recording = folder / "monkey.jsonl"
        with Recorder(self.recording) as recorder:
            for event in self.waiting:
                recorder.write(event)
        self.done: Counter[str] = Counter()
        self.terminal = Terminal()
        self.starts = 0
        self.last: list[str] = []
        """The actions since the last look, for whoever has to find what went wrong."""

    async def play(self, actions: int) -> None:
        """So many random actions. Raises what the app raises, and AssertionError where it is stuck or not what is seen."""
        with terminal(self.terminal):
            await self._play(actions)

    async def _play(self, actions: int) -> None:
        while self.done.total() < actions:
            player = Player(open_session(self.recording)) if self.replay else None
            job = None if self.replay else FakeJob(running=self.dice.random() < 0.8)
            self.starts += 1
            events_so_far = self.waiting[: 10 * self.starts]
            async with _open_app(() if self.replay else events_so_far, player=player, job=job) as (app, pilot, source):
                fed = len(events_so_far)
                while app.is_running and not app._exit and self.done.total() < actions:
                    kind = self.act(app, pilot)
                    if kind == "data":
                        source.waiting.extend(self.waiting[fed : fed + 40])
                        fed += 40
                        app.frame()
                    await asyncio.sleep(0)
                    if self.done.total() % LOOK_EVERY == 0:
                        await self.look(app, pilot)
            if player is not None:
                player.close()

    def act(self, app: DistmonApp, pilot: Pilot[int]) -> str:
        """One action, sent as the terminal would send it."""
        dice, (width, height) = self.dice, app.size
        kind = dice.choices(
            ("key", "click", "drag", "wheel", "move", "paste", "size", "data"), (60, 12, 3, 6, 3, 2, 6, 8)
        )[0]
        self.done[kind] += 1
        x, y = dice.randrange(max(width, 1)), dice.randrange(max(height, 1))
        self.last.append(f"{kind} {x},{y}")
        if kind == "key":
            key = dice.choice(KEYS)
            self.last[-1] = f"key {key}"
            send(app, key_event(key))
        elif kind == "click":
            send(app, mouse(events.MouseDown, x, y, 1), mouse(events.MouseUp, x, y, 1))
        elif kind == "drag":
            there = dice.randrange(max(width, 1))
            send(app, mouse(events.MouseDown, x, y, 1), mouse(events.MouseMove, there, y, 1), mouse(events.MouseUp, there, y, 1))
        elif kind == "wheel":
            send(app, mouse(dice.choice((events.MouseScrollUp, events.MouseScrollDown)), x, y, 0))
        elif kind == "move":
            send(app, mouse(events.MouseMove, x, y, 0))
        elif kind == "paste":
            send(app, events.Paste(dice.choice(PASTED)))
        elif kind == "size":
            self.resize(app, dice.randint(1, 220), dice.randint(1, 70))
        return kind

    async def look(self, app: DistmonApp, pilot: Pilot[int]) -> None:
        """It must close what is open, show the help and take it away again, and be whole."""
        self.resize(app, 100, 30)
        await pilot.pause()  # what was sent before is done first
        assert not too_small(100, 30)
        await self.until(app, pilot, "closes everything", lambda: self.is_plain(app), "escape")
        if app._exit:
            return
        await self.until(app, pilot, "shows the help", lambda: app.cockpit.helping and shown(app, " help ─"), "f1")
        await self.until(app, pilot, "takes the help away", lambda: self.is_plain(app), "escape")
        if not app._exit:
            await assert_shown(self.terminal, app, pilot, "; ".join(self.last))
        self.last.clear()

    def resize(self, app: DistmonApp, width: int, height: int) -> None:
        self.terminal.cells.clear()
        resize(app, width, height)

    def is_plain(self, app: DistmonApp) -> bool:
        cockpit = app.cockpit
        if app.screen is not cockpit or cockpit.helping or cockpit.question or cockpit.prompting:
            return False
        rows = text_grid(app)
        return len(rows) == 30 and rows[0].startswith(" distmon ") and "quit" in rows[-1]

    async def until(self, app: DistmonApp, pilot: Pilot[int], what: str, found: object, key: str) -> None:
        """Presses a key until the app does what it must; a key that is too early may be pressed again."""
        assert callable(found)
        deadline = time.monotonic() + PATIENCE_S
        while not app._exit and not found():
            assert time.monotonic() < deadline, f"stuck: it never {what}; {'; '.join(self.last)}\n" + "\n".join(text_grid(app))
            send(app, key_event(key))
            for _ in range(20):
                await pilot.pause()
                if app._exit or found():
                    return


def shown(app: DistmonApp, words: str) -> bool:
    return any(words in row for row in text_grid(app))


def send(app: DistmonApp, *messages: events.Event) -> None:
    driver = app._driver
    assert driver is not None
    for message in messages:
        message.set_sender(app)
        driver.send_message(message)


def key_event(key: str) -> events.Key:
    try:
        character: str | None = unicodedata.lookup(_get_unicode_name_from_key(key))
    except KeyError:
        character = key if len(key) == 1 else None
    return events.Key(key, character)


def mouse(kind: type[events.MouseEvent], x: int, y: int, button: int) -> events.MouseEvent:
    return kind(None, x, y, 0, 0, button, False, False, False, x, y)


def resize(app: DistmonApp, width: int, height: int) -> None:
    driver = app._driver
    assert driver is not None
    driver._size = (width, height)
    send(app, events.Resize(Size(width, height), Size(width, height)))


@contextmanager
def cage(folder: Path) -> Iterator[None]:
    """Everything that the app may write goes to `folder`, and no host is asked anything."""
    with chdir(folder), patch.dict(os.environ, XDG_STATE_HOME=str(folder), XDG_CONFIG_HOME=str(folder)), patch(
        "distmon.tui.screens.launch.check_hosts", no_hosts
    ):
        yield


async def play(seed: int, replay: bool, actions: int) -> Monkey:
    with tempfile.TemporaryDirectory() as folder, cage(Path(folder)):
        monkey = Monkey(seed, replay, Path(folder))
        try:
            await monkey.play(actions)
        except Exception as error:
            error.add_note(f"seed {seed}, action {monkey.done.total()}: {'; '.join(monkey.last)}")
            raise
    return monkey


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="odd ones live, even ones in a recording")
    options = parser.parse_args()
    for seed in options.seeds:
        monkey = asyncio.run(play(seed, seed % 2 == 0, options.actions))
        what = ", ".join(f"{count:,} {kind}" for kind, count in monkey.done.most_common())
        where = "recording" if seed % 2 == 0 else "live"
        print(f"seed {seed}, {where}: {what}; {monkey.starts} starts; no error, never stuck")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
