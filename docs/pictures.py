"""Makes the pictures of the documentation: `make pictures`.

The README's is of the demo session, and the timeline's of an elastic job of one machine, recorded for it. The others are of
made-up jobs, large enough to have something on every screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgspec
from textual.pilot import Pilot

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, host_name, session
from distmon.launcher.check import CheckResult
from distmon.launcher.form import Form
from distmon.launcher.plan import Plan
from distmon.launcher.reports import HostFacts, HostReport
from distmon.launcher.sweep import Sweep, runs
from distmon.replay.paths import demo_session, sessions_folder
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import load_state, open_session
from distmon.tui.app import DistmonApp
from distmon.tui.rewind import Rewind
from distmon.tui.screens.launch import Launch
from distmon.tui.sweeps import PLAN, recording_of

DOCS = Path(__file__).parent
AT_S, ELASTIC_AT_S = 104.0, 205.0
"""Moments of the demo and of the elastic job at which there is something to see."""
ELASTIC = DOCS / "tour" / "elastic.jsonl.zst"
"""A job that lost a rank and got it back."""
SIZE = (120, 36)
ENVIRONMENT = {"COLORTERM": "truecolor", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
SCRIPT = Script(ranks=64, nodes=16, seconds=120, slow_rank=21, delay_s=0.03, gpus_per_node=4, epochs=40)
TOUR: dict[str, tuple[str, ...]] = {
    "overview": (),
    "nodes": ("right", "down", "right"),
    "node": (),
    "ranks": ("g",),
    "events": ("up", "up"),
    "logs": (),
    "verdicts": ("down",),
}
"""Screen -> keys pressed on it."""


class Nothing:
    """A source that has nothing more."""

    def poll(self) -> Iterator[AnyEvent]:
        return iter(())


def large_job() -> SessionState:
    """A job of 64 ranks, one of them slow, in which something was said and lost."""
    state = SessionState()
    running = (e for e in session(SCRIPT) if not isinstance(e, ev.WorkerExited | ev.JobEnded | ev.SessionEnded))
    for event in running:
        apply(state, event)
    now = state.now
    for rank in range(SCRIPT.ranks):
        host = host_name(rank // 4)
        lines = ["UserWarning: the loader asks for 12 workers, the node has 8 cores"]
        apply(state, ev.OutputWritten(at=now, rank=rank, host=host, local_rank=rank % 4, output="stderr", lines=lines))
    apply(state, ev.NoticeGiven(at=now, severity="warning", text="the disk of node-005 is 91 % full", source="agent"))
    apply(state, ev.Ticked(at=now + 1))
    return state


async def picture(app: DistmonApp, path: Path, screen: str, keys: tuple[str, ...] = (), subject: str | None = None) -> None:
    """One screen as an SVG, after some keys."""
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.6)
        if screen != "overview":
            app.cockpit.go(screen, subject)
            await pilot.pause(0.4)
        for key in keys:
            await pilot.press(key)
        await pilot.pause(0.4)
        path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")


async def replayed(path: Path, recording: Path, at_s: float, screen: str, keys: tuple[str, ...] = ()) -> None:
    """One screen of a recording, at a moment of it."""
    player = Player(open_session(recording), beside=False)
    player.seek(at_s)
    player.pause()
    await picture(DistmonApp(player, player, environment=ENVIRONMENT), path, screen, keys)
    player.close()


async def tour(folder: Path) -> None:
    """A picture of each screen."""
    folder.mkdir(exist_ok=True)
    for screen, keys in TOUR.items():
        app = DistmonApp(Nothing(), state=large_job(), environment=ENVIRONMENT)
        await picture(app, folder / f"{screen}.svg", screen, keys, "n5" if screen == "node" else None)


class AskedHosts:
    """Hosts of a made-up cluster that all answer, in place of a check that would ask them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def run(self, waiting: Callable[[list[str]], None]) -> CheckResult:
        versions = {"horovod": "0.28.1", "torch": "2.13.0"}
        facts = HostFacts(python="3.11.2", packages=versions, gpus=2, agent="/usr/bin/distmon-agent")
        names = [host.name for host in self._plan.members]
        reports = [HostReport(host=name, ssh_target=name, facts=facts, clock_offset_s=0.002) for name in names]
        return CheckResult(reports=reports, findings=[], interfaces=["eth0"])

    def cancel(self) -> None:
        """There is nothing to end."""


async def launch(path: Path) -> None:
    """The launch form, filled in."""
    form = Form(command="python train.py --epochs 30", np="4", min_np="2", max_np="8", hosts="node-a:2,node-b:2")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("train.py").touch()
        with patch("distmon.tui.screens.launch.check_hosts", lambda plan, agent: AskedHosts(plan)):
            app = DistmonApp(Nothing(), environment=ENVIRONMENT, opening=("launch", form))
            async with app.run_test(size=SIZE) as pilot:
                while not (isinstance(app.cockpit.page, Launch) and app.cockpit.page.planned.checked):
                    await pilot.pause(0.1)
                await pilot.pause(0.4)
                path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")


