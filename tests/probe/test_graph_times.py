"""Which rows of the graph's clock belong to which step: by when they were written."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from distmon.probe.graph_times import LOST, NO_ITERATOR, NOTHING_REDUCED, SEVERAL, UNCOUNTED, Call, GraphTimes
from distmon.probe.ring import UNSEEN, Message, RingReader, RingWriter, Step
from distmon.probe.steps import INPUT_WAIT, StepTimer
from distmon.probe.tensorflow_hooks import NEVER_REDUCED, TensorFlowHooks

MS = 1_000_000
class Clocks:
    """In place of those in a graph."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, float]] = []
        self.reductions: list[tuple[float, float]] = []

    def read(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        rows = self.batches, self.reductions
        self.batches, self.reductions = [], []
        return rows

    def batch(self, at: float, samples: int = 8) -> None:
        self.batches.append((at, samples))

    def reduction(self, begun: float, ended: float) -> None:
        self.reductions.append((begun, ended))

    def both(self, at: float, begun: float, ended: float) -> None:
        self.batch(at)
        self.reduction(begun, ended)


class Graph:
    """The times of a graph whose ring can be read."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o700)
        self.timer = StepTimer(RingWriter.create(str(directory), 64, host="h"))
        self.times = GraphTimes(None, self.timer)
        self.clocks = Clocks()
        self.times.clocks = self.clocks  # type: ignore[assignment]
        (path,) = directory.glob("*.ring")
        self.reader = RingReader(str(path))

    def hold(self, number: int, *calls: Call, reduced: bool = True) -> None:
        duration = sum(call.duration_ns for call in calls)
        numbers = (number, 0, 0, 1, duration, UNSEEN, UNSEEN, UNSEEN, UNSEEN, UNSEEN, len(calls))
        self.times.hold(numbers, list(calls), reduced)

    def plain(self, number: int, wall_s: float, duration_ns: int) -> None:
        self.times.calls.append((number, 0, 0, 1, duration_ns, 0, 0, 0, 0, 0, 0, round(wall_s * 1e9), duration_ns))

    def read(self) -> tuple[list[tuple[int | None, ...]], dict[str, str]]:
        """(phases in ms and samples) of each step, and the reasons."""
        self.times.flush()
        steps, reasons = [], {}
        for record in self.reader.read():
            if isinstance(record, Step):
                phases = (record.input_wait_ns, record.compute_ns, record.exposed_communication_ns, record.optimizer_ns)
                steps.append((*(None if ns is None else round(ns / MS) for ns in phases), record.samples))
            elif isinstance(record, Message) and record.fields["type"] == "unseen":
                reasons[str(record.fields["field"])] = str(record.fields["reason"])
        return steps, reasons


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path)


def call(wall_s: float, traced: bool = False) -> Call:
    return Call(wall_s, 100 * MS, 1, traced)


def test_rows_of_a_step_that_still_runs_wait_for_its_end(graph: Graph) -> None:
    for at in (1.0, 2.0, 3.0):
        graph.clocks.batch(at + 0.01)
    graph.clocks.reduction(2.03, 2.07)
    graph.hold(0, call(1.0), call(2.0))
    assert graph.read() == ([(20, 110, 40, 30, 16)], {})
    graph.clocks.batch(4.02)
    graph.clocks.reduction(4.05, 4.09)
    graph.hold(1, call(3.0), call(4.0))
    assert graph.read() == ([(30, 120, 40, 10, 16)], {})


def test_rows_of_a_call_that_failed_belong_to_no_step(graph: Graph) -> None:
    graph.clocks.both(1.01, 1.02, 1.03)
    graph.clocks.batch(2.01)
    graph.clocks.both(3.02, 3.05, 3.09)
    graph.plain(0, 1.0, 100 * MS)
    graph.plain(1, 3.0, 100 * MS)
    assert graph.read() == ([(10, 10, 10, 70, 8), (20, 30, 40, 10, 8)], {})


def test_a_step_without_a_reduction_says_so_and_the_next_is_whole(graph: Graph) -> None:
    graph.clocks.both(2.02, 2.05, 2.09)
    graph.hold(0, call(1.0))
    graph.hold(1, call(2.0))
    steps, reasons = graph.read()
    assert steps == [(None, None, None, None, None), (20, 30, 40, 10, 8)]
    assert reasons["compute"] == reasons["exposed_communication"] == reasons["optimizer"] == NOTHING_REDUCED


def test_readings_out_of_order_are_no_split(graph: Graph) -> None:
    graph.clocks.both(1.06, 1.05, 1.09)
    graph.clocks.both(2.02, 2.05, 2.09)
    graph.hold(0, call(1.0))
    graph.hold(1, call(2.0))
    steps, reasons = graph.read()
    assert steps == [(None, None, None, None, 8), (20, 30, 40, 10, 8)]
    assert reasons["compute"] == reasons["input_wait"] == LOST


def test_time_with_a_reduction_under_way_is_counted_once(graph: Graph) -> None:
    graph.clocks.batch(1.01)
    for begun, ended in ((1.02, 1.05), (1.03, 1.04), (1.04, 1.06), (1.08, 1.09)):
        graph.clocks.reduction(begun, ended)
    graph.plain(0, 1.0, 100 * MS)
    steps, reasons = graph.read()
    assert steps == [(10, None, 50, None, 8)]
    assert reasons["compute"] == reasons["optimizer"] == SEVERAL


def test_calls_that_reduced_twice_and_never_are_told_apart(graph: Graph) -> None:
    graph.clocks.batch(1.01)
    graph.clocks.reduction(1.02, 1.03)
    graph.clocks.reduction(1.04, 1.05)
    graph.clocks.batch(2.01)
    graph.plain(0, 1.0, 100 * MS)
    graph.plain(1, 2.0, 100 * MS)
    assert graph.read()[0] == [(10, None, 20, None, 8), (10, None, None, None, 8)]


def test_a_step_that_traced_has_samples_and_no_split(graph: Graph) -> None:
    graph.clocks.both(1.02, 1.05, 1.09)
    graph.hold(0, call(1.0, traced=True))
    assert graph.read() == ([(None, None, None, None, 8)], {})


@pytest.mark.parametrize("held", [True, False])
def test_a_batch_that_holds_nothing_to_count_says_so(graph: Graph, held: bool) -> None:
    graph.clocks.batch(1.02, samples=0)
    graph.clocks.reduction(1.05, 1.09)
    if held:
        graph.hold(0, call(1.0))
    else:
        graph.plain(0, 1.0, 100 * MS)
    assert graph.read() == ([(20, 30, 40, 10, None)], {"samples": UNCOUNTED})


def test_a_batch_taken_outside_of_the_graph_counts_as_it_was_seen_there(graph: Graph) -> None:
    graph.timer.fed = True
    graph.timer.sees(INPUT_WAIT)
    graph.clocks.reduction(1.05, 1.09)
    graph.times.calls.append((0, 0, 0, 1, 120 * MS, 20 * MS, 0, 0, 0, 16, 1, 1_000_000_000, 100 * MS))
    assert graph.read() == ([(20, 50, 40, 10, 16)], {})


@pytest.mark.parametrize("held", [True, False])
def test_without_an_iterator_input_and_samples_have_that_reason(graph: Graph, held: bool) -> None:
    for number in range(2):
        graph.clocks.reduction(number + 1.05, number + 1.09)
        if held:
            graph.hold(number, call(number + 1.0))
        else:
            graph.plain(number, number + 1.0, 100 * MS)
    assert graph.read() == ([(None, 50, 40, 10, None)] * 2, {"samples": NO_ITERATOR, "input_wait": NO_ITERATOR})


def test_horovod_counts_on_past_the_end_of_the_data_and_reduces_no_more(graph: Graph) -> None:
    hooks = TensorFlowHooks(graph.timer, None)
    hooks.gathers(SimpleNamespace(backward_passes_per_step=4, counter=3))
    assert graph.read()[1] == {}
    hooks.gathers(SimpleNamespace(backward_passes_per_step=4, counter=4))
    assert graph.read()[1] == dict.fromkeys(("compute", "exposed_communication", "optimizer"), NEVER_REDUCED)


def test_stated_samples_hold_whatever_the_graph_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTMON_SAMPLES_PER_STEP", "100")
    graph = Graph(tmp_path)
    graph.plain(0, 100.0, 10 * MS)
    graph.clocks.both(100.001, 100.006, 100.008)
    steps, reasons = graph.read()
    graph.hold(1, Call(101.0, 10 * MS, 1, False))
    graph.clocks.both(101.001, 101.006, 101.008)
    more, _ = graph.read()
    assert [step[-1] for step in steps + more] == [100, 100] and "samples" not in reasons
