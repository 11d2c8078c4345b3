"""The screens as grids of text and style. DISTMON_UPDATE_GOLDENS=1 writes them anew: read the difference before committing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, Grid, OpenApp, Settle

GOLDENS = Path(__file__).parent.parent / "data" / "goldens" / "tui"
SCRIPT = Script(ranks=4, nodes=2, seconds=75, slow_rank=1, delay_s=0.03, gpus_per_node=2, epochs=20)
WHOLE: list[AnyEvent] = list(session(SCRIPT))
RUNNING: list[AnyEvent] = [
    event for event in WHOLE if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
]
START = SCRIPT.start
FAILED: list[AnyEvent] = [
    *RUNNING,
    ev.OutputWritten(
        at=START + 77, rank=2, host="node-001", local_rank=0, output="stderr", lines=["MemoryError: batch 33"]
    ),
    ev.WorkerExited(at=START + 77, host="node-001", local_rank=0, rank=2, exit_code=137, signal="SIGKILL"),
    ev.JobEnded(
        at=START + 78,
        exit_code=137,
        reason="failed",
        failure=ev.Failure(
            rank=2, host="node-001", signal="SIGKILL", exit_code=137, last_lines=["MemoryError: batch 33"]
        ),
    ),
]
LAUNCHING: list[AnyEvent] = [
    ev.SessionStarted(at=START, session_id="s", distmon_version="0"),
    ev.JobStarted(at=START, job="j", command=["python", "train.py"], np=2),
    ev.LaunchProgressed(at=START + 1, stage="waiting_for_slots", detail="1 of 2 slots", deadline=START + 31),
    ev.Ticked(at=START + 5),
]
SCREENS: dict[str, tuple[list[AnyEvent], list[str]]] = {
    "running": (RUNNING, []),
    "failed": (FAILED, []),
    "launching": (LAUNCHING, []),
    "empty": ([], []),
    "help": (RUNNING, ["question_mark"]),
    "why": (RUNNING, ["v"]),
    "rank": (RUNNING, ["down", "down", "enter"]),
    "node": (RUNNING, ["3", "down", "enter"]),
}
PAGES = ("overview", "nodes", "node", "ranks", "scaling", "timeline", "events", "logs", "verdicts")
"""The screens beside the landing screen; each is drawn in every one of these states."""
STATES: dict[str, list[AnyEvent]] = {"live": RUNNING, "replay": RUNNING, "empty": [], "error": FAILED}
SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_screen(
    open_app: OpenApp, settle: Settle, text_grid: Grid, style_grid: Grid, name: str, size: tuple[int, int]
) -> None:
    events, keys = SCREENS[name]
    async with open_app(events, size=size) as (app, pilot, _):
        await pilot.press(*keys)
        await settle(pilot)
        check(f"{name}_{size[0]}x{size[1]}", text_grid(app), style_grid(app))


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", STATES)
async def test_every_page(
    open_app: OpenApp,
    settle: Settle,
    text_grid: Grid,
    style_grid: Grid,
    fake_player: type[FakePlayer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    state: str,
    size: tuple[int, int],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # the screen of scaling lists the recordings that are there
    player = fake_player(RUNNING) if state == "replay" else None
    wrong = []
    async with open_app(STATES[state], size=size, player=player) as (app, pilot, _):
        for page in PAGES:
            app.cockpit.go(page)
            await app.workers.wait_for_complete()
            await settle(pilot)
            try:
                check(f"{page}_{state}_{size[0]}x{size[1]}", text_grid(app), style_grid(app))
            except AssertionError as difference:
                wrong.append(f"{page}: {difference}")
    assert not wrong, "\n\n".join(wrong)


BESIDE = Script(ranks=4, nodes=2, seconds=90, slow_rank=1, delay_s=0.05, gpus_per_node=2, epochs=20, seed=3)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", STATES)
async def test_a_and_b(
    open_app: OpenApp,
    settle: Settle,
    text_grid: Grid,
    style_grid: Grid,
    fake_player: type[FakePlayer],
    tmp_path: Path,
    state: str,
    size: tuple[int, int],
) -> None:
    """This session beside a recording; `empty` has none beside it, `error` one that cannot be read."""
    path = tmp_path / "beside.jsonl"
    with Recorder(path) as recorder:
        for event in session(BESIDE):
            recorder.write(event)
    player = fake_player(RUNNING) if state == "replay" else None
    subject = {"empty": None, "error": Path("away.jsonl")}.get(state, path)
    async with open_app(STATES[state], size=size, player=player) as (app, pilot, _):
        app.cockpit.go("against", subject)
        for _ in range(3):  # read, then moved
            await app.workers.wait_for_complete()
            await settle(pilot)
        check(f"against_{state}_{size[0]}x{size[1]}", text_grid(app), style_grid(app))


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", STATES)
async def test_recordings(
    open_app: OpenApp,
    settle: Settle,
    text_grid: Grid,
    style_grid: Grid,
    fake_player: type[FakePlayer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    state: str,
    size: tuple[int, int],
) -> None:
    """The list of recordings; `empty` has none, `error` one that cannot be read beside the others."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "distmon" / "sessions"
    folder.mkdir(parents=True)
    for number, name in enumerate([] if state == "empty" else ["2026-01-05_train", "2026-01-06_train"]):
        with Recorder(folder / f"{name}.jsonl") as recorder:
            for event in session(BESIDE):
                recorder.write(event)
        os.utime(folder / f"{name}.jsonl", (START + 100 + number, START + 100 + number))
    if state == "error":
        (folder / "broken.jsonl").write_text("no session\n")
        os.utime(folder / "broken.jsonl", (START + 200, START + 200))
    player = fake_player(RUNNING) if state == "replay" else None
    async with open_app(STATES[state], size=size, player=player) as (app, pilot, _):
        app.cockpit.go("sessions")
        await app.workers.wait_for_complete()
        await settle(pilot)
        check(f"sessions_{state}_{size[0]}x{size[1]}", text_grid(app), style_grid(app))


@pytest.mark.usefixtures("utc")
async def test_recorded(open_app: OpenApp, text_grid: Grid, style_grid: Grid, fake_player: type[FakePlayer]) -> None:
    async with open_app(RUNNING, player=fake_player(RUNNING)) as (app, _, _):
        check("recorded_80x24", text_grid(app), style_grid(app))


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("ascii", {"DISTMON_ASCII": "1"}),
        ("light", {"DISTMON_THEME": "light"}),
        ("sixteen", {"TERM": "xterm", "COLORTERM": ""}),
        ("mono", {"TERM": "xterm-mono", "COLORTERM": ""}),
    ],
)
async def test_other_terminals(
    open_app: OpenApp, text_grid: Grid, style_grid: Grid, name: str, environment: dict[str, str]
) -> None:
    async with open_app(RUNNING, environment=environment) as (app, _, _):
        check(f"{name}_80x24", text_grid(app), style_grid(app))


def check(name: str, text: list[str], style: list[str]) -> None:
    """Compare with the golden of this name; text and style differ apart, so that the message is short."""
    path = GOLDENS / f"{name}.txt"
    now = "\n".join([*(f"|{row}|" for row in text), "", *style, ""])
    if os.environ.get("DISTMON_UPDATE_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now, encoding="utf-8")
    expected = path.read_text(encoding="utf-8").split("\n\n")
    assert "\n".join(f"|{row}|" for row in text) == expected[0]
    assert style == expected[1].rstrip("\n").split("\n")
