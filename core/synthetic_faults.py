"""Seeded jobs with one fault of known kind, place, moment and size: what the verdicts say is held against it.

A step is synchronous: its collective begins when the last rank has come, and all ranks end together. A rank's own work wanders as
that of real runs does: 1.5 % of the step, AR(1) of 0.36 from step to step, and one step in 33 five times as far off.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from distmon.core import events as ev
from distmon.core.synthetic_nodes import CHECKPOINT_S, CHECKPOINT_STEPS, EPOCH_STEPS, FIRST_BATCH_S, VariedNode

Cause = Literal[
    "healthy",
    "input",
    "compute",
    "disk",
    "cpu_hog",
    "send",
    "memory",
    "stopped",
    "input_all",
    "two_ranks",
    "full_cores",
    "crowded",
    "starved",
    "hot_gpu",
]
CAUSES: tuple[Cause, ...] = (
    "healthy",
    "input",
    "compute",
    "disk",
    "cpu_hog",
    "send",
    "memory",
    "stopped",
    "input_all",
    "two_ranks",
    "full_cores",
    "crowded",
    "starved",
    "hot_gpu",
)
OF_NODES: tuple[Cause, ...] = ("full_cores", "crowded", "starved", "hot_gpu")
"""What nodes read tells of these, among the readings of varied nodes."""
STEP_S = 0.1
NOISE = 0.015
_CORRELATION = 0.36
_START = 1_700_000_000.0
_WORK = {"input": 0.02, "compute": 0.80, "optimizer": 0.04, "rest": 0.02}
"""Shares of a healthy step; the transfer is what is left."""
_CROWDED, _CROWDED_NOISE = 0.5, 0.13
"""Shares of a healthy step that a rank waits for cores. A real rank's compute then varied by 10 %, AR(1) of 0.3 to 0.5."""
_PER_NODE = 1
_TRANSFER = 1 - sum(_WORK.values())


@dataclass(frozen=True, slots=True)
class Trial:
    """`size` is the delay as a share of the step; it begins at step `onset` on `rank` (send, input_all, crowded: on all)."""

    cause: Cause
    ranks: int = 4
    rank: int = 0
    other: int = 1
    """The second late rank of `two_ranks`."""
    size: float = 0.08
    onset: int = 200
    steps: int = 500
    seed: int = 0
    varied: bool = False
    """Whether nodes differ in how busy, full and hot they are, epochs begin with a wait for input, and checkpoints are saved."""

    def healthy(self) -> Trial:
        """The same run, step by step the same noise, without the fault."""
        return replace(self, cause="healthy")

    def expected(self) -> set[tuple[str, int | None, str | None]]:
        """(kind, rank, phase) of what must be said."""
        found: dict[Cause, set[tuple[str, int | None, str | None]]] = {
            "healthy": set(),
            "input": {("straggler", self.rank, "input_wait")},
            "disk": {("straggler", self.rank, "input_wait")},
            "compute": {("straggler", self.rank, "compute")},
            "cpu_hog": {("straggler", self.rank, "compute")},
            "send": {("slow_network", None, "exposed_communication")},
            "memory": {("memory_pressure", None, None)},
            "stopped": {("stall", self.rank, None)},
            "input_all": {("input_bound", None, "input_wait")},
            "two_ranks": {("straggler", self.rank, "compute"), ("straggler", self.other, "input_wait")},
            "full_cores": {("straggler", self.rank, "compute"), ("cpu_oversubscribed", None, None)},
            "crowded": {("cpu_oversubscribed", None, None)},
            "starved": {("input_bound", None, "input_wait"), ("gpu_starved", None, None), ("cpu_oversubscribed", None, None)},
            "hot_gpu": {("straggler", self.rank, "compute"), ("thermal_throttling", None, None)},
        }
        return found[self.cause]


def second_by_second(trial: Trial) -> Iterator[list[ev.AnyEvent]]:
    """The events of the job: what a viewer gets at its start, then of each second."""
    yield list(_opening(trial))
    job = _Job(trial)
    while job.step < trial.steps:
        yield job.second()
        if trial.cause == "stopped" and job.step >= trial.onset:
            yield from _standing(trial, job)
            return


