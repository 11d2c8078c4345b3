"""What the probe costs a training: the same loop with its hooks and without, in turns, CPU time.

The loop runs in a process of its own, armed as `distmon run` arms it. There the hooks are taken off and put back between
short bursts, so that both sides meet the same machine.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from figures import figure
from memory import kept_in_use

PROBE = Path(__file__).parents[1] / "probe"
ARRANGEMENTS = 24
"""Models and optimizers made anew, of which each lies elsewhere in memory: where it lies moves a step by a percent, with
hooks or without, as much as they cost."""
ROUNDS = 12
BURST = 128
"""Steps in a burst, which is an epoch: short, so that both sides of a pair meet the same machine."""
LEARNING = 64
"""The first of them: the interpreter learns again what it forgot of this side's classes while the other side ran."""
ODD_PROCESS = "BENCH_ODD_PROCESS"
KERAS_PROCESSES = 6
KERAS_ROUNDS = 75
KERAS_BURST = 20
KERAS_BATCH = 96
PACED_S = 4.0
SLOW_STEPS = 500
SLOW_STEP_S = 0.1

Measured = TypeVar("Measured")


class Comparison(NamedTuple):
    """Two ways to do the same, measured in turns. Bounds hold the median with 95 % confidence, whatever the distribution."""

    plain: float
    """Median of the runs without."""
    difference: float
    """Median of (with - without) over the rounds."""
    difference_low: float
    difference_high: float
    ratio: float
    """Median of (with / without) over the rounds."""
    ratio_low: float
    ratio_high: float


def compare(measured: Callable[[], Measured], plain: Callable[[], Measured], rounds: int) -> list[tuple[Measured, Measured]]:
    """Run both in turns, the order changing from round to round; pairs of (with, without). The first round warms up."""
    pairs = []
    for index in range(rounds + 1):
        if index % 2:
            with_probe, without = measured(), plain()
        else:
            without, with_probe = plain(), measured()
        pairs.append((with_probe, without))
    return pairs[1:]


def compared(pairs: list[tuple[float, float]]) -> Comparison:
    """What pairs of (with, without) say."""
    differences = sorted(with_probe - without for with_probe, without in pairs)
    ratios = sorted(with_probe / without for with_probe, without in pairs)
    margin = round(0.98 * len(pairs) ** 0.5)
    low, high = max(0, len(pairs) // 2 - margin), min(len(pairs) - 1, len(pairs) // 2 + margin)
    return Comparison(
        statistics.median(without for _, without in pairs),
        statistics.median(differences),
        differences[low],
        differences[high],
        statistics.median(ratios),
        ratios[low],
        ratios[high],
    )


# In the training process


def hooks(on: bool) -> None:
    """Put the probe's wrappers on, or take them off."""
    sys.modules["_distmon_probe.patching"].switch(on)


def torch_loop() -> dict[str, Any]:
    """Cost per step of a small model with a DataLoader, hooks on and off."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.set_num_threads(1)
    steps, edges = [], []
    for index in range(ARRANGEMENTS):
        with_probe, without = torch_sides(hooked_first=index % 2 == 0)
        rounds = compare(with_probe.epoch, without.epoch, ROUNDS)
        steps.append(tuple(statistics.median(side[0] for side in sides) for sides in zip(*rounds, strict=True)))
        edges.append(tuple(statistics.median(side[1] for side in sides) for sides in zip(*rounds, strict=True)))
    return {"step": compared(steps), "edges": compared(edges)}


def resting_loop() -> dict[str, Any]:
    """The same training in a process that mostly sleeps."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.set_num_threads(1)
    with_probe, without = torch_sides(hooked_first=True)
    background = statistics.median(with_probe.paced() - without.paced() for _ in range(4))
    return {"background": background, "step": compared(compare(with_probe.slow_step, without.slow_step, SLOW_STEPS))}


def torch_sides(hooked_first: bool) -> tuple[TorchSide, TorchSide]:
    """A new model, trained with the probe's wrappers and without."""
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(BURST * 4, 64), torch.randn(BURST * 4, 1))
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    first = TorchSide(model, data, hooked_first)
    second = TorchSide(model, data, not hooked_first)
    return (first, second) if hooked_first else (second, first)


