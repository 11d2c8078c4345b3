"""What changes of membership cost, from scripted events: every rank-second is in one part, and the parts are the right ones."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.core import elastic
from distmon.core import events as ev
from distmon.core.books import books
from distmon.core.elastic_lanes import lanes
from distmon.core.fold import apply
from distmon.core.measures import rank_rows
from distmon.core.state import SessionState
from distmon.core.verdicts import verdicts
from distmon.core.wall import wall_split

STEP_S = 0.5
SAMPLES = 10


class Story:
    """Events of an elastic job, as its launcher and its probes tell them."""

    def __init__(self, np: int, max_np: int | None = None) -> None:
        started = ev.JobStarted(at=0.0, job="j", command=["x"], np=np, min_np=1, max_np=max_np, elastic=True)
        self.events: list[ev.AnyEvent] = [started]

    def host(self, at: float, change: ev.ElasticKind, host: str, slots: int | None = 1, until: float | None = None) -> None:
        self.events.append(ev.MembershipChanged(at=at, change=change, host=host, slots=slots, until=until))

    def round(self, at: float, generation: int, *hosts: str) -> None:
        places = [ev.RankPlace(rank=rank, host=host, local_rank=0) for rank, host in enumerate(hosts)]
        self.events.append(ev.RanksAssigned(at=at, generation=generation, world_size=len(hosts), places=places))

    def starts(self, at: float, host: str, rank: int, generation: int = 0) -> None:
        self.events.append(ev.WorkerStarted(at=at, host=host, local_rank=0, rank=rank, generation=generation, pid=1))

    def exits(
        self, at: float, host: str, rank: int, code: int = 0, *, signal: str = "", cause: str = "", removed: bool = False
    ) -> None:
        self.events.append(
            ev.WorkerExited(
                at=at,
                host=host,
                local_rank=0,
                rank=rank,
                exit_code=code,
                signal=signal,
                cause=cause,
                expected=removed,
                removed=removed,
            )
        )

    def meets(self, at: float, host: str, rank: int, generation: int, size: int) -> None:
        self.events.append(
            ev.WorkerIdentified(
                at=at, worker=host, node=host, host=host, pid=1, rank=rank, size=size, local_rank=0, generation=generation
            )
        )

    def span(self, host: str, rank: int, kind: str, begun: float, ended: float) -> None:
        self.events.append(
            ev.SpanRecorded(at=ended, node=host, worker=host, rank=rank, span=kind, started=begun, duration_s=ended - begun)
        )

    def steps(self, host: str, rank: int, generation: int, begun: float, count: int) -> None:
        starts = [round(i * STEP_S * 1e9) for i in range(count)]
        self.events.append(
            ev.StepsRecorded(
                at=begun + count * STEP_S,
                node=host,
                worker=host,
                rank=rank,
                generation=generation,
                first_step=0,
                origin=begun,
                start_ns=starts,
                duration_ns=[round(STEP_S * 1e9)] * count,
                samples=[SAMPLES] * count,
            )
        )

    def interrupted(self, at: float, host: str, rank: int, generation: int, *, failure: bool) -> None:
        self.events.append(
            ev.TrainingInterrupted(
                at=at, node=host, worker=host, rank=rank, generation=generation, cause="failure" if failure else "hosts_changed"
            )
        )

    def restored(
        self, at: float, host: str, rank: int, generation: int, steps: int, *, of: int | None = None, committed: float = 0.0
    ) -> None:
        self.events.append(
            ev.StateRestored(
                at=at,
                node=host,
                worker=host,
                rank=rank,
                generation=generation,
                committed_generation=generation if of is None else of,
                committed_steps=steps,
                committed_at=committed or None,
            )
        )

    def folded(self) -> SessionState:
        state = SessionState()
        for event in self.events:
            apply(state, event)
        return state


def begun(*hosts: str, max_np: int | None = None) -> Story:
    """All hosts begin their training at 10 s."""
    story = Story(len(hosts), max_np)
    for host in hosts:
        story.host(1.0, "host_joined", host)
    story.round(2.0, 0, *hosts)
    for rank, host in enumerate(hosts):
        story.starts(2.0, host, rank)
        story.meets(8.0, host, rank, 0, len(hosts))
        story.span(host, rank, "initialisation", 2.0, 7.0)
        story.span(host, rank, "rendezvous", 7.0, 8.0)
        story.span(host, rank, "initialisation", 8.0, 9.0)
        story.span(host, rank, "sync", 9.0, 10.0)
    return story


def resumes(story: Story, host: str, rank: int, generation: int, times: tuple[float, float, float, float], steps: int) -> None:
    """Teardown from, rendezvous from and to, then sync up to the first step."""
    teardown, meeting, met, first = times
    story.span(host, rank, "teardown", teardown, meeting)
    story.span(host, rank, "rendezvous", meeting, met)
    story.span(host, rank, "sync", met, first)
    story.steps(host, rank, generation, first, steps)


def a_death() -> Story:
    """Rank 1 dies at 16.2 s after 12 steps; the last commit was after the tenth; rank 0 goes on alone from 20 s to 30 s."""
    story = begun("a", "b")
    for rank, host in enumerate("ab"):
        story.steps(host, rank, 0, 10.0, 12)
    story.exits(16.2, "b", 1, 137, signal="SIGKILL")
    story.interrupted(17.0, "a", 0, 0, failure=True)
    story.restored(17.1, "a", 0, 0, steps=10)
    story.host(17.2, "host_blacklisted", "b", None)
    story.round(17.5, 1, "a")
    resumes(story, "a", 0, 1, (17.2, 18.0, 19.0, 20.0), 20)
    story.exits(31.0, "a", 0)
    story.events.append(ev.JobEnded(at=32.0, exit_code=0))
    return story


def parts(state: SessionState) -> dict[str, float]:
    books = elastic.accounts(state)
    assert books is not None
    return books.lost.parts()


def test_a_death_is_divided_to_the_part() -> None:
    state = a_death().folded()
    found = parts(state)
    assert found["detection"] == pytest.approx(0.8), "from 16.2 s to 17.0 s, of the survivor"
    assert found["teardown"] == pytest.approx(1.0), "from 17.0 s to 18.0 s"
    assert found["rendezvous"] == pytest.approx(1.0) and found["sync"] == pytest.approx(1.0)
    assert found["redone"] == pytest.approx(2 * 2 * STEP_S + 2 * 0.2), "two steps of two ranks, and the one that was cut short"
    assert found["initialisation"] == pytest.approx(0.0)
    assert found["below_capacity"] == pytest.approx(30.0 - 16.2)
    books = elastic.accounts(state)
    assert books is not None
    assert (books.started, books.ended, books.ranks) == (10.0, 30.0, 2)
    assert books.training_s == pytest.approx(2 * 10 * STEP_S + 20 * STEP_S)
    assert books.unexplained_s == pytest.approx(0.0, abs=1e-6)
    assert (books.redone_steps, books.redone_samples, books.useful_samples) == (2, 4 * SAMPLES, (2 * 10 + 20) * SAMPLES)


def test_the_wall_time_has_what_was_redone_too() -> None:
    """On the line of rank 0: two of its steps were undone, and four seconds passed without one."""
    found = wall_split(a_death().folded())
    assert found is not None
    assert (found.redone, found.steady, found.restart) == pytest.approx((2 * STEP_S, 30 * STEP_S, 4.0))
    known = [value for value in found.parts().values() if value is not None]
    assert sum(known) == pytest.approx(32.0)


def test_the_rank_seconds_have_what_was_redone_too() -> None:
    """Two steps of each of two ranks were undone; the other parts of the steps are less by as much, and the books close."""
    found, steps = books(a_death().folded()), 2 * 10 + 20
    assert found is not None and found.parts["redone"] == pytest.approx(4 * STEP_S)
    assert found.parts["rest"] == pytest.approx(steps * STEP_S)
    assert math.fsum(found.parts.values()) == pytest.approx(found.total)


def test_goodput_is_what_counted_of_what_the_slots_that_were_there_could_do() -> None:
    """Two slots for 7.2 s and one for 12.8 s, at 20 samples/s each; 40 steps of 10 samples counted."""
    books = elastic.accounts(a_death().folded())
    assert books is not None
    assert books.goodput == pytest.approx(400 / ((2 * 7.2 + 12.8) * SAMPLES / STEP_S))


def fell_silent(recorded: int, committed: int) -> Story:
    """Host b is cut off in the thirteenth step; of its twelve whole steps only some were recorded before."""
    story = begun("a", "b")
    story.steps("a", 0, 0, 10.0, 12)
    story.steps("b", 1, 0, 10.0, recorded)
    story.interrupted(46.0, "a", 0, 0, failure=True)
    story.restored(46.0, "a", 0, 0, steps=committed, committed=10.0 + committed * STEP_S)
    story.round(46.5, 1, "a")
    resumes(story, "a", 0, 1, (46.0, 47.0, 48.0, 49.0), 2)
    story.exits(30.0, "b", 1, 255, cause="b did not answer for 14 s")
    return story


def test_a_host_that_fell_silent_is_noticed_from_the_last_step_on() -> None:
    """Nobody saw it: all ranks stopped with the step that needed it."""
    found = parts(fell_silent(12, 12).folded())
    assert found["detection"] == pytest.approx(30.0), "of the survivor"
    assert found["below_capacity"] == pytest.approx(50.0 - 16.0), "the slot has been empty since"
    assert found["redone"] == 0.0


@pytest.mark.parametrize("committed", [12, 11, 9, 5])
@pytest.mark.parametrize("recorded", [11, 10, 4])
def test_the_last_records_of_a_host_are_lost_with_it_and_its_time_is_not(recorded: int, committed: int) -> None:
    """The steps that the others ended needed it: until the last of them it trained, whatever is known of it."""
    known, told = (elastic.accounts(fell_silent(steps, committed).folded()) for steps in (12, recorded))
    assert known is not None and told is not None
    assert told.lost.parts() == pytest.approx(known.lost.parts())
    assert told.training_s == pytest.approx(known.training_s)
    assert told.redone_steps == 12 - committed
    assert told.unexplained_s == pytest.approx(0.0, abs=1e-6)


def test_a_host_that_joins_waits_for_notice_and_for_the_round() -> None:
    story = begun("a", max_np=2)
    story.steps("a", 0, 0, 10.0, 20)
    story.host(17.0, "host_joined", "b")
    story.interrupted(20.1, "a", 0, 0, failure=False)
    story.round(20.5, 1, "a", "b")
    story.starts(21.0, "b", 1, 1)
    story.meets(27.0, "b", 1, 1, 2)
    story.span("b", 1, "initialisation", 21.0, 26.0)
    story.span("b", 1, "rendezvous", 26.0, 27.0)
    story.span("b", 1, "sync", 27.0, 28.0)
    resumes(story, "a", 0, 1, (20.1, 20.4, 27.0, 28.0), 4)
    story.steps("b", 1, 1, 28.0, 4)
    story.exits(31.0, "a", 0)
    story.exits(31.0, "b", 1)
    story.events.append(ev.JobEnded(at=32.0, exit_code=0))
    state = story.folded()
    found = parts(state)
    assert found["detection"] == pytest.approx(3.1)
    assert found["rendezvous"] == pytest.approx((27.0 - 20.4) + (21.0 - 20.1) + 1.0)
    assert found["initialisation"] == pytest.approx(5.0)
    assert found["sync"] == pytest.approx(2.0)
    assert found["teardown"] == pytest.approx(0.3)
    assert found["below_capacity"] == pytest.approx(7.0), "one slot of two from 10 s to 17 s"
    books = elastic.accounts(state)
    assert books is not None and books.unexplained_s == pytest.approx(0.0, abs=1e-6)
    (first, second) = elastic.generation_spans(state)
    assert (first.world_size, second.world_size, second.cause) == (1, 2, "b joined")
    assert second.rendezvous_s == pytest.approx(6.6) and second.first_step == 28.0
    assert second.assigned == 20.5 and second.ended == 32.0
    for whole, span in ((second.assigned - (first.assigned or 0.0), first), (second.ended - second.assigned, second)):
        assert sum(part or 0.0 for part in (span.forming_s, span.trained_s, span.after_s)) == pytest.approx(whole)


def test_a_generation_that_never_trained_formed_until_the_next() -> None:
    story = begun("a", "b")
    for rank, host in enumerate("ab"):
        story.steps(host, rank, 0, 10.0, 12)
    story.round(20.0, 1, "a")
    story.round(25.0, 2, "a")
    _, second, third = elastic.generation_spans(story.folded())
    assert (second.forming_s, second.trained_s, second.after_s) == (5.0, None, None)
    assert (third.forming_s, third.after_s) == (None, None)


def test_a_worker_whose_slot_was_taken_away_only_has_its_end() -> None:
    story = begun("a", "b")
    for rank, host in enumerate("ab"):
        story.steps(host, rank, 0, 10.0, 12)
        story.interrupted(16.0, host, rank, 0, failure=False)
        story.span(host, rank, "teardown", 16.0, 16.5)
    story.host(15.5, "host_left", "b", 0)
    story.round(17.0, 1, "a")
    story.span("a", 0, "rendezvous", 16.5, 17.5)
    story.exits(17.4, "b", 1, 134, removed=True)
    story.steps("a", 0, 1, 17.5, 5)
    state = story.folded()
    assert parts(state)["teardown"] == pytest.approx(0.5 + 1.4)
    removed = next(lane for lane in lanes(state) if lane.host == "b")
    assert (removed.end, removed.failed) == ("removed", False)


def test_a_state_that_goes_back_twice_counts_each_step_once() -> None:
    """No commit in the second generation: its failure undoes it whole, and again what the first failure had undone."""
    story = begun("a", "b")
    for rank, host in enumerate("ab"):
        story.steps(host, rank, 0, 10.0, 12)
    story.restored(16.0, "a", 0, 0, steps=10)
    story.restored(16.0, "b", 1, 0, steps=3)
    story.steps("a", 0, 1, 20.0, 6)
    story.restored(24.0, "a", 0, 1, steps=10, of=0)
    thrown = elastic.undone(story.folded())
    assert {number: part.steps for number, part in thrown.items()} == {0: 2, 1: 6}
    assert thrown[0].rank_seconds == pytest.approx(4 * STEP_S) and thrown[1].samples == 6 * SAMPLES


def test_a_job_that_is_not_elastic_has_no_books() -> None:
    assert elastic.accounts(SessionState()) is None
    story = Story(1)
    story.events = [ev.JobStarted(at=0.0, job="j", command=["x"], np=1)]
    story.round(1.0, 0, "a")
    story.steps("a", 0, 0, 2.0, 5)
    state = story.folded()
    assert elastic.accounts(state) is None and state.membership == []


def test_what_is_told_twice_counts_once() -> None:
    story = a_death()
    again = [event for event in story.events if not isinstance(event, ev.JobStarted | ev.RanksAssigned | ev.WorkerStarted)]
    probes = ev.SpanRecorded | ev.StepsRecorded | ev.TrainingInterrupted | ev.StateRestored | ev.WorkerIdentified
    once, twice = story.folded(), story.folded()
    for event in again:
        if isinstance(event, probes):
            apply(twice, event)
    assert parts(once) == parts(twice)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_books_close_whatever_happens(seed: int) -> None:
    """Any number of deaths, returns and removals: each rank-second is in one part, and none is negative."""
    story = _random_story(random.Random(seed))
    state = story.folded()
    books = elastic.accounts(state)
    assert books is not None
    found = books.lost.parts()
    assert all(value >= 0 for value in found.values()), found
    total = books.training_s + sum(found.values()) + books.unexplained_s
    assert total == pytest.approx(books.capacity_s)
    assert abs(books.unexplained_s) < 0.005 * books.capacity_s, books
    for lane in lanes(state):
        for before, after in zip(lane.segments, lane.segments[1:], strict=False):
            assert after.started == pytest.approx(before.ended)


def _random_story(chance: random.Random) -> Story:
    """One worker stays all the time; another one comes, dies or is removed, in turns."""
    story, at, generation = begun("a"), 10.0, 0
    for turn in range(chance.randint(1, 5)):
        steps = chance.randint(1, 30)
        story.steps("a", 0, generation, at, steps)
        at += steps * STEP_S
        name = f"b{turn}"
        joined = at - chance.uniform(0.0, 0.4)
        story.host(joined, "host_joined", name)
        story.interrupted(at, "a", 0, generation, failure=False)
        generation += 1
        story.round(at + 0.1, generation, "a", name)
        met = at + chance.uniform(1.0, 9.0)
        begin = at + chance.uniform(0.1, 0.9)
        story.starts(begin, name, 1, generation)
        story.meets(met, name, 1, generation, 2)
        story.span(name, 1, "initialisation", begin, met - 0.05)
        story.span(name, 1, "rendezvous", met - 0.05, met)
        story.span(name, 1, "sync", met, met + 0.3)
        resumes(story, "a", 0, generation, (at, at + 0.05, met, met + 0.3), steps)
        story.steps(name, 1, generation, met + 0.3, steps)
        at = met + 0.3 + steps * STEP_S
        at = _leaves(story, chance, name, generation, steps, at)
        generation += 1
    story.steps("a", 0, generation, at, 3)
    story.exits(at + 4, "a", 0)
    story.events.append(ev.JobEnded(at=at + 5, exit_code=0))
    return story


def _leaves(story: Story, chance: random.Random, name: str, generation: int, steps: int, at: float) -> float:
    """The newcomer dies, or its slot is taken away; gives the first step of the generation without it."""
    failure = chance.random() < 0.5
    noticed = at + (chance.uniform(0.1, 3.0) if failure else 0.0)
    if failure:
        story.exits(at + chance.uniform(0.0, noticed - at), name, 1, 137, signal="SIGKILL")
        story.restored(noticed, "a", 0, generation, steps=chance.randint(0, steps))
    else:
        story.interrupted(noticed, name, 1, generation, failure=False)
        story.span(name, 1, "teardown", noticed, noticed + 0.1)
        story.exits(noticed + 0.5, name, 1, 134, removed=True)
    story.host(noticed, "host_left", name, 0)
    story.interrupted(noticed, "a", 0, generation, failure=failure)
    story.round(noticed + 0.2, generation + 1, "a")
    story.span("a", 0, "teardown", noticed, noticed + 0.1)
    story.span("a", 0, "rendezvous", noticed + 0.1, noticed + 0.6)
    return noticed + 0.7


def test_a_worker_whose_probe_never_spoke_is_in_no_part_that_it_was_not_seen_in() -> None:
    story = begun("a", "b")
    mute = [event for event in story.events if getattr(event, "worker", "") != "b"]
    story.events = mute
    story.steps("a", 0, 0, 10.0, 20)
    story.exits(21.0, "a", 0)
    story.exits(21.0, "b", 1)
    story.events.append(ev.JobEnded(at=22.0, exit_code=0))
    books = elastic.accounts(story.folded())
    assert books is not None
    assert set(books.lost.parts().values()) == {0.0}
    assert (books.training_s, books.unexplained_s) == pytest.approx((10.0, 10.0))


def test_a_rank_that_another_worker_takes_over_lives_with_it() -> None:
    """The host of rank 1 is given up; rank 2 becomes rank 1, and nobody is rank 2. A late word of the dead changes nothing."""
    story = begun("a", "b", "c")
    for rank, host in enumerate("abc"):
        story.steps(host, rank, 0, 10.0, 12)
    story.exits(30.0, "b", 1, 255, cause="b did not answer for 14 s")
    before = story.folded()
    assert before.ranks[1].exit_code == 255
    said = next(verdict for verdict in verdicts(before) if verdict.kind == "below_capacity")
    assert said.text.startswith("rank 1 on b died: b did not answer for 14 s")
    story.round(46.5, 1, "a", "c")
    story.steps("a", 0, 1, 49.0, 2)
    story.exits(50.0, "b", 1, 255, cause="b did not answer for 34 s")
    state = story.folded()
    assert [(row.rank, row.host) for row in rank_rows(state)] == [(0, "a"), (1, "c")]
    taken = state.ranks[1]
    assert (taken.host, taken.exit_code, taken.exited_at, taken.cause, taken.started_at) == ("c", None, None, "", 2.0)


def lost_and_drained() -> Story:
    """Rank 1 of two is killed on b, which is barred for it; round 1 trains on a alone."""
    story = begun("a", "b")
    story.steps("a", 0, 0, 10.0, 20)
    story.exits(20.0, "b", 1, 137, signal="SIGKILL", cause="an operator sent it SIGKILL")
    story.host(20.05, "host_failed", "b", None)
    story.host(20.06, "host_blacklisted", "b", None)
    story.round(20.1, 1, "a")
    story.steps("a", 0, 1, 21.0, 20)
    return story


def shrunk(story: Story) -> list[str]:
    return [verdict.text for verdict in verdicts(story.folded()) if verdict.kind == "below_capacity"]


def test_a_host_that_leaves_without_a_rank_brings_no_new_round() -> None:
    """A barred one that is drained, and a word that comes late of a worker that the round has no more."""
    told = ["rank 1 on b died: SIGKILL, an operator sent it SIGKILL: 1 of 2 ranks train on"]
    assert shrunk(lost_and_drained()) == told
    assert verdicts(lost_and_drained().folded())[0].try_first.endswith("bring another host: this one is barred")
    story = lost_and_drained()
    story.host(32.0, "host_left", "b", 0)
    assert shrunk(story) == told
    story = lost_and_drained()
    story.exits(32.0, "b", 1, 255, cause="b did not answer for 34 s")
    assert shrunk(story) == ["b failed: 1 of 2 ranks train on"]


def test_a_spare_host_that_leaves_is_no_loss_and_no_cause() -> None:
    story = begun("a", "b", max_np=2)
    story.host(3.0, "host_joined", "c")
    story.host(12.0, "host_left", "c", 0)
    story.steps("a", 0, 0, 10.0, 20)
    assert shrunk(story) == []
    story.host(20.0, "host_left", "b", 0)
    assert shrunk(story) == ["b left: the others form a new round"]
    story.round(20.1, 1, "a")
    assert shrunk(story) == ["b left: 1 of 2 ranks train on"]


def test_every_host_that_was_lost_is_told() -> None:
    story = begun("a", "b", "c", "d")
    story.steps("a", 0, 0, 10.0, 20)
    story.host(20.0, "host_left", "b", 0)
    story.round(20.1, 1, "a", "c", "d")
    assert shrunk(story) == ["b left: 3 of 4 ranks train on"]
    story.host(30.0, "host_left", "d", 0)
    story.round(30.1, 2, "a", "c")
    assert shrunk(story) == ["b left, d left: 2 of 4 ranks train on"]
    story.host(40.0, "host_left", "c", 0)
    story.round(40.1, 3, "a")
    assert shrunk(story) == ["b left and 2 more hosts lost ranks: 1 of 4 ranks train on"]


def test_a_host_that_loses_slots_has_not_left() -> None:
    story = Story(3)
    story.host(1.0, "host_joined", "a", 1)
    story.host(1.0, "host_joined", "b", 2)
    slots = [("a", 0), ("b", 0), ("b", 1)]
    places = [ev.RankPlace(rank=rank, host=host, local_rank=local) for rank, (host, local) in enumerate(slots)]
    story.events.append(ev.RanksAssigned(at=2.0, generation=0, world_size=3, places=places))
    story.host(20.0, "host_left", "b", 1)
    assert shrunk(story) == ["b has 1 slot left: the others form a new round"]


def test_a_host_that_is_barred_for_good_has_not_joined_again() -> None:
    story = lost_and_drained()
    story.host(32.0, "host_left", "b", 0)
    story.host(34.0, "host_joined", "b", 1)
    assert not story.folded().elastic.hosts["b"].here and story.folded().elastic.slots[-1] == (34.0, 1)
