"""Plays a scripted job to the app, live and from a recording, and reads what its landing screen says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from distmon.core.fold import apply
from distmon.core.state import LogEntry, SessionState
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.glyphs import STATES
from distmon.tui.theme import PALETTES
from distmon.tui.view import header
from distmon.tui.view.facts import Facts, facts
from tests.answers.streams import HEALTHY, START, Fault, Stream
from tests.tui.conftest import _open_app, text_grid

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from distmon.tui.app import DistmonApp

SIZES = ((80, 24), (120, 40))
LIMIT_S = 10
QUIET_UNTIL_S = 5
"""Before the onset: what leads to a fault may be told a little earlier."""
_ALARMS = (STATES["warn"], STATES["bad"])


@dataclass
class Answer:
    """What the landing screen said of one fault. Times are seconds after the onset; None where it was not said."""

    fault: Fault
    seen_s: int | None = None
    words: str = ""
    missing: list[str] = field(default_factory=list)
    """Where else it should have been said, and was not."""
    early: list[str] = field(default_factory=list)
    """Alarms before the onset."""

    @property
    def right(self) -> bool:
        return self.seen_s is not None and self.seen_s <= LIMIT_S and not self.missing and not self.early


def headline(rows: list[str]) -> str:
    """The line in words: the one with a sign of state in front of it, under the header."""
    signs = tuple(f" {sign} " for sign in STATES.values())
    return next((row.strip() for row in rows[1:6] if row.startswith(signs)), "")


def says(fault: Fault, line: str) -> bool:
    """Whether the line names who and what."""
    return bool(re.search(fault.who, line) and re.search(fault.what, line))


async def watch(fault: Fault, recording: Path, seed: int = 0) -> Answer:
    """The whole of one fault: live second by second, then the recording at the moment at which it was seen."""
    answer = Answer(fault)
    with Recorder(recording) as recorder:
        async with _open_app(size=SIZES[0]) as (app, pilot, source):
            for second, events in enumerate(Stream(fault, seed).seconds(int(fault.onset_s) + LIMIT_S + 1), 1):
                for event in events:
                    recorder.write(event)
                source.waiting.extend(events)
                since = second - int(fault.onset_s)
                if since < 0 and (second < 20 or since % 5):
                    continue
                line = headline(await _frame(app, pilot))
                if since <= -QUIET_UNTIL_S and line.startswith(_ALARMS):
                    answer.early.append(f"{second} s: {line}")
                if since >= 0 and answer.seen_s is None and says(fault, line):
                    answer.seen_s, answer.words = since, line
                    await _check_sizes(answer, app, pilot, "live")
    if answer.seen_s is not None:
        await _check_replay(answer, recording)
    return answer


async def _frame(app: DistmonApp, pilot: Pilot[int]) -> list[str]:
    app.frame()
    await pilot.pause()
    return text_grid(app)


async def _check_sizes(answer: Answer, app: DistmonApp, pilot: Pilot[int], where: str) -> None:
    """The other sizes say it too."""
    for width, height in SIZES:
        await pilot.resize_terminal(width, height)
        if not says(answer.fault, headline(await _frame(app, pilot))):
            answer.missing.append(f"{where}, {width}x{height}")
    await pilot.resize_terminal(*SIZES[0])


async def _check_replay(answer: Answer, recording: Path) -> None:
    player = Player(open_session(recording), clock=lambda: 0.0)
    player.pause()
    assert answer.seen_s is not None
    try:
        async with _open_app(size=SIZES[0], player=player) as (app, pilot, _):
            before = answer.fault.onset_s - QUIET_UNTIL_S
            player.seek(before)
            line = headline(await _frame(app, pilot))
            if before > 10 and line.startswith(_ALARMS):
                answer.early.append(f"replay, {before:.0f} s: {line}")
            player.seek(answer.fault.onset_s + answer.seen_s + 0.01)
            await _check_sizes(answer, app, pilot, "replay")
    finally:
        player.close()


def healthy_alarms(seconds: int, seed: int = 0) -> Iterator[str]:
    """What the landing screen's line and the event log say of a healthy job that they should not, second by second.

    The line is drawn by the landing screen's own function, without the rest of the screen.
    """
    state, palette = SessionState(), next(iter(PALETTES.values()))
    before: Facts | None = None
    last: LogEntry | None = None
    for second, events in enumerate(Stream(HEALTHY, seed).seconds(seconds), 1):
        for event in events:
            apply(state, event)
        moment = before = facts(state, before)
        for width, _ in SIZES:
            line = "".join(text for text, _ in header.verdict(moment, palette, width)[0].pieces).strip()
            if line.startswith(_ALARMS):
                yield f"{second} s: {line}"
        for entry in reversed(state.log):
            if entry is last:
                break
            if entry.severity != "info":
                yield f"{entry.at - START:.0f} s, in the event log: {entry.text}"
        last = state.log[-1]