@contextlib.contextmanager
def kept(*recordings: Path) -> Iterator[None]:
    """Copies of recordings as those that there are, as if each had been written when it was recorded."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, XDG_STATE_HOME=folder):
        sessions_folder().mkdir(parents=True)
        for recording in recordings:
            copy = Path(shutil.copy(recording, sessions_folder()))
            ended = load_state(copy)[0].now
            os.utime(copy, (ended, ended))
        yield


SIZES = (1, 2, 4, 8, 16, 32)


def sweep_run(ranks: int) -> Script:
    """A run of a made-up sweep, whose steps grow with the ranks as those of a job that scales less and less do."""
    step_s = 0.1 * (1 + 0.02 * (ranks - 1) + 0.0006 * ranks * (ranks - 1))
    return Script(ranks=ranks, nodes=-(-ranks // 4), seconds=30, step_s=step_s, seed=ranks)


async def scaling(path: Path) -> None:
    """A sweep whose recordings were all read; the session on the screen is one with 24 ranks."""
    sweep = Sweep(sizes=list(SIZES), repeats=1, flags=[], command=["python", "train.py"], cwd=".")
    state = SessionState()
    for event in session(sweep_run(24)):
        if event.at < Script().start + 25:
            apply(state, event)
    with kept(), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("sweep").mkdir()
        Path("sweep", PLAN).write_bytes(msgspec.json.encode(sweep))
        for run in runs(sweep):
            with Recorder(recording_of(Path("sweep"), run)) as recorder:
                for event in session(sweep_run(run.ranks)):
                    recorder.write(event)
        app = DistmonApp(Nothing(), state=state, environment=ENVIRONMENT)
        async with app.run_test(size=SIZE) as pilot:
            app.cockpit.go("scaling", None)
            await _worked(app, pilot)
            await pilot.press("g")
            for _ in SIZES:
                await pilot.press("down", "enter")
                await _worked(app, pilot)
            path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")


async def recordings(path: Path) -> None:
    """The list of recordings, with the report of the one that was chosen."""
    with kept(ELASTIC, demo_session()):
        app = DistmonApp(Nothing(), environment=ENVIRONMENT, opening=("sessions", None))
        async with app.run_test(size=SIZE) as pilot:
            await _worked(app, pilot)
            await pilot.press("down", "r")
            await _worked(app, pilot)
            path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")


async def _worked(app: DistmonApp, pilot: Pilot[None]) -> None:
    """What threads were asked for is on the screen."""
    await pilot.pause(0.2)
    await app.workers.wait_for_complete()
    await pilot.pause(0.4)


BESIDE = Script(ranks=8, nodes=2, seconds=120, gpus_per_node=4, epochs=40)


async def a_and_b(path: Path) -> None:
    """A session beside a recording of one with a slow rank."""
    state = SessionState()
    for event in session(BESIDE):
        if event.at <= BESIDE.start + 80:
            apply(state, event)
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "before-tuning.jsonl"
        with Recorder(other) as recorder:
            for event in session(replace(BESIDE, seconds=140, slow_rank=5, delay_s=0.014, seed=3)):
                recorder.write(event)
        app = DistmonApp(Nothing(), state=state, environment=ENVIRONMENT, opening=("against", other))
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(0.4)
            for _ in range(3):  # read, then moved
                await app.workers.wait_for_complete()
                await pilot.pause(0.2)
            path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")


async def rewound(path: Path) -> None:
    """A live session that stands still at a moment of a while ago."""
    with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "live.jsonl") as recorder:
        state = SessionState()
        for event in session(replace(BESIDE, slow_rank=5, delay_s=0.03)):
            if event.at <= BESIDE.start + 110:
                recorder.write(event)
                apply(state, event)
        recorder.flush()
        rewind = Rewind(Nothing(), state, recorder)
        app = DistmonApp(rewind, rewind, state=state, environment=ENVIRONMENT)
        async with app.run_test(size=SIZE) as pilot:
            rewind.seek(68.0)
            while rewind.busy or app.state is state:
                await pilot.pause(0.1)
            await pilot.pause(0.8)
            path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")
        rewind.close()


if __name__ == "__main__":
    asyncio.run(replayed(DOCS / "overview.svg", demo_session(), AT_S, "overview"))
    asyncio.run(tour(DOCS / "tour"))
    asyncio.run(replayed(DOCS / "tour" / "timeline.svg", ELASTIC, ELASTIC_AT_S, "timeline"))
    asyncio.run(scaling(DOCS / "tour" / "scaling.svg"))
    asyncio.run(recordings(DOCS / "tour" / "sessions.svg"))
    asyncio.run(launch(DOCS / "tour" / "launch.svg"))
    asyncio.run(a_and_b(DOCS / "tour" / "against.svg"))
    asyncio.run(rewound(DOCS / "tour" / "rewound.svg"))