_STANDS_S = 15
_ASKED_S = 2
"""After so many seconds without a step the agents ask the ranks where they are."""
_WAITING = ["/venv/site-packages/horovod/torch/optimizer.py:284 synchronize", "/home/me/train.py:40 train"]
_STOPPED = ["/home/me/model.py:12 forward", "/home/me/train.py:38 train"]


def _standing(trial: Trial, job: _Job) -> Iterator[list[ev.AnyEvent]]:
    """No step comes any more, and the nodes are there."""
    last = job.time
    for second in range(1, _STANDS_S + 1):
        job.time = last + second
        stacks = _stacks(trial, job.time) if second == _ASKED_S else ()
        yield [*stacks, *job.samples(), ev.Ticked(at=job.time)]


def _stacks(trial: Trial, at: float) -> Iterator[ev.AnyEvent]:
    """The stopped rank does not answer, and is read from outside."""
    for rank in range(trial.ranks):
        stopped = rank == trial.rank
        yield ev.StackTaken(
            at=at,
            node=f"n{rank // _PER_NODE}",
            worker=f"w{rank}",
            rank=rank,
            silent_s=_ASKED_S,
            threads=[ev.ThreadStack(name="MainThread", frames=_STOPPED if stopped else _WAITING)],
            read_by="py-spy" if stopped else "",
        )


def _opening(trial: Trial) -> Iterator[ev.AnyEvent]:
    at = _START
    yield ev.SessionStarted(at=at, session_id="trial", distmon_version="0", origin="synthetic")
    yield ev.JobStarted(at=at, job="job", command=["python", "train.py"], np=trial.ranks)
    for node in range(_nodes(trial)):
        yield ev.NodeJoined(at=at, node=f"n{node}", host=f"node-{node}", cores=8, memory_bytes=16 << 30)
    places = [ev.RankPlace(rank=r, host=f"node-{r // _PER_NODE}", local_rank=r % _PER_NODE) for r in range(trial.ranks)]
    yield ev.RanksAssigned(at=at, generation=0, world_size=trial.ranks, places=places)


