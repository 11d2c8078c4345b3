"""What runs at every step, compiled and in Python: the same numbers from the same calls, the script's errors untouched."""

import importlib
import importlib.util
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from distmon.probe.ring import Message, RingReader, Span, Step

from .conftest import PROBE, probe_in_python, ring_directory


def load(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


class Tensor:
    def __init__(self, samples: int) -> None:
        self.shape = (samples, 8)


class Bench:
    """A loader, a model and an optimizer as small as can be, hooked by one of the two probes."""

    def __init__(self, folder: Path, name: str, rings: Path) -> None:
        load(folder, name)
        self.hot: Any = importlib.import_module(f"{name}.hot")
        steps: Any = importlib.import_module(f"{name}.steps")
        count: Callable[[Any], int] = importlib.import_module(f"{name}.torch_hooks").count_samples
        ring: Any = importlib.import_module(f"{name}.ring")
        self.writer = ring.RingWriter.create(str(rings))
        self.full_batches: Any = steps.FullBatches
        self.timer = timer = steps.StepTimer(self.writer)
        timer.sees(*steps.PHASES)
        self.functions: dict[str, Any] = {"wait": lambda: pytest.fail("the hooked wait was called inside synchronize")}
        functions, hot = self.functions, self.hot

        class Batches:
            def __init__(self, batches: list[Any]) -> None:
                self.batches = iter(batches)

            def __iter__(self) -> "Batches":
                return self

            def __next__(self) -> Any:
                return next(self.batches)

        class Optimizer:
            def synchronize(self) -> str:
                functions["wait"]()
                return "synchronized"

            def step(self, closure: Any = None) -> Any:
                if closure is not None:
                    return closure()
                return self.synchronize()

        def backward(loss: Any, scale: int = 1) -> Any:
            """Original."""
            return loss() if callable(loss) else loss * scale

        self.waited = 0
        Batches.__next__ = hot.timed_batches(timer, count, Batches.__next__)  # type: ignore[method-assign]
        Optimizer.synchronize = hot.timed_synchronize(  # type: ignore[method-assign]
            timer, functions, "wait", self._wait, Optimizer.synchronize
        )
        Optimizer.step = hot.timed_step(timer, Optimizer.step)  # type: ignore[method-assign]
        self.backward = hot.timed_backward(timer, backward)
        self.batches, self.optimizer = Batches, Optimizer()

    def _wait(self) -> None:
        self.waited += 1

    def iterator(self, batches: list[Any], full: tuple[int, int] = (0, 0)) -> Iterator[Any]:
        """Of a loader; `full`: samples in a full batch, and with how many such it begins."""
        iterator: Iterator[Any] = self.batches(batches)
        self.timer.iterator_wanted()
        self.timer.iterator_made(id(iterator), len(batches))
        self.timer.batches_known(id(iterator), self.full_batches(*full))
        return iterator

    def train(self, batches: list[Any], full: tuple[int, int] = (0, 0)) -> None:
        for _ in self.iterator(batches, full):
            self.step()

    def step(self) -> None:
        assert self.backward(2, scale=3) == 6
        assert self.optimizer.step() == "synchronized"

    def records(self) -> list[Any]:
        reader = RingReader(self.writer.path)
        found = reader.read()
        assert (reader.lost, reader.torn) == (0, 0)
        reader.close()
        return found

    def steps(self) -> list[Step]:
        return [record for record in self.records() if isinstance(record, Step)]


@pytest.fixture(params=["compiled", "in python"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    compiled = request.param == "compiled"
    name = "_probe_" + request.param.replace(" ", "_")
    made = Bench(PROBE if compiled else probe_in_python(tmp_path), name, ring_directory(tmp_path / "rings"))
    assert (made.hot.Counters is not made.hot.PlainCounters) == compiled
    yield made
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def test_steps_samples_and_epochs(bench: Bench) -> None:
    bench.train([[Tensor(4), Tensor(1)], (Tensor(3),), {"input": Tensor(2)}])
    bench.train([[Tensor(4)]])
    steps = bench.steps()
    assert [(step.step, step.epoch, step.samples, step.micro_batches) for step in steps] == [
        (0, 0, 4, 1),
        (1, 0, 3, 1),
        (2, 0, 2, 1),
        (3, 1, 4, 1),
    ]
    assert bench.waited == 4
    for step in steps:
        phases = (step.input_wait_ns, step.compute_ns, step.exposed_communication_ns, step.optimizer_ns)
        assert all(phase is not None and phase > 0 for phase in phases)
        assert sum(phase or 0 for phase in phases) <= step.duration_ns
    gaps = [later.start_ns - step.start_ns - step.duration_ns for step, later in pairwise(steps)]
    assert gaps == [0, 0, 0]


def test_batches_that_are_known_to_be_full_are_not_looked_at(bench: Bench) -> None:
    bench.train([[Tensor(4)], "four", "four", [Tensor(1)]], full=(4, 3))
    bench.train([[Tensor(4)], [Tensor(1)]], full=(4, 1))
    assert [step.samples for step in bench.steps()] == [4, 4, 4, 1, 4, 1]


def test_batches_of_another_iterator_are_looked_at(bench: Bench) -> None:
    training = bench.iterator([[Tensor(4)], "four", [Tensor(4)], [Tensor(4)]], full=(4, 4))
    for _ in range(2):
        next(training)
        bench.step()
    evaluation = bench.iterator([[Tensor(7)], [Tensor(7)]], full=(7, 2))
    assert len(list(evaluation)) == 2
    for _ in training:
        bench.step()
    assert [step.samples for step in bench.steps()] == [4, 4, 4, 4]


def test_a_batch_that_was_taken_and_not_used_is_one_of_the_full_ones(bench: Bench) -> None:
    iterator = bench.iterator([[Tensor(4)], [Tensor(4)], "four", [Tensor(2)]], full=(4, 3))
    next(iterator)
    for _ in iterator:
        bench.step()
    assert [step.samples for step in bench.steps()] == [4, 4, 2]


def test_words_and_steps_share_one_order(bench: Bench) -> None:
    bench.train([[Tensor(1)]])
    bench.timer.span("checkpoint", 5, 7, "save")
    bench.timer.metrics({"loss": 1.0})
    bench.train([[Tensor(1)]])
    kinds = [
        type(record).__name__
        for record in bench.records()
        if isinstance(record, Step | Span) or (isinstance(record, Message) and record.fields["type"] == "metrics")
    ]
    assert kinds == ["Span", "Step", "Span", "Message", "Step"]


def test_batches_without_samples_are_none_with_a_reason(bench: Bench) -> None:
    bench.train([["text"], [Tensor(2)]])
    assert [step.samples for step in bench.steps()] == [None, 2]


def test_evaluation_is_no_training(bench: Bench) -> None:
    bench.train([[Tensor(1)], [Tensor(1)]])
    list(bench.batches([[Tensor(9)]] * 3))
    bench.train([[Tensor(1)]])
    assert [step.samples for step in bench.steps()] == [1, 1, 1]
    assert [record.kind for record in bench.records() if isinstance(record, Span)].count("evaluation") == 1


def test_errors_of_the_script_pass_through(bench: Bench) -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bench.backward(fails)
    with pytest.raises(KeyError, match="mine"):
        bench.optimizer.step(fails)
    assert bench.timer.in_step is False
    with pytest.raises(StopIteration):
        next(bench.batches([]))
    bench.train([[Tensor(1)]])
    assert len(bench.steps()) == 1


def test_the_wait_is_hooked_again_after_an_error(bench: Bench) -> None:
    hooked = bench.functions["wait"]
    synchronize = bench.hot.timed_synchronize(bench.timer, bench.functions, "wait", bench._wait, lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        synchronize(None)
    assert bench.functions["wait"] is hooked


def test_another_thread_is_not_timed(bench: Bench) -> None:
    bench.train([[Tensor(1)]])
    other = threading.Thread(target=lambda: bench.backward(1))
    before = bench.timer.backwards, bench.timer.compute
    other.start()
    other.join()
    assert (bench.timer.backwards, bench.timer.compute) == before


def test_times_are_of_pythons_monotonic_clock(bench: Bench) -> None:
    before = time.monotonic_ns()
    bench.backward(1)
    assert before <= bench.timer.mark <= time.monotonic_ns()


def test_a_step_of_numbers_out_of_range_is_told(bench: Bench) -> None:
    bench.train([[Tensor(1)]])
    bench.timer.batches = 70_000
    bench.optimizer.step()
    assert [step.step for step in bench.steps()] == [0]
    told = [record.fields for record in bench.records() if isinstance(record, Message) and record.fields["type"] == "unseen"]
    assert any(fields["field"] == "step" and "out of range" in str(fields["reason"]) for fields in told)


def test_a_gpu_is_told_of_every_phase(bench: Bench) -> None:
    marks: list[int] = []

    class Gpu:
        def mark(self, phase: int) -> None:
            marks.append(phase)

    sent: list[tuple[int, ...]] = []
    bench.timer.gpu, bench.timer.sink = Gpu(), lambda *numbers: sent.append(numbers)
    bench.train([[Tensor(1)], [Tensor(1)]])
    assert marks == [bench.hot.INPUT_WAIT, bench.hot.COMPUTE, bench.hot.EXPOSED] * 2
    assert [numbers[0] for numbers in sent] == [0, 1]
    assert bench.steps() == []


def test_wrappers_look_like_what_they_wrap(bench: Bench) -> None:
    patching: Any = importlib.import_module(bench.hot.__name__.replace(".hot", ".patching"))

    class Owner:
        def step(self, closure: Any = None) -> int:
            """Original."""
            return 7

    original = Owner.__dict__["step"]
    patching.wrap(Owner, "step", lambda function: bench.hot.timed_step(bench.timer, function))
    assert Owner.step.__doc__ == "Original."
    assert Owner.step.__name__ == "step"
    assert Owner.step.__wrapped__ is original  # type: ignore[attr-defined]
    Owner.step.hooked = True  # type: ignore[attr-defined]
    assert Owner().step() == 7
    assert Owner.step(Owner()) == 7
    copied = type("Copied", (), dict(Owner.__dict__))
    assert copied().step() == 7


class Graphs:
    """Functions whose calls are timed as those of a `tf.function`, and what became of them."""

    def __init__(self, bench: Bench) -> None:
        self.timer = timer = bench.timer
        self.calls: list[tuple[int, ...]] = []
        self.watched: list[tuple[Any, ...]] = []
        self.traced: list[tuple[int, int, int, bool]] = []
        self.flushed = 0

        class Function:
            def __call__(self, batch: Any = None, scale: int = 1) -> Any:
                return batch() if callable(batch) else scale

        def watched(function: Any, *args: Any, **kwargs: Any) -> str:
            self.watched.append((function, *args, *kwargs.items()))
            return "watched"

        def flush() -> None:
            self.flushed += len(self.calls)
            self.calls.clear()

        Function.__call__ = bench.hot.timed_calls(  # type: ignore[method-assign]
            timer, Function.__call__, watched, self.calls, flush, lambda *told: self.traced.append(told)
        )
        self.training, self.other = Function(), Function()
        timer.graph, timer.attention, timer.flush_at = id(self.training), False, 2**62


@pytest.fixture
def graphs(bench: Bench) -> Graphs:
    return Graphs(bench)


def test_calls_of_the_training_function_are_steps(graphs: Graphs) -> None:
    timer = graphs.timer
    begun, wall = timer.start, time.time_ns()
    timer.wait = 5
    assert graphs.training(scale=3) == 3
    timer.cut = 7
    assert graphs.training(None, 4) == 4
    first, second = graphs.calls
    assert (first[0], second[0], timer.step) == (0, 1, 2)
    assert first[3] == begun and first[5:11] == (5, 0, 0, 0, 0, 0)
    assert second[3] == first[3] + first[4] + 7
    assert timer.start == timer.mark == second[3] + second[4]
    assert 0 < first[12] <= first[4] and abs(first[11] - wall) < 60e9
    assert not graphs.watched and not graphs.traced


def test_other_calls_are_watched(graphs: Graphs) -> None:
    timer = graphs.timer
    assert graphs.other(1, scale=2) == "watched"
    assert graphs.watched == [(graphs.other, 1, ("scale", 2))]
    assert graphs.training(lambda: graphs.other(5)) == "watched"
    for name in ("attention", "manual", "in_graph"):
        setattr(timer, name, True)
        assert graphs.training() == "watched"
        setattr(timer, name, False)
    other = threading.Thread(target=graphs.training)
    other.start()
    other.join()
    assert len(graphs.watched) == 6 and len(graphs.calls) == 1


def test_a_call_that_turns_out_to_trace_is_told(bench: Bench, graphs: Graphs) -> None:
    def traces() -> str:
        assert graphs.timer.in_graph == bench.hot.PLAIN
        graphs.timer.in_graph = bench.hot.TRACING
        return "traced"

    def fails() -> None:
        traces()
        raise KeyError("mine")

    assert graphs.training(traces) == "traced"
    with pytest.raises(KeyError, match="mine"):
        graphs.training(fails)
    assert [returned for *_, returned in graphs.traced] == [True, False]
    assert all(start <= end for start, _, end, _ in graphs.traced)
    assert graphs.calls == [] and graphs.timer.in_graph == bench.hot.NO_GRAPH


def test_an_error_in_a_call_is_no_step(bench: Bench, graphs: Graphs) -> None:
    with pytest.raises(ZeroDivisionError):
        graphs.training(lambda: 1 / 0)
    assert graphs.calls == [] and graphs.timer.in_graph == bench.hot.NO_GRAPH
    graphs.training()
    assert len(graphs.calls) == 1


def test_calls_are_written_when_they_are_due(bench: Bench, graphs: Graphs) -> None:
    for _ in range(bench.hot.HELD + 3):
        graphs.training()
    assert (graphs.flushed, len(graphs.calls)) == (bench.hot.HELD, 3)
    graphs.timer.flush_at = 0
    graphs.training()
    assert (graphs.flushed, len(graphs.calls)) == (bench.hot.HELD + 4, 0)


def test_what_was_compiled_is_left_where_it_is(tmp_path: Path) -> None:
    """A copy of the probe for another kind of machine, whose machine code does not load here, works in Python."""
    folder = Path(shutil.copytree(PROBE, tmp_path / "probe", ignore=shutil.ignore_patterns("*.so", "__pycache__")))
    (folder / "_native.abi3.so").write_bytes(b"\x7fELF of another machine")
    bench = Bench(folder, "_probe_of_another_machine", ring_directory(tmp_path / "rings"))
    assert bench.hot.Counters is bench.hot.PlainCounters
    bench.train([[Tensor(1)]])
    assert len(bench.steps()) == 1


def test_an_error_of_the_probe_stops_the_probe_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(PROBE, "_probe_with_an_error", ring_directory(tmp_path / "rings"))
    bench.train([[Tensor(1)]])
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", caught.append)

    class Broken:
        def mark(self, phase: int) -> None:
            raise RuntimeError("a defect of the probe")

    bench.timer.gpu = Broken()
    iterator = bench.batches([[Tensor(1)], [Tensor(1)]])
    assert len(list(iterator)) == 2
    assert bench.timer.thread == 0
    assert [str(report.exc_value) for report in caught] == ["a defect of the probe"]
