"""`distmon replay`: a recording on the same screens as a live session."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from distmon.core.errors import DistmonError, UsageError
from distmon.core.fold import apply
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.replay.open_index import open_index
from distmon.replay.paths import label
from distmon.replay.player import FASTEST, SLOWEST, NotReadYet, Player
from distmon.replay.recorder import is_being_written
from distmon.replay.session_file import Notes, SessionFile, open_session
from distmon.tui import splash
from distmon.tui.cli.onward import Left, go_on, left
from distmon.tui.cli.sessions import SESSION_HELP, resolve
from distmon.tui.format import duration
from distmon.tui.moment import MOMENTS, is_end, moment_named, seconds_of
from distmon.tui.plain import PlainView, summary_lines
from distmon.tui.terminal import can_show_app, run_app

CLOCK_S = 1.0
"""The last event of a session and the first of the next may be stamped in another order."""
DEMO_FROM_S = 50.0
"""By then the demo's ranks have trained for a while, and what holds them back is found."""
T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help=SESSION_HELP)
    parser.add_argument("--demo", action="store_true", help="the session that comes with distmon, from 0:50 on")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help=f"{SLOWEST} to {FASTEST:.0f} (default 1)")
    parser.add_argument("--against", metavar="SESSION", help="begin with A/B: that recording beside this one")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from", dest="start", metavar="T", help="where to begin: seconds, [H:]M:S, or end")
    begin.add_argument("--at", metavar="MOMENT", help=f"where to begin, paused: {MOMENTS}")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.session is None) != arguments.demo:
        raise UsageError("replay needs one SESSION (a file, a recording's name, or last) or --demo")
    if not SLOWEST <= arguments.speed <= FASTEST:
        raise UsageError(f"--speed {arguments.speed:g}: it goes from {SLOWEST} to {FASTEST:.0f}")
    start = DEMO_FROM_S if arguments.demo else 0.0
    if arguments.start is not None:
        start = math.inf if is_end(arguments.start) else _flagged("--from", seconds_of, arguments.start)
    if arguments.at is not None:
        _flagged("--at", moment_named, arguments.at)
    path = resolve(arguments.session, demo=arguments.demo)
    if not can_show_app():
        return _in_lines(path, arguments)
    beside = resolve(arguments.against, demo=False) if arguments.against else None
    return go_on(_play(open_session(path), arguments.speed, start, arguments.at, beside))


def _in_lines(path: Path, arguments: argparse.Namespace) -> int:
    """Where there is no terminal to draw on: what happened, each line with its time in the session, and the summary."""
    if arguments.at is not None or arguments.against is not None:
        raise UsageError("--at and --against need a terminal to draw on; without one all that happened is printed")
    session, state, view, notes = open_session(path), SessionState(), PlainView(timed=False), Notes()
    for event in session.events(notes):
        apply(state, event)
        for line in view.lines(state):
            sys.stdout.write(f"{duration(state.now - session.header.at):>8}  {line}\n")
    for line in summary_lines(state, cut_off=not (state.complete or is_being_written(path))):
        sys.stdout.write(line + "\n")
    _warn(session, notes.sentences())
    return 0


def _warn(session: SessionFile, notes: Iterable[str]) -> None:
    for note in notes:
        sys.stderr.write(f"distmon: warning: {clean(str(session.path))}: {clean(note)}\n")


def opened(path: Path, beside: Path | None) -> Left:
    """Shows a recording, one under way as it goes on, with another one beside it if there is one, until the user leaves it."""
    return _play(open_session(path), 1.0, math.inf if is_being_written(path) else 0.0, None, beside)


def opening(beside: Path | None) -> tuple[str, Path] | None:
    """The screen to begin with where a recording is to stand beside the session. Raises DistmonError where it cannot."""
    if beside is None:
        return None
    open_session(beside)
    return "against", beside


def _play(session: SessionFile, speed: float, start: float, at: str | None, beside: Path | None) -> Left:
    from distmon.tui.app import DistmonApp

    first, progress = opening(beside), _progress_on(sys.stderr.write)
    player = Player(session, speed=speed, index=open_index(session, progress, at_once=True))
    known = player.notes
    if known:
        splash.take_down()
    _warn(session, known)
    try:
        if at is not None:
            player.pause()
            start = _found(player, moment_named(at), progress)
        if math.inf > start > player.duration_s:
            raise DistmonError(
                f"{session.path} lasts {duration(player.duration_s)}: give a time within that, or a date and time with --at"
            )
        while player.reach_s < min(start, player.duration_s):
            _read_on(player, progress)
        if start > 0:
            player.seek(start, exact=at is not None)
        follow = partial(_follow, session.path, player) if player.behind_s is not None else None
        app = DistmonApp(player, player, opening=first, follow=follow)
        code = run_app(app)
        if player.notes != known:
            _warn(session, player.notes)
        return left(app, code)
    finally:
        player.close()


def _found(player: Player, find: Callable[[Player], float], progress: Callable[[float], None]) -> float:
    """Reads a recording that has no index yet as far as the moment asks for."""
    while True:
        try:
            return find(player)
        except NotReadYet:
            _read_on(player, progress)


def _read_on(player: Player, progress: Callable[[float], None]) -> None:
    player.read_on()
    progress(player.reach_s / player.duration_s if player.unread else 1.0)


def _follow(path: Path, player: Player) -> Path | None:
    """Where the job that was followed goes on after a restart."""
    return None if player.behind_s is not None else restarted_in(path, player.started_at + player.duration_s)


def restarted_in(path: Path, ended: float) -> Path | None:
    """The recording of a job that was started again after it had been recorded in `path`, up to `ended`; None where none is."""
    for name in _next_names(label(path)):
        candidate = path.with_name(name + path.name.removeprefix(label(path)))
        with suppress(DistmonError):  # it is not there, or has no first line yet
            if open_session(candidate).header.at >= ended - CLOCK_S:
                return candidate
    return None


def _next_names(name: str) -> list[str]:
    """NAME-2 of NAME, and NAME-3 of NAME-2, as a restart numbers them."""
    numbered = re.fullmatch(r"(.+)-(\d+)", name)
    return [f"{name}-2", *([f"{numbered[1]}-{int(numbered[2]) + 1}"] if numbered else [])]


def _flagged(flag: str, read: Callable[[str], T], text: str) -> T:
    """What a flag's text means. Raises UsageError that names the flag."""
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{flag} {error}") from None


def _progress_on(write: Callable[[str], object]) -> Callable[[float], None]:
    """Shows the share done on the terminal's one line; called only by work that takes long enough to be seen."""

    def show(share: float) -> None:
        write(f"\rreading the recording for the first time: {share:4.0%} " + ("\n" if share >= 1 else ""))

    return show