class TorchSide:
    """A loop that trains, hooked or not.

    Changing a class costs the interpreter what it has learnt of it, for some hundred steps: there is one of each kind per side.
    Only torch.autograd.backward, a name in a module, is put in its place before each burst.
    """

    def __init__(self, model: Any, data: Any, hooked: bool) -> None:
        import horovod.torch as hvd
        import torch
        from torch.utils.data import dataloader

        hooks(hooked)

        class BatchIterator(dataloader._SingleProcessDataLoaderIter):
            __next__ = dataloader._BaseDataLoaderIter.__next__

        class Loader(torch.utils.data.DataLoader[Any]):
            __iter__ = torch.utils.data.DataLoader.__iter__

            def _get_iterator(self) -> Any:
                return BatchIterator(self)

        self._optimizer: Any = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-6), model.named_parameters())
        self._loader = Loader(data, batch_size=4)
        self._batches: Iterator[Any] = iter(())
        self._backward: Any = torch.autograd.backward
        self._loss: Any = torch.nn.functional.mse_loss
        self._autograd: Any = torch.autograd
        self._model = model

    def _step(self, batch: Any, target: Any) -> None:
        self._optimizer.zero_grad()
        self._loss(self._model(batch), target).backward()
        self._optimizer.step()

    def epoch(self) -> tuple[float, float]:
        """CPU of the median step in the midst of an epoch, and of its begin and end with the first step, in microseconds."""
        self._autograd.backward = self._backward
        clock, ends = time.thread_time_ns, []
        start = clock()
        batches = iter(self._loader)
        self._step(*next(batches))
        begin = clock()
        for _ in range(BURST - 1):
            self._step(*next(batches))
            ends.append(clock())
        next(batches, None)
        edges = clock() - ends[-1] + begin - start
        return statistics.median(end - begin for begin, end in pairwise(ends[LEARNING:])) / 1e3, edges / 1e3

    def paced(self) -> float:
        """CPU of everything but the step's thread, in percent of a core, at 100 steps/s."""
        self._autograd.backward = self._backward
        others, begin = time.process_time() - time.thread_time(), time.monotonic()
        while time.monotonic() - begin < PACED_S / 4:
            for batch, target in self._loader:
                self._step(batch, target)
                time.sleep(0.01)
                if time.monotonic() - begin >= PACED_S / 4:
                    break
        return (time.process_time() - time.thread_time() - others) / (time.monotonic() - begin) * 100

    def slow_step(self) -> float:
        """Seconds until a step has completed while another device does the work of SLOW_STEP_S."""
        self._autograd.backward = self._backward
        begin = time.monotonic()
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        self._step(*batch)
        time.sleep(SLOW_STEP_S)
        return time.monotonic() - begin


