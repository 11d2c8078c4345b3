"""How long findings held: what a report tells of a job whose last moment says nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec import structs

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.held import MOST, FindingsHeld, Held
from distmon.core.state import SessionState
from distmon.core.synthetic_faults import Cause, Trial, second_by_second
from distmon.core.verdicts import verdicts
from distmon.replay.report import model
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.tui.cli.reported import Reported, _reservations


def followed(events: Iterable[ev.AnyEvent]) -> tuple[SessionState, FindingsHeld]:
    state, held = SessionState(), FindingsHeld()
    for event in events:
        apply(state, event)
        held.look(state)
    return state, held


def ended(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The agents leave, then the job ends."""
    at = events[-1].at
    nodes = [event.node for event in events if isinstance(event, ev.NodeJoined)]
    return [*events, *(ev.NodeLeft(at=at + 0.1, node=node) for node in nodes), ev.JobEnded(at=at + 0.2, exit_code=0)]


def full_cores(events: Iterable[ev.AnyEvent], begin: float, end: float) -> Iterator[ev.AnyEvent]:
    """The ranks have more to run than cores, between two times since the first event."""
    first: float | None = None
    for event in events:
        first = event.at if first is None else first
        if isinstance(event, ev.NodeSampled) and begin <= event.at - first < end:
            event = changed(event)
        yield event


def changed(sample: ev.NodeSampled) -> ev.NodeSampled:
    return ev.NodeSampled(
        at=sample.at, node=sample.node, interval_s=sample.interval_s, cpu_percent=100.0, load_1m=20.0,
        memory_used_bytes=sample.memory_used_bytes, memory_total_bytes=sample.memory_total_bytes,
        processes=[ev.ProcessReading(pid=1, rank=0, cpu_percent=790.0, memory_bytes=None)],
    )  # fmt: skip


def trial(cause: Cause = "healthy", steps: int = 600) -> list[ev.AnyEvent]:
    return [event for second in second_by_second(Trial(cause, ranks=2, steps=steps)) for event in second]


@pytest.fixture(scope="module")
def hogged() -> tuple[SessionState, FindingsHeld]:
    """A minute of training, with full cores in its first half minute."""
    return followed(ended(list(full_cores(trial(), 2.0, 32.0))))


def test_a_finding_that_is_gone_is_told_with_its_window_and_share(hogged: tuple[SessionState, FindingsHeld]) -> None:
    state, held = hogged
    assert not verdicts(state) or {v.kind for v in verdicts(state)} == {"compute_bound"}
    found = next(v for v in summarise(state, held=held).verdicts if v.kind == "cpu_oversubscribed")
    assert not found.at_end and found.gain_percent is None
    assert found.held_from_s == pytest.approx(1.0, abs=2.5) and found.held_to_s == pytest.approx(32.0, abs=2.5)
    assert found.held_percent == pytest.approx(50.0, abs=5.0) and found.held_s == pytest.approx(31.0, abs=2.5)


def test_every_form_of_the_report_tells_it_apart(hogged: tuple[SessionState, FindingsHeld]) -> None:
    state, held = hogged
    told = sections(summarise(state, held=held))
    for text in (to_text(told), to_markdown(told)):
        line = " ".join(text.split()).partition("cpu_oversubscribed")[2] or " ".join(text.split()).partition("oversubscribed")[2]
        assert line.startswith(": held 5") and ", not at the end: node-0 has more to run than cores" in line


def test_what_was_seen_at_one_look_held_no_zero_percent_of_the_time(hogged: tuple[SessionState, FindingsHeld]) -> None:
    report = summarise(hogged[0], held=hogged[1])
    for percent, said in ((0.0, "less than 0.1"), (0.04, "less than 0.1"), (0.12, "0.12")):
        report.verdicts = [structs.replace(found, held_percent=percent) for found in report.verdicts if found.held_s is not None]
        text = " ".join(to_text(sections(report)).split())
        assert f"held {said} % of the time, between" in text


def test_a_standstill_that_is_a_restart_is_not_told_as_time_of_its_own() -> None:
    """Half a minute of training, half a minute until the next generation trains, and half a minute again."""
    batches = list(steps_of_job(generation=0, begun=1_000.0)), list(steps_of_job(generation=1, begun=1_060.0))
    waits = [ev.NodeSampled(at=1_030.0 + second, node="n", interval_s=1.0) for second in range(30)]
    job = ev.JobStarted(at=999.0, job="j", command=["x"], np=1)
    state, held = followed([job, *batches[0], *waits, *batches[1], ev.JobEnded(at=1_090.5, exit_code=0)])
    found = {verdict.kind: verdict for verdict in summarise(state, held=held).verdicts}
    assert "restart took 30.0 s" in found["restart_dominated"].text
    assert found["stall"].evidence.endswith("restarts that restart_dominated tells of, and is not to be added to them")


def test_a_hang_between_two_restarts_is_no_part_of_them() -> None:
    """Restarts of half a minute, and a minute without a step within the generation between them."""
    told: list[ev.AnyEvent] = [ev.JobStarted(at=999.0, job="j", command=["x"], np=1)]
    spells = ((0, 1_000.0, 0, 30), (1, 1_060.0, 0, 60), (1, 1_150.0, 300, 30), (2, 1_210.0, 0, 0))
    for generation, begun, first_step, silent in spells:
        told += steps_of_job(generation, begun, first_step)
        told += [ev.NodeSampled(at=begun + 30.0 + second, node="n", interval_s=1.0) for second in range(silent)]
    state, held = followed([*told, ev.JobEnded(at=1_240.5, exit_code=0)])
    found = {verdict.kind: verdict for verdict in summarise(state, held=held).verdicts}
    assert "restart_dominated" in found
    assert "is part of the restarts" not in found["stall"].evidence


