"""A seeded source of events for tests and benchmarks: a healthy or a disturbed job of any size, second by second."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from distmon.core import events as ev


@dataclass(frozen=True, slots=True)
class Script:
    """A job: `ranks` over `nodes`, `step_s` long steps. `slow_rank` loses `delay_s` in its input each step; the others wait."""

    ranks: int = 4
    nodes: int = 2
    seconds: int = 60
    step_s: float = 0.1
    samples: int = 32
    slow_rank: int | None = None
    delay_s: float = 0.0
    warmup_steps: int = 3
    warmup_factor: float = 8.0
    epochs: int = 10
    steps_per_epoch: int = 60
    gpus_per_node: int = 0
    start: float = 1_700_000_000.0
    seed: int = 0


def session(script: Script) -> Iterator[ev.AnyEvent]:
    """The whole session, from its start to the job's end, in the order in which a viewer would get it."""
    yield from opening(script)
    job = _Job(script)
    for second in range(1, script.seconds + 1):
        yield from job.second(second)
    yield from _ending(script)


def opening(script: Script) -> Iterator[ev.AnyEvent]:
    """Up to the first step: the job starts, nodes join, workers come up."""
    at = script.start
    yield ev.SessionStarted(at=at, session_id=f"synthetic-{script.seed}", distmon_version="0", origin="synthetic")
    yield ev.JobStarted(at=at, job="job", command=["python", "train.py", "--lr", "0.1"], np=script.ranks, hosts=_hosts(script))
    for node in range(script.nodes):
        yield ev.NodeJoined(at=at + 0.1, node=f"n{node}", host=host_name(node), cores=8, memory_bytes=16 << 30)
    places = [_place(script, rank) for rank in range(script.ranks)]
    yield ev.RanksAssigned(at=at + 0.5, generation=0, world_size=script.ranks, places=places)
    for place in places:
        pid = 1000 + place.rank
        yield ev.WorkerStarted(at=at + 0.5, host=place.host, local_rank=place.local_rank, rank=place.rank, pid=pid)
    for place in places:
        yield ev.WorkerIdentified(
            at=at + 0.9,
            worker=f"w{place.rank}",
            node=f"n{_node_of(script, place.rank)}",
            host=place.host,
            pid=1000 + place.rank,
            rank=place.rank,
            size=script.ranks,
            local_rank=place.local_rank,
            framework="torch",
        )
        yield ev.ProgressDeclared(
            at=at + 0.9,
            worker=f"w{place.rank}",
            rank=place.rank,
            epochs=script.epochs,
            steps_per_epoch=script.steps_per_epoch,
        )


def _place(script: Script, rank: int) -> ev.RankPlace:
    return ev.RankPlace(rank=rank, host=host_name(_node_of(script, rank)), local_rank=_local(script, rank))


def host_name(node: int) -> str:
    return f"node-{node:03d}"


def _hosts(script: Script) -> str:
    return ",".join(f"{host_name(n)}:{-(-script.ranks // script.nodes)}" for n in range(script.nodes))


def _node_of(script: Script, rank: int) -> int:
    return rank * script.nodes // script.ranks


def _local(script: Script, rank: int) -> int:
    return rank - -(-_node_of(script, rank) * script.ranks // script.nodes)


def _ending(script: Script) -> Iterator[ev.AnyEvent]:
    at = script.start + 1.0 + script.seconds
    for rank in range(script.ranks):
        host = host_name(_node_of(script, rank))
        yield ev.WorkerExited(at=at, host=host, local_rank=_local(script, rank), rank=rank, exit_code=0)
    yield ev.JobEnded(at=at + 0.1, exit_code=0)
    yield ev.SessionEnded(at=at + 0.2)


class _Job:
    """The job's clockwork: synchronous steps, so that all ranks end each one together."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.random = random.Random(script.seed)
        self.time = script.start + 1.0
        self.step = 0

    def second(self, second: int) -> Iterator[ev.AnyEvent]:
        script, end = self.script, self.script.start + 1.0 + second
        columns: list[list[int]] = [[] for _ in range(script.ranks)]
        first, begun, starts, durations = self.step, self.time, [], []
        epoch = first // script.steps_per_epoch
        while True:
            work = script.step_s * self.random.lognormvariate(0, 0.02)
            if self.step < script.warmup_steps:
                work *= script.warmup_factor
            duration = work + (script.delay_s if script.slow_rank is not None else 0.0)
            if self.time + duration > end:
                break
            starts.append(int((self.time - begun) * 1e9))
            durations.append(int(duration * 1e9))
            for rank in range(script.ranks):
                columns[rank].append(int(work * self.random.uniform(0.99, 1.01) * 0.6e9))
            self.time += duration
            self.step += 1
        if durations:
            for rank in range(script.ranks):
                yield self._batch(end, rank, epoch, first, begun, starts, durations, columns[rank])
        for node in range(script.nodes):
            yield self._sample(end, node)
        yield ev.OutputWritten(at=end, rank=0, host=host_name(0), local_rank=0, output="stdout", lines=[f"step {self.step}"])
        yield ev.Ticked(at=end)

    def _batch(
        self,
        at: float,
        rank: int,
        epoch: int,
        first: int,
        begun: float,
        starts: list[int],
        durations: list[int],
        compute: list[int],
    ) -> ev.StepsRecorded:
        script = self.script
        delay = int(script.delay_s * 1e9) if rank == script.slow_rank else 0
        waits = [int(0.02 * script.step_s * 1e9) + delay for _ in durations]
        optimizer = [int(0.05 * script.step_s * 1e9) for _ in durations]
        exposed = [max(d - w - c - o, 0) for d, w, c, o in zip(durations, waits, compute, optimizer, strict=True)]
        return ev.StepsRecorded(
            at=at,
            node=f"n{_node_of(script, rank)}",
            worker=f"w{rank}",
            rank=rank,
            generation=0,
            first_step=first,
            origin=begun,
            start_ns=starts,
            duration_ns=durations,
            input_wait_ns=list(waits),
            compute_ns=list(compute),
            exposed_communication_ns=list(exposed),
            optimizer_ns=list(optimizer),
            samples=[script.samples] * len(durations),
            epoch=epoch,
        )

    def _sample(self, at: float, node: int) -> ev.NodeSampled:
        def noise(low: float, high: float) -> float:
            return self.random.uniform(low, high)

        gpus = [
            ev.GpuReading(
                index=i,
                uuid=f"GPU-{node}-{i}",
                name="Synthetic 80GB",
                utilization_percent=noise(85, 99),
                memory_used_bytes=60 << 30,
                memory_total_bytes=80 << 30,
                power_w=noise(300, 380),
                power_limit_w=400.0,
                temperature_c=noise(60, 70),
            )
            for i in range(self.script.gpus_per_node)
        ]
        return ev.NodeSampled(
            at=at,
            node=f"n{node}",
            interval_s=1.0,
            cpu_percent=noise(40, 60),
            cores_percent=[noise(20, 90) for _ in range(8)],
            load_1m=noise(3, 5),
            memory_used_bytes=int(noise(6, 7) * (1 << 30)),
            memory_total_bytes=16 << 30,
            networks=[ev.NetworkRate(name="eth0", received_bytes_per_s=noise(1e7, 2e7), sent_bytes_per_s=noise(1e7, 2e7))],
            power=[ev.PowerRail(name="package-0", watts=noise(50, 70), source="rapl")],
            gpus=gpus,
        )
