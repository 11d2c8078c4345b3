"""Twelve seeded jobs, eleven of them with one fault, as streams of events: what a viewer gets, second by second.

Eight ranks on four hosts with two GPUs each, steps of 100 ms. A healthy job is as uneven as real ones are: each rank's work
wanders (AR(1) of 0.36, 1.5 % of the step, one step in 33 five times as far off), the first step compiles, a step now and then is
held up, loaders start anew at each epoch, ranks evaluate, rank 0 saves a checkpoint, a new shape is compiled, and what nodes tell
comes late.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from distmon.core import events as ev

RANKS, PER_NODE = 8, 2
NODES = RANKS // PER_NODE
START = 1_700_000_000.0
STEP_S = 0.1
ONSET_S = 60
_FIRST_STEP_AT_S, _COMPILES_S = 3.0, 6.0
_CORRELATION, _NOISE = 0.36, 0.015
_WORK = {"input": 0.02, "compute": 0.80, "transfer": 0.12, "optimizer": 0.04}
_EPOCH = 600
_PACKAGES = "/venv/lib/python3.11/site-packages"
_TRAIN = ["/job/train.py:40 train", "/job/train.py:80 <module>"]
_ALLREDUCE = [
    f"{_PACKAGES}/horovod/torch/mpi_ops.py:1285 synchronize",
    f"{_PACKAGES}/horovod/torch/optimizer.py:284 synchronize",
    f"{_PACKAGES}/horovod/torch/optimizer.py:333 step",
    *_TRAIN,
]
_EVALUATE = [f"{_PACKAGES}/torch/nn/modules/linear.py:125 forward", "/job/train.py:61 evaluate", *_TRAIN]
_SAVE = [f"{_PACKAGES}/torch/serialization.py:850 _save", "/job/train.py:52 save_checkpoint", *_TRAIN]
_COMPILE = [f"{_PACKAGES}/torch/_inductor/compile_fx.py:700 fx_codegen_and_compile", *_TRAIN]
_SPIN = ["/job/train.py:57 wait_for_flag", *_TRAIN]
_STACKS_AFTER_S = (1.4, 4.6, 14.8)
"""When the agents ask ranks whose steps have stopped."""
_SKEW_S = 30.0


@dataclass(frozen=True)
class Fault:
    """`who` and `what` are regular expressions that the landing screen must show at once."""

    name: str
    happens: str
    who: str
    what: str
    onset_s: float = ONSET_S
    """Seconds from the start of the session."""


FAULTS = (
    Fault("slow rank", "rank 5 computes 8 % longer from the onset on", r"\brank 5\b", "late by .* forward and backward"),
    Fault("slow node", "both ranks of node-2 compute 8 % longer", r"\bnode-2\b", "is slow: its 2 ranks are late"),
    Fault("input-bound", "every rank waits 20 ms longer for each batch", "the ranks", "wait for their input"),
    Fault("hang", "rank 3 spins in its own code, the others wait in allreduce; cores are full", r"\brank 3\b", "training hangs"),
    Fault("throttling", "GPU 1 of node-1 gets hot, its rank computes 25 % longer", r"GPU 1 of node-1\b", "throttled: hot"),
    Fault("dead host", "node-2 goes off: no agent, no ranks, no goodbye", r"\bnode-2\b", "down or cut off"),
    Fault("slow link", "allreduce takes 10 % of the step longer, for all", "all ranks", "network is slow: allreduce takes"),
    Fault("OOM", "the kernel ends rank 3 for its memory; the job follows", r"\brank 3 on node-1\b", "out of memory"),
    Fault("elastic shrink", "the discovery no longer names node-3; six ranks form a new round", r"\bnode-3\b", "left: "),
    Fault("stale agent", "the agent of node-2 stops; its ranks train on", r"\bnode-2\b", "nothing is heard from the agent"),
    Fault(
        "clock skew", "the clock of node-2 is 30 s ahead when its agent is first heard", r"\bnode-2\b", "30.0 s ahead",
        _FIRST_STEP_AT_S + _COMPILES_S,
    ),
)  # fmt: skip
HEALTHY = Fault("healthy", "an hour with evaluations, checkpoints, compilations, hiccups and late records", "", "", 0.0)


@dataclass
class _Pause:
    """Ranks stand still: each at its frames."""

    frames: dict[int, list[str]]
    began: float
    ends: float
    span: str = ""
    told: int = 0
    """Rounds of stacks so far."""


@dataclass
class Stream:
    """The clockwork. Times within are seconds since START."""

    fault: Fault
    seed: int = 0
    time: float = _FIRST_STEP_AT_S
    step: int = 0
    generation: int = 0
    ranks: list[int] = field(default_factory=lambda: list(range(RANKS)))
    pause: _Pause | None = None
    over: bool = False
    dead: set[int] = field(default_factory=set)
    """Nodes of which nothing comes any more."""
    _late: list[ev.AnyEvent] = field(default_factory=list)
    _waited_s: float = 0.0
    """So long the others have waited for rank 0, within their step under way."""

    def __post_init__(self) -> None:
        self.sources = [random.Random(f"{self.seed} rank {rank}") for rank in range(RANKS)]
        self.common = random.Random(f"{self.seed} job")
        self.wander = [0.0] * RANKS
        self.elastic = self.fault.name == "elastic shrink"

    # --- the events -----------------------------------------------------------------------------------------------

    def seconds(self, count: int) -> Iterator[list[ev.AnyEvent]]:
        """What comes in each second; the first holds what led to it."""
        first = list(self._opening())
        for second in range(1, count + 1):
            yield [*first, *self._second(second)]
            first = []

    def _opening(self) -> Iterator[ev.AnyEvent]:
        yield ev.SessionStarted(at=START, session_id="answers", distmon_version="0", origin="synthetic")
        hosts, command = ",".join(f"node-{n}:{PER_NODE}" for n in range(NODES)), ["python", "train.py"]
        least = 4 if self.elastic else None
        yield ev.JobStarted(at=START, job="job", command=command, np=RANKS, min_np=least, hosts=hosts, elastic=self.elastic)
        yield from self._assigned(0.5)
        for rank in self.ranks:
            host = f"node-{rank // PER_NODE}"
            yield ev.WorkerStarted(at=START + 0.6, host=host, local_rank=rank % PER_NODE, rank=rank, pid=1000 + rank)
        for node in range(NODES):
            if self._skewed(node):
                yield ev.ClockOffsetEstimated(at=START + 1, node=f"n{node}", offset_s=-_SKEW_S, round_trip_s=0.0004)
            yield ev.NodeJoined(at=self._of(node, 1.0), stream=f"n{node}/1", node=f"n{node}", host=f"node-{node}", cores=16)
        for rank in self.ranks:
            yield ev.WorkerIdentified(
                at=self._of(rank // PER_NODE, 2.0), stream=f"n{rank // PER_NODE}/1", worker=f"w{rank}",
                node=f"n{rank // PER_NODE}", host=f"node-{rank // PER_NODE}", pid=1000 + rank, rank=rank, size=RANKS,
                local_rank=rank % PER_NODE, framework="torch",
            )  # fmt: skip

    def _assigned(self, at: float) -> Iterator[ev.AnyEvent]:
        if self.elastic and not self.generation:
            for node in range(NODES):
                yield ev.MembershipChanged(at=START + at, change="host_joined", host=f"node-{node}", slots=PER_NODE)
        places = [ev.RankPlace(rank=r, host=f"node-{r // PER_NODE}", local_rank=r % PER_NODE) for r in self.ranks]
        yield ev.RanksAssigned(at=START + at, generation=self.generation, world_size=len(places), places=places)

    def _second(self, second: int) -> list[ev.AnyEvent]:
        events, self._late = self._late, []
        if self._is_on(second):
            events += self._strike(second)
        if self.over:
            return [*events, ev.Ticked(at=START + second)]
        self._plan_pauses(second)
        batches, told = self._steps(second), self._pausing(second)
        for node in range(NODES):
            if node in self.dead:
                continue
            own = [e for rank, e in batches if rank // PER_NODE == node]
            own += [e for rank, e in told if rank // PER_NODE == node]
            own.append(self._sample(node, second))
            if self._holds_up(node, second):
                self._late += own
            else:
                events += own
        lines = [f"step {self.step}: loss {2 / (1 + self.step / 500):.4f}"]
        events.append(ev.OutputWritten(at=START + second, rank=0, host="node-0", local_rank=0, output="stdout", lines=lines))
        return [*events, ev.Ticked(at=START + second)]

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def _is_on(self, now: float) -> bool:
        return self.fault is not HEALTHY and now > self.fault.onset_s

    def _skewed(self, node: int) -> bool:
        return self.fault.name == "clock skew" and node == 2

    def _of(self, node: int, now: float) -> float:
        """A moment on a node's own clock."""
        return START + now + (_SKEW_S if self._skewed(node) else 0.0)

    def _strike(self, second: int) -> list[ev.AnyEvent]:
        """What the launcher tells of the fault, and which of the nodes are heard no more."""
        since = second - int(self.fault.onset_s)
        match self.fault.name:
            case "hang" if since == 1:
                frames = {rank: _SPIN if rank == 3 else _ALLREDUCE for rank in self.ranks}
                self.pause = _Pause(frames, self.time, math.inf)
            case "dead host" if since == 1:
                self.dead = {2}
                self.pause = _Pause({rank: _ALLREDUCE for rank in self.ranks if rank not in (4, 5)}, self.time, math.inf)
            case "dead host" if since == 10:
                at = START + second
                return [ev.HostReachChanged(at=at, host="node-2", answers=False, since=at - 9.5, ranks=[4, 5])]
            case "stale agent" if since == 1:
                self.dead = {2}
            case "OOM":
                return self._out_of_memory(since, START + second)
            case "elastic shrink":
                return self._shrink(since, second)
        return []

    def _out_of_memory(self, since: int, at: float) -> list[ev.AnyEvent]:
        cause = "out of memory: the kernel ended a process to get some back"
        if since == 1:
            self.pause = _Pause({rank: _ALLREDUCE for rank in self.ranks if rank != 3}, self.time, math.inf)
            return [
                ev.WorkerExited(at=at - 0.8, host="node-1", local_rank=1, rank=3, exit_code=137, signal="SIGKILL", cause=cause)
            ]
        if since != 7:
            return []
        self.over = True
        ends: list[ev.AnyEvent] = [
            ev.WorkerExited(at=at, host=f"node-{r // PER_NODE}", local_rank=r % PER_NODE, rank=r, exit_code=1)
            for r in self.ranks
            if r != 3
        ]
        failure = ev.Failure(rank=3, host="node-1", signal="SIGKILL", exit_code=137, cause=cause)
        return [*ends, ev.JobEnded(at=at + 0.1, exit_code=137, reason="failed", failure=failure)]

    def _shrink(self, since: int, second: int) -> list[ev.AnyEvent]:
        at = START + second
        if since == 1:
            self.pause = _Pause({}, self.time, second + 5)
            return [ev.MembershipChanged(at=at, change="host_left", host="node-3", slots=0)]
        if since == 2:
            left: list[ev.AnyEvent] = [
                ev.TrainingInterrupted(
                    at=at, stream=f"n{r // 2}/1", node=f"n{r // 2}", worker=f"w{r}", rank=r, generation=0, cause="hosts_changed"
                )
                for r in range(6)
            ]
            return left + [
                ev.WorkerExited(
                    at=at, host="node-3", local_rank=r - 6, rank=r, exit_code=134, signal="SIGABRT", expected=True, removed=True
                )
                for r in (6, 7)
            ]
        if since == 4:
            self.generation, self.step, self.ranks = 1, 0, list(range(6))
            return list(self._assigned(second))
        return []

    def _delays(self, now: float) -> dict[int, tuple[float, float]]:
        """Rank -> (more input, more compute), in shares of the step."""
        if not self._is_on(now):
            return {}
        delays: dict[str, dict[int, tuple[float, float]]] = {
            "slow rank": {5: (0.0, 0.08)},
            "slow node": {4: (0.0, 0.08), 5: (0.0, 0.08)},
            "input-bound": dict.fromkeys(range(RANKS), (0.20, 0.0)),
            "throttling": {3: (0.0, 0.25)},
        }
        return delays.get(self.fault.name, {})

    # --- steps ----------------------------------------------------------------------------------------------------

    def _steps(self, second: int) -> list[tuple[int, ev.AnyEvent]]:
        """The steps that end before `second`, a batch of each rank."""
        if self.pause is not None and self.pause.ends <= second and not self.pause.span:
            self.time, self.pause = self.pause.ends, None
        if self.pause is not None:
            return []
        first, origin = self.step, self.time
        starts: list[int] = []
        rows: list[list[tuple[float, float, float, float, float]]] = []
        while self.pause is None:
            duration, row = self._one_step()
            if self.time + duration > second:
                self._unmade = (duration, row)
                break
            starts.append(round((self.time - origin) * 1e9))
            rows.append(row)
            self.time += duration
            self.step += 1
        if not rows:
            return []
        batches: list[tuple[int, ev.AnyEvent]] = []
        for i, rank in enumerate(self.ranks):
            batches.append((rank, self._batch(rank, first, origin, starts, [row[i] for row in rows])))
        self._waited_s = 0.0
        return batches

    _unmade: tuple[float, list[tuple[float, float, float, float, float]]] | None = None
    """The step under way, which ends in a later second."""

    def _one_step(self) -> tuple[float, list[tuple[float, float, float, float, float]]]:
        """(duration, (duration, input, compute, wait, optimizer) of each rank) in seconds."""
        if self._unmade is not None and len(self._unmade[1]) == len(self.ranks):
            (duration, row), self._unmade = self._unmade, None
            return duration, row
        delays, works = self._delays(self.time), []
        compile_s = _COMPILES_S if self.step == 0 else 0.0
        new_epoch = 0.5 * STEP_S * (self.step % _EPOCH == 0)
        for rank in self.ranks:
            source = self.sources[rank]
            wander = _CORRELATION * self.wander[rank] + math.sqrt(1 - _CORRELATION**2) * source.gauss(0, 1)
            self.wander[rank] = wander
            jitter = 1 + _NOISE * wander * (5 if source.random() < 0.03 else 1)
            hiccup = source.uniform(0.05, 0.4) if source.random() < 0.0003 else 0.0
            more_input, more_compute = delays.get(rank, (0.0, 0.0))
            loads = (_WORK["input"] * source.lognormvariate(0, 0.2) + more_input) * STEP_S + new_epoch
            works.append((loads, (_WORK["compute"] * jitter + more_compute) * STEP_S + compile_s + hiccup))
        transfer = _WORK["transfer"] * STEP_S * math.exp(0.1 * self.common.gauss(0, 1))
        if self.fault.name == "slow link" and self._is_on(self.time):
            transfer += 0.1 * STEP_S
        last, optimizer = max(a + b for a, b in works), _WORK["optimizer"] * STEP_S
        duration = last + transfer + optimizer + 0.02 * STEP_S
        return duration, [(duration, a, b, last - a - b + transfer, optimizer) for a, b in works]

    def _batch(
        self, rank: int, first: int, origin: float, starts: list[int], rows: list[tuple[float, float, float, float, float]]
    ) -> ev.StepsRecorded:
        node = rank // PER_NODE
        columns = [[round(row[i] * 1e9) for row in rows] for i in range(5)]
        if self._waited_s and rank != 0:
            waited = round(self._waited_s * 1e9)
            columns[0][0] += waited
            columns[3][0] += waited
            origin, starts = origin - self._waited_s, [0, *(start + waited for start in starts[1:])]
        return ev.StepsRecorded(
            at=self._of(node, self.time), stream=f"n{node}/1", node=f"n{node}", worker=f"w{rank}", rank=rank,
            generation=self.generation, first_step=first, origin=self._of(node, origin), start_ns=list(starts),
            duration_ns=columns[0], input_wait_ns=list(columns[1]), compute_ns=list(columns[2]),
            exposed_communication_ns=list(columns[3]), optimizer_ns=list(columns[4]), samples=[32] * len(rows),
            epoch=first // _EPOCH,
        )  # fmt: skip

    # --- pauses ---------------------------------------------------------------------------------------------------

    def _plan_pauses(self, second: int) -> None:
        """An evaluation every five minutes, a checkpoint of rank 0 every ten, and now and then a new shape to compile."""
        if self.pause is not None or self.fault is not HEALTHY:
            return
        frames, lasts, span = None, 0.0, ""
        if second % 300 == 200:
            frames, lasts, span = dict.fromkeys(self.ranks, _EVALUATE), 14.0, "evaluation"
        elif second % 600 == 350:
            frames, lasts, span = {rank: _SAVE if rank == 0 else _ALLREDUCE for rank in self.ranks}, 9.0, "checkpoint"
        elif second % 1500 == 620:
            frames, lasts = dict.fromkeys(self.ranks, _COMPILE), 16.0
        if frames is not None:
            self.pause = _Pause(frames, self.time, second + lasts, span)

    def _pausing(self, second: int) -> list[tuple[int, ev.AnyEvent]]:
        """The stacks that the agents take while no step comes, and at its end the span that it was."""
        pause, told = self.pause, list[tuple[int, ev.AnyEvent]]()
        if pause is None:
            return told
        while pause.told < len(_STACKS_AFTER_S) and pause.began + _STACKS_AFTER_S[pause.told] <= second:
            silent = _STACKS_AFTER_S[pause.told]
            pause.told += 1
            told += [(rank, self._stack(rank, pause.began, silent, frames)) for rank, frames in pause.frames.items()]
        if pause.span and pause.ends <= second:
            who = [rank for rank, frames in pause.frames.items() if frames is not _ALLREDUCE]
            told += [(rank, self._span(rank, pause)) for rank in who]
            self._waited_s = pause.ends - pause.began if len(who) == 1 else 0.0
            self.time, self.pause = pause.ends, None
        return told

    def _stack(self, rank: int, began: float, silent_s: float, frames: list[str]) -> ev.StackTaken:
        node = rank // PER_NODE
        return ev.StackTaken(
            at=self._of(node, began + silent_s), stream=f"n{node}/1", node=f"n{node}", worker=f"w{rank}", rank=rank,
            silent_s=silent_s, threads=[ev.ThreadStack(name="MainThread", frames=frames)],
        )  # fmt: skip

    def _span(self, rank: int, pause: _Pause) -> ev.SpanRecorded:
        node, began = rank // PER_NODE, self._of(rank // PER_NODE, pause.began)
        return ev.SpanRecorded(
            at=self._of(node, pause.ends), stream=f"n{node}/1", node=f"n{node}", worker=f"w{rank}", rank=rank,
            span=pause.span, started=began, duration_s=pause.ends - pause.began,
        )  # fmt: skip

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _holds_up(self, node: int, second: int) -> bool:
        """Now and then what a node tells comes a second late, and once an hour for four."""
        return self.fault is HEALTHY and (self.common.random() < 0.003 or (node == 1 and second % 3600 in range(1900, 1904)))

    def _sample(self, node: int, second: int) -> ev.NodeSampled:
        noise, on = self.common.uniform, self._is_on(second)
        full = self.fault.name == "hang" and on
        short = self.fault.name == "OOM" and node == 1 and second > self.fault.onset_s - 3
        hot = self.fault.name == "throttling" and node == 1 and on
        gpus = [
            ev.GpuReading(
                index=i, uuid=f"GPU-{node}-{i}", name="Synthetic 80GB", utilization_percent=100.0 if full else noise(80, 99),
                memory_used_bytes=60 << 30, memory_total_bytes=80 << 30, power_w=noise(300, 380), power_limit_w=400.0,
                temperature_c=91.0 if hot and i == 1 else noise(60, 75), sm_clock_mhz=1100.0 if hot and i == 1 else 1755.0,
                throttle=["hot (driver)"] if hot and i == 1 else [], ranks=[node * PER_NODE + i],
            )
            for i in range(PER_NODE)
        ]  # fmt: skip
        return ev.NodeSampled(
            at=self._of(node, second - noise(0.0, 0.2)), stream=f"n{node}/1", node=f"n{node}", interval_s=1.0,
            cpu_percent=100.0 if full else noise(40, 85), cores_percent=[100.0 if full else noise(20, 95) for _ in range(16)],
            load_1m=noise(8, 15), memory_used_bytes=int((62.5 if short else noise(28, 44)) * 2**30), memory_total_bytes=64 << 30,
            networks=[ev.NetworkRate(name="eth0", received_bytes_per_s=noise(8e7, 2e8), sent_bytes_per_s=noise(8e7, 2e8))],
            power=[ev.PowerRail(name="package-0", watts=noise(90, 140), source="rapl")], gpus=gpus,
        )  # fmt: skip