def keras_loop() -> dict[str, Any]:
    """Cost of a Keras step of about 6 ms: the clocks in its graph, and the hooks around it."""
    import horovod.tensorflow.keras as hvd
    import numpy as np
    import tensorflow as tf

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    count = KERAS_BURST * KERAS_BATCH
    inputs, labels = np.random.rand(count, 256).astype("float32"), np.random.randint(0, 10, count)

    layers = [tf.keras.layers.Dense(320, activation="relu", input_shape=(256,))]
    layers += [tf.keras.layers.Dense(320, activation="relu") for _ in range(5)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1e-6)), loss=loss)

    def traced(on: bool) -> Any:
        """The model's training step with clocks in its graph or without: those that are put in when it is traced stay."""
        hooks(on)
        model.make_train_function(force=True)
        model.fit(inputs, labels, batch_size=KERAS_BATCH, epochs=1, verbose=0)
        return model.train_function

    # One model for both: where its weights lie in memory moves a step by percents, with clocks or without.
    first = ODD_PROCESS not in os.environ
    functions = {first: traced(first), not first: traced(not first)}

    class StepEnds(tf.keras.callbacks.Callback):  # type: ignore[misc]
        """Of CPU time of the process: a step that the machine disturbed is one of many, and their median does not see it."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.ends_s: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends_s.append(time.process_time())

    ends = StepEnds()

    def burst(on: bool) -> float:
        hooks(on)
        model.train_function = functions[on]
        model.fit(inputs, labels, batch_size=KERAS_BATCH, epochs=1, verbose=0, callbacks=[ends])
        return statistics.median(end - begin for begin, end in pairwise(ends.ends_s)) * 1e6

    return {"step": compared(compare(lambda: burst(True), lambda: burst(False), KERAS_ROUNDS))}


# In the benchmark


def run(loop: str, probe: Path = PROBE, more: dict[str, str] | None = None) -> dict[str, Any]:
    """What `loop` measured, in a process that is the only rank of a job, with `more` in its environment."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as rings:
        environment = dict(os.environ, HOROVOD_RANK="0", DISTMON_RING_DIR=rings, PYTHONPATH=str(probe / "site"))
        environment.update({"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **(more or {})})
        command = [sys.executable, __file__, "--loop", loop]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def in_python(folder: str) -> dict[str, Any]:
    """What the torch loop measured of the same hooks where no compiler was."""
    probe = Path(folder) / "probe"
    shutil.copytree(PROBE, probe, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return run("torch", probe)


def main() -> None:
    torch = run("torch")
    with kept_in_use() as memory:
        resting = run("resting")
    with tempfile.TemporaryDirectory() as folder:
        plain = Comparison(*in_python(folder)["step"])
    cost, edges = Comparison(*torch["step"]), Comparison(*torch["edges"])
    how = f"thread CPU time, median of {ARRANGEMENTS} models and optimizers, each {ROUNDS} pairs of medians of "
    how += f"{BURST - LEARNING} steps, in turns, on a step of "
    how += f"{cost.plain:.0f} us; 95 % interval {cost.difference_low:.1f} to {cost.difference_high:.1f} us"
    peer = f"the same hooks in Python, on a step of {plain.plain:.0f} us"
    figure("probe_step_cpu_us", cost.difference, "us/step", how, peer=peer, peer_value=plain.difference)
    how = f"the same for what an epoch adds: iterator, first step and last look for a batch, {edges.plain:.0f} us without"
    figure("probe_epoch_cpu_us", edges.difference, "us/epoch", how)
    paced = f"CPU of all other threads at 100 steps/s, with minus without, {PACED_S:.0f} s each; the probe has no thread"
    figure("probe_background_core_percent", max(0.0, resting["background"]), "% of a core", paced)
    slow = Comparison(*resting["step"])
    how = f"wall time until a step has completed, median of {SLOW_STEPS} pairs of steps, one with and one without, on a step of "
    how += f"{slow.plain:.4f} s, most of it asleep; 95 % interval {percent(slow.ratio_low):.2f} to "
    how += f"{percent(slow.ratio_high):.2f} %; {memory}"
    figure("probe_slow_step_percent", percent(slow.ratio), "% of a step", how)
    keras = [Comparison(*run("keras", more={ODD_PROCESS: "1"} if i % 2 else None)["step"]) for i in range(KERAS_PROCESSES)]
    how = f"process CPU time, median of {KERAS_ROUNDS} pairs, each of the medians of {KERAS_BURST} steps, in turns, on a step of "
    how += f"{statistics.median(one.plain for one in keras):.0f} us; the median of {KERAS_PROCESSES} processes, "
    how += f"{min(percent(one.ratio) for one in keras):.2f} to {max(percent(one.ratio) for one in keras):.2f} %"
    added = statistics.median(one.difference for one in keras)
    figure("probe_keras_step_cpu_us", added, "us/step", f"{how}; 60 us are 1 % of a step of 6 ms")
    figure("probe_keras_step_percent", statistics.median(percent(one.ratio) for one in keras), "% of a step", how)


def percent(ratio: float) -> float:
    """What it adds."""
    return (ratio - 1) * 100


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        print(json.dumps({"torch": torch_loop, "resting": resting_loop, "keras": keras_loop}[sys.argv[2]]()))
    else:
        main()