def steps_of_job(generation: int, begun: float, first_step: int = 0) -> Iterator[ev.AnyEvent]:
    """Of one rank, ten a second for half a minute."""
    for second in range(30):
        yield ev.StepsRecorded(
            at=begun + second + 1, node="n", worker=f"w{generation}", rank=0, generation=generation,
            first_step=first_step + 10 * second, origin=begun + second, start_ns=[10**8 * i for i in range(10)],
            duration_ns=[10**8] * 10, samples=[8] * 10,
        )  # fmt: skip


def test_what_holds_to_the_end_says_since_when() -> None:
    state, held = followed(ended(trial("memory", steps=400)))
    (found,) = [v for v in summarise(state, held=held).verdicts if v.kind == "memory_pressure"]
    assert found.at_end and found.held_percent == pytest.approx(50.0, abs=15.0)
    assert " and the end: node-0 runs out of memory" in " ".join(to_text(sections(summarise(state, held=held))).split())


def test_a_report_without_the_way_tells_of_the_end_alone(hogged: tuple[SessionState, FindingsHeld]) -> None:
    found = summarise(hogged[0]).verdicts
    assert "cpu_oversubscribed" not in {v.kind for v in found}
    assert all(v.at_end and (v.held_s, v.held_percent, v.held_from_s, v.held_to_s) == (None,) * 4 for v in found)


def test_a_finding_of_less_than_a_fifth_of_the_time_is_not_told() -> None:
    state, held = followed(ended(list(full_cores(trial(), 20.0, 25.0))))
    assert held.found and not held.lasting()
    assert "cpu_oversubscribed" not in {v.kind for v in summarise(state, held=held).verdicts}


def test_words_are_not_those_of_its_last_moment() -> None:
    """Shares fade before a finding goes."""
    held, state = FindingsHeld(), SessionState()
    for event in input_bound_for(100.0, 20.0):
        apply(state, event)
        held.look(state)
    (found,) = [h for h in held.found.values() if h.verdict.kind == "input_bound"]
    assert "40% of each step" in found.verdict.text and found.verdict.gain_percent is not None
    assert held.share(found) == pytest.approx(100 / 120, abs=0.05) and not held.to_the_end(found)


def input_bound_for(seconds: float, more: float) -> Iterator[ev.AnyEvent]:
    yield ev.JobStarted(at=0.0, job="j", command=["x"], np=1)
    for second in range(int(seconds + more)):
        wait = 4 * 10**7 if second < seconds else 10**6
        yield ev.StepsRecorded(
            at=second + 1.0, node="n", worker="w", rank=0, generation=0, first_step=10 * second, origin=float(second),
            start_ns=[k * 10**8 for k in range(10)], duration_ns=[10**8] * 10, input_wait_ns=[wait] * 10,
            compute_ns=[10**8 - 10**7 - wait] * 10, samples=[32] * 10,
        )  # fmt: skip
        yield ev.Ticked(at=second + 1.0)


def test_a_silence_of_the_recording_counts_for_no_finding() -> None:
    events = trial("memory", steps=300)
    late = ev.Ticked(at=events[-1].at + 10_000.0)
    _, held = followed([*events, late])
    assert held.seconds < 300


def test_findings_that_are_kept_are_bounded() -> None:
    state, held = followed(trial("memory", steps=260))
    (kept,) = held.found.values()
    held.found |= {("k", rank, "", None): Held(kept.verdict, 0.0, 1.0, 0.1) for rank in range(2 * MOST)}
    apply(state, ev.Ticked(at=state.now + 2.0))
    held.look(state)
    assert len(held.found) == MOST and kept in held.found.values()


def test_a_finding_that_comes_late_is_kept_among_many_that_held_longer() -> None:
    events = trial("memory", steps=300)
    state, held = SessionState(), FindingsHeld()
    for event in events:
        apply(state, event)
        held.look(state)
        if not held.found and state.job.status == "running":
            held.found |= {("k", rank, "", None): Held(None, 0.0, 1.0, 50.0) for rank in range(MOST)}  # type: ignore[arg-type]
    found = [one for key, one in held.found.items() if key[0] == "memory_pressure"]
    assert len(held.found) == MOST and found and found[0].seconds > 3


def test_readings_that_are_minutes_apart_are_no_silence() -> None:
    state, held = SessionState(), FindingsHeld()
    for at in range(0, 1_200, 60):
        apply(state, ev.NodeSampled(
            at=float(at), node="n", interval_s=60.0, memory_used_bytes=62 << 30, memory_total_bytes=64 << 30,
        ))  # fmt: skip
        held.look(state)
    (found,) = held.found.values()
    assert held.seconds == pytest.approx(1_140.0, abs=60.0) == found.seconds


def test_nothing_held_before_training_began() -> None:
    _, held = followed(full_cores(trial(steps=300), 0.0, 40.0))
    assert held.found and all(one.from_s >= 0 for one in held.found.values())


def test_a_report_has_reservations_about_runs_whose_cores_others_took(hogged: tuple[SessionState, FindingsHeld]) -> None:
    def reported(session: model.Session, name: str) -> Reported:
        return Reported(name, session, None, "", None, None)

    state, held = hogged
    told = _reservations([reported(summarise(state, held=held), "hogged"), reported(summarise(state), "calm")])
    assert "other programs took cores in hogged: the speedups show that too" in told
