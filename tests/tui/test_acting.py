"""Acting on the job from the screen: each action says what it does and asks, and a read-only view refuses all of them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.step_sums import summed
from distmon.core.synthetic import Script, session
from distmon.launcher.actions import AddHost, AnyAction, DrainHost, RestartJob, SignalRank, StopJob
from distmon.tui.screens.acting import FIXED_HOSTS, NO_JOB

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, Grid, OpenApp, Settle

RUNNING: list[AnyEvent] = [
    event
    for event in session(Script(ranks=2, nodes=1, seconds=20))
    if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
]
KEYS = {"stop": "K", "restart": "B", "signal": "I", "add host": "H", "drain host": "W"}
PROMPTED = {"signal": ("1", "enter", "1"), "add host": ("n", "2", ":", "2", "enter"), "drain host": ("n", "1", "enter")}
DONE: dict[str, AnyAction] = {
    "stop": StopJob(),
    "restart": RestartJob(),
    "signal": SignalRank(1, "SIGUSR1"),
    "add host": AddHost("n2:2"),
    "drain host": DrainHost("n1"),
}


async def test_the_node_that_is_looked_at_is_the_one_whose_steps_all_come(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    job = fake_job()
    sums = [summed(event) for event in RUNNING if isinstance(event, ev.StepsRecorded)]
    last = [event for event in sums if event is not None][-1:]
    told = [replace(event, first_steps=[event.first_steps[0] + event.counts[0]]) for event in last]
    async with open_app([*RUNNING, *told], job=job) as (app, pilot, _):
        await settle(pilot)
        assert "sums of 1 node " in text_grid(app)[0] and job.focused == ""
        app.cockpit.go("node", "n0")
        await settle(pilot)
        assert job.focused == "n0"


@pytest.mark.parametrize("name", KEYS)
async def test_an_action_is_asked_for_and_done_after_a_yes(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob], name: str
) -> None:
    job = fake_job(hosts={"n1": 1, "n0": 1})
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press(KEYS[name], *PROMPTED.get(name, ()))
        assert DONE[name].effect.split("\n")[0] in app.cockpit.question and not job.acted
        assert any(DONE[name].effect.split("\n")[1] in row for row in text_grid(app))
        await pilot.press("n")
        assert not job.acted
        await pilot.press(KEYS[name], *PROMPTED.get(name, ()), "y")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert job.acted == [DONE[name]]
        assert f"{name} is under way" in text_grid(app)[-1]


@pytest.mark.parametrize("name", ["add host", "drain host"])
async def test_whether_a_host_answers_is_said_in_the_question(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob], name: str
) -> None:
    """Nothing waits for it; and a question that was answered meanwhile stays so."""
    known = threading.Event()

    def answer(host: str) -> str:
        known.wait()
        return f"{host} is NOT reached: no route to host"

    job, keys = fake_job(hosts={"n1": 1, "n0": 1}, answers=answer), (KEYS[name], *PROMPTED[name])
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press(*keys, "n", *keys)
        host = "n2" if name == "add host" else "n1"
        assert any(f"Whether {host} answers is not known yet: it is asked." in row for row in text_grid(app))
        known.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert any(f"{host} is NOT reached: no route to host" in row for row in text_grid(app))
        await pilot.press("y")
        await app.workers.wait_for_complete()
        assert job.acted == [DONE[name]] and not app.cockpit.question


async def test_to_ask_whether_a_host_answers_ends_nothing_that_is_under_way(
    open_app: OpenApp, settle: Settle, fake_job: type[FakeJob]
) -> None:
    """A measurement that was cut off was waited for for ever."""
    async with open_app(RUNNING, job=fake_job(hosts={"n1": 1, "n0": 1})) as (app, pilot, _):
        await settle(pilot)
        measured = asyncio.Event()
        under_way = app.run_worker(measured.wait())
        await pilot.press(KEYS["add host"], *PROMPTED["add host"])
        await pilot.pause()
        measured.set()
        await app.workers.wait_for_complete()
        assert under_way.is_finished and not under_way.is_cancelled


@pytest.mark.parametrize("told_by", ["job", "recording"])
async def test_a_job_that_is_ending_is_killed_by_a_second_stop(
    open_app: OpenApp, settle: Settle, fake_job: type[FakeJob], told_by: str
) -> None:
    """A view that only follows the job's recording is told by it."""
    job = fake_job(stopping=told_by == "job")
    stopped = [ev.ActionTaken(at=RUNNING[-1].at, action="stop", detail="politely")] if told_by == "recording" else []
    async with open_app([*RUNNING, *stopped], job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("K")
        assert "Kill every rank at once" in app.cockpit.question
        await pilot.press("y")
        await app.workers.wait_for_complete()
        assert job.acted == [StopJob(firm=True)]


async def test_the_menu_of_signals_fits_into_a_small_screen(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    async with open_app(RUNNING, job=fake_job()) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("4", "down", "I")
        assert app.cockpit.prompt.value == "0"  # the selected rank
        assert any(" signal which rank (0 to 1)?  0 " in row for row in text_grid(app))
        await pilot.press("enter")
        shown = "\n".join(text_grid(app))
        for word in ("1 USR1", "t TERM", "k KILL", "c CONT", "Esc closes"):
            assert word in shown
        await pilot.press("k")
        assert "without a word" in app.cockpit.question
        assert not any("^C" in row for row in text_grid(app))


@pytest.mark.parametrize("name", KEYS)
async def test_ctrl_c_does_nothing_to_the_job_but_close_the_question(
    open_app: OpenApp, settle: Settle, fake_job: type[FakeJob], name: str
) -> None:
    job = fake_job(hosts={"n1": 1, "n0": 1})
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press(KEYS[name], *PROMPTED.get(name, ()), "ctrl+c")
        assert not app.cockpit.question and not job.acted and app.is_running


@pytest.mark.parametrize("name", KEYS)
async def test_a_read_only_view_refuses_every_action(
    open_app: OpenApp, text_grid: Grid, fake_job: type[FakeJob], name: str
) -> None:
    job = fake_job(hosts={"n1": 1})
    async with open_app(RUNNING, job=job, environment={"DISTMON_READ_ONLY": "1"}) as (app, pilot, _):
        await pilot.press(KEYS[name], "y", "1", "enter")
        assert not job.acted and not app.cockpit.question and not app.cockpit.prompting


async def test_a_read_only_view_writes_no_file(open_app: OpenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_app(RUNNING, environment={"DISTMON_READ_ONLY": "1"}) as (app, pilot, _):
        await pilot.press("e")
        assert "no file is written" in app.cockpit.note and not app.cockpit.question
        await pilot.press("s")
        assert not list(tmp_path.iterdir())


async def test_a_read_only_view_does_not_end_the_job_by_leaving(
    open_app: OpenApp, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    job = fake_job()
    async with open_app(RUNNING, job=job, environment={"DISTMON_READ_ONLY": "1"}) as (app, pilot, _):
        await pilot.press("q")
        assert "leaving would end the job" in text_grid(app)[-1] and not app.cockpit.question
        job.running = False
        await pilot.press("q")
        assert app.return_value == 0 and not job.stopped


async def test_a_barred_host_is_named_as_such_and_nothing_is_promised_of_it(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    """It has no rank that could leave, and gets none."""
    at, places = RUNNING[-1].at, [ev.RankPlace(rank=0, host="n0", local_rank=0)]
    elastic = [replace(event, min_np=1) if isinstance(event, ev.JobStarted) else event for event in RUNNING]
    told = [
        ev.MembershipChanged(at=at, change="host_blacklisted", host="n1"),
        ev.RanksAssigned(at=at, generation=1, world_size=1, places=places),
    ]
    job = fake_job(hosts={"n1": 1, "n0": 1})
    async with open_app([*elastic, *told], job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("W")
        assert any("drain which host (n1 (barred), n0)?" in row for row in text_grid(app))
        await pilot.press("n", "1", "enter")
        assert app.cockpit.question.startswith("Take n1 out of the job? It has no rank:\nthe ranks go on as they are.")
        await pilot.press("y")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert job.acted == [DrainHost("n1")]
        await pilot.press("H", *"n1:2", "enter")
        assert any("n1 is barred for the rest of the job" in row for row in text_grid(app)) and not app.cockpit.question


async def test_without_a_job_or_with_fixed_hosts_it_says_so(
    open_app: OpenApp, fake_job: type[FakeJob]
) -> None:
    async with open_app(RUNNING) as (app, pilot, _):
        await pilot.press("K")
        assert app.cockpit.note == NO_JOB
    async with open_app(RUNNING, job=fake_job()) as (app, pilot, _):
        await pilot.press("W")
        assert app.cockpit.note == FIXED_HOSTS


async def test_a_job_that_restarts_takes_the_screen_along(open_app: OpenApp, fake_job: type[FakeJob]) -> None:
    job = fake_job(restarting=True)
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        app.frame()
        assert app.return_value is None
        job.running = False
        app.frame()
        await pilot.pause()
        assert app.return_value == 0


async def test_a_job_that_was_stopped_has_not_failed_and_its_screen_forgets_what_it_was_about_to_do(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    job, at = fake_job(), RUNNING[-1].at
    async with open_app(RUNNING, job=job) as (app, pilot, source):
        await settle(pilot)
        await pilot.press("K", "y")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "stop is under way" in text_grid(app)[-1]
        source.waiting += [
            ev.ActionTaken(at=at, action="stop", detail="politely"),
            ev.WorkerExited(at=at, host="node-000", local_rank=1, rank=1, exit_code=143, signal="SIGTERM", expected=True),
            ev.JobEnded(at=at, exit_code=143, reason="stopped"),
        ]
        app.frame()
        await settle(pilot)
        shown = text_grid(app)
        assert "stop is under way" not in shown[-1]
        assert any("· an operator stopped the job; exit code 143" in row for row in shown)
        assert not any("✖" in row for row in shown) and "· stopped, exit 143" in shown[0]
        assert not app._notifications


async def test_a_rank_that_is_typed_takes_the_place_of_the_selected_one(
    open_app: OpenApp, settle: Settle, fake_job: type[FakeJob]
) -> None:
    """It was written behind it: 2 after a selected rank 1 was rank 12."""
    events = [
        event
        for event in session(Script(ranks=14, nodes=1, seconds=5))
        if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
    ]
    async with open_app(events, job=fake_job()) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("4", "down", "I")
        assert app.cockpit.prompt.value == "0"
        await pilot.press("escape", "down", "I")
        assert app.cockpit.prompt.value == "1"
        await pilot.press("2", "enter")
        assert app.cockpit.question.startswith("Send rank 2 on ")


@pytest.mark.parametrize(
    ("key", "wrong", "said", "right"),
    [
        ("I", "9", "there is no rank 9", "1"),
        ("I", "x", "there is no rank x", "1"),
        ("I", "", "which rank?", "1"),
        ("H", "n2:", "'n2:' is not of the form NAME:SLOTS", "n2:1"),
        ("H", "", "which host, as NAME:SLOTS?", "n2:1"),
        ("W", "n9", "no host n9", "n1"),
    ],
)
async def test_a_wrong_rank_or_host_is_told_and_asked_for_again(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob], key: str, wrong: str, said: str, right: str
) -> None:
    job = fake_job(hosts={"n1": 1, "n0": 1})
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press(key, *wrong, "enter")
        assert any(said in row for row in text_grid(app)) and not app.cockpit.question
        assert app.cockpit.prompting and app.cockpit.prompt.value == wrong
        await pilot.press(*["backspace"] * len(wrong), *right, "enter")
        assert app.cockpit.question and not app.cockpit.prompting and not job.acted


async def test_the_question_of_a_drain_says_what_becomes_of_the_job(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_job: type[FakeJob]
) -> None:
    """That the others go on was also promised where there are none, or too few; the job ended."""
    elastic = [replace(event, min_np=2) if isinstance(event, ev.JobStarted) else event for event in RUNNING]
    job = fake_job(hosts={"node-000": 1, "n0": 1})
    async with open_app(elastic, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("W", *"node-000", "enter")
        assert "It needs 2 slots, and 1 would be\nleft: all wait for another host" in app.cockpit.question
        await pilot.press("n")
        job.hosts = {"n0": 2}
        await pilot.press("W", "enter")
        assert any("n0 is the job's only host, and without it the job ends" in row for row in text_grid(app))
        assert not app.cockpit.question and not job.acted


async def test_a_host_that_is_there_gets_other_slots(open_app: OpenApp, settle: Settle, fake_job: type[FakeJob]) -> None:
    job = fake_job(hosts={"n0": 2})
    async with open_app(RUNNING, job=job) as (app, pilot, _):
        await settle(pilot)
        await pilot.press("H", *"n0:1", "enter")
        assert app.cockpit.question.startswith("Give n0:1 in place of 2 slots?")
        await pilot.press("y")
        await app.workers.wait_for_complete()
        assert job.acted == [AddHost("n0:1")]