def _nodes(trial: Trial) -> int:
    return -(-trial.ranks // _PER_NODE)


class _Job:
    """The clockwork."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.time = _START + 1
        self.step = 0
        self.sources = [random.Random(f"{trial.seed} {rank}") for rank in range(trial.ranks)]
        self.common = random.Random(f"{trial.seed} job")
        self.faults = random.Random(f"{trial.seed} fault")
        self.wander = [0.0] * trial.ranks
        self.nodes = [VariedNode(node, node * _PER_NODE, trial.seed) for node in range(_nodes(trial))]
        self.saved_until = 0.0

    def second(self) -> list[ev.AnyEvent]:
        trial, first, origin = self.trial, self.step, self.time
        starts: list[int] = []
        durations: list[int] = []
        columns: list[list[tuple[float, float, float, float]]] = [[] for _ in range(trial.ranks)]
        while self.time < origin + 1 and self.step < trial.steps and not (trial.cause == "stopped" and self.step >= trial.onset):
            duration, rows = self._one_step()
            starts.append(round((self.time - origin) * 1e9))
            durations.append(round(duration * 1e9))
            for column, row in zip(columns, rows, strict=True):
                column.append(row)
            self.time += duration
            self.step += 1
        events: list[ev.AnyEvent] = [
            self._batch(rank, first, origin, starts, durations, column) for rank, column in enumerate(columns) if durations
        ]
        return [*events, *self.samples(), ev.Ticked(at=self.time)]

    def samples(self) -> list[ev.AnyEvent]:
        """A reading of each node."""
        return [self._sample(node) for node in range(_nodes(self.trial))]

    def _one_step(self) -> tuple[float, list[tuple[float, float, float, float]]]:
        """(duration, (input, compute, wait, optimizer) of each rank) in seconds."""
        trial = self.trial
        faulty = self.step >= trial.onset and trial.cause != "healthy"
        delays = self._delays() if faulty else {}
        first_batch = FIRST_BATCH_S / STEP_S if trial.varied and self.step and self.step % EPOCH_STEPS == 0 else 0.0
        works = []
        for rank, source in enumerate(self.sources):
            slow = _CORRELATION * self.wander[rank] + math.sqrt(1 - _CORRELATION**2) * source.gauss(0, 1)
            self.wander[rank] = slow
            jitter = 1 + NOISE * slow * (5 if source.random() < 0.03 else 1)
            more_input, more_compute = delays.get(rank, (0.0, 0.0))
            works.append((_WORK["input"] + more_input + first_batch, _WORK["compute"] * jitter + more_compute))
        transfer = _TRANSFER * math.exp(0.1 * self.common.gauss(0, 1))
        if faulty and trial.cause == "send":
            transfer += trial.size
        last = max(a + b for a, b in works)
        fixed = _WORK["optimizer"] + _WORK["rest"]
        if trial.varied and self.step and self.step % CHECKPOINT_STEPS == 0:
            # The others wait in their next allreduce while rank 0 writes.
            transfer += 0.5 * CHECKPOINT_S / STEP_S
            self.saved_until = self.time + CHECKPOINT_S
        rows = [(a * STEP_S, b * STEP_S, (last - a - b + transfer) * STEP_S, _WORK["optimizer"] * STEP_S) for a, b in works]
        return (last + transfer + fixed) * STEP_S, rows

    def _delays(self) -> dict[int, tuple[float, float]]:
        """Rank -> (more input, more compute) of this step, in shares of the step."""
        trial = self.trial
        if trial.cause == "input":
            return {trial.rank: (trial.size, 0.0)}
        if trial.cause in ("compute", "full_cores", "hot_gpu"):
            return {trial.rank: (0.0, trial.size)}
        if trial.cause == "disk":
            return {trial.rank: (2 * trial.size if self.faults.random() < 0.5 else 0.0, 0.0)}
        if trial.cause == "cpu_hog":
            return {trial.rank: (0.0, trial.size * self.faults.expovariate(1))}
        if trial.cause == "two_ranks":
            return {trial.rank: (0.0, trial.size), trial.other: (trial.size, 0.0)}
        if trial.cause == "crowded":
            return {rank: (0.0, max(_CROWDED + _CROWDED_NOISE * wander, 0.0)) for rank, wander in enumerate(self.wander)}
        if trial.cause in ("input_all", "starved"):
            return dict.fromkeys(range(trial.ranks), (0.10 + trial.size, 0.0))
        return {}

    def _batch(
        self,
        rank: int,
        first: int,
        origin: float,
        starts: list[int],
        durations: list[int],
        column: list[tuple[float, float, float, float]],
    ) -> ev.StepsRecorded:
        phases = [[round(row[i] * 1e9) for row in column] for i in range(4)]
        return ev.StepsRecorded(
            at=self.time,
            node=f"n{rank // _PER_NODE}",
            worker=f"w{rank}",
            rank=rank,
            generation=0,
            first_step=first,
            origin=origin,
            start_ns=list(starts),
            duration_ns=list(durations),
            input_wait_ns=list(phases[0]),
            compute_ns=list(phases[1]),
            exposed_communication_ns=list(phases[2]),
            optimizer_ns=list(phases[3]),
            samples=[32] * len(durations),
        )

    def _sample(self, node: int) -> ev.NodeSampled:
        trial = self.trial
        if trial.varied or trial.cause in OF_NODES:
            return self._varied_sample(node)
        short = trial.cause == "memory" and self.step > trial.onset and node == trial.rank // _PER_NODE
        return ev.NodeSampled(
            at=self.time,
            node=f"n{node}",
            interval_s=1.0,
            cpu_percent=60.0,
            load_1m=4.0,
            memory_used_bytes=(15 if short else 6) << 30,
            memory_total_bytes=16 << 30,
            pressures=[ev.Pressure(resource="memory", some_percent=35.0 if short else 0.0)],
        )

    def _varied_sample(self, node: int) -> ev.NodeSampled:
        trial, faulty = self.trial, self.step > self.trial.onset
        there = faulty and node == trial.rank // _PER_NODE
        starved, crowded = faulty and trial.cause == "starved", trial.cause == "crowded"
        full = starved or crowded or (there and trial.cause == "full_cores")
        saves = self.time < self.saved_until + 1
        hot = there and trial.cause == "hot_gpu"
        return self.nodes[node].sample(self.time, saves=saves, full=full, hot=hot, starved=starved, has_gpus=not crowded)
