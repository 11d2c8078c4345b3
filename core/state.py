"""What is known about a session at a moment: mutable, bounded, and changed only by distmon.core.fold.apply."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from distmon.core.elastic_state import ElasticState
from distmon.core.energy_trail import EnergyTrail
from distmon.core.epochs import Epoch
from distmon.core.events import (
    Failure,
    GapFound,
    JobStarted,
    MembershipChanged,
    ModelDescribed,
    NodeJoined,
    NodeSampled,
    WorkerIdentified,
)
from distmon.core.hangs import HangWatch
from distmon.core.steps import Generation, History

HISTORY = 600
LOG_LINES = 2_000
REPEATED_WITHIN_S, REPEATED_WITHIN_LINES = 30.0, 6
"""What is told again so soon, and so near to the end of the log, is counted on the line that is there."""
STRAINS = 60
OUTPUT_LINES = 5_000
SPANS = 2_000
LOST_S = 9.0
"""A node from which nothing came for longer is lost."""

JobStatus = Literal["idle", "launching", "running", "ended"]
Severity = Literal["info", "warning", "error"]


@dataclass(slots=True)
class JobState:
    started: JobStarted | None = None
    status: JobStatus = "idle"
    stage: str = ""
    stage_detail: str = ""
    stage_deadline: float | None = None
    first_worker_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    end_reason: str = ""
    end_detail: str = ""
    failure: Failure | None = None
    told_to_end: bool = False
    """Somebody has stopped or restarted it."""

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because it was told to, and not of a failure before."""
        return self.end_reason == "stopped" and self.failure is None


@dataclass(slots=True, frozen=True)
class Metric:
    """The value of a metric that a rank logged last, with its step and epoch (from 0) where they are known."""

    value: float
    step: int | None
    epoch: int | None


@dataclass(slots=True)
class RankState:
    """The worker that holds a rank now, and what is known of it."""

    rank: int
    host: str = ""
    local_rank: int | None = None
    pid: int | None = None
    identity: WorkerIdentified | None = None
    exit_code: int | None = None
    signal: str = ""
    cause: str = ""
    """Of its death, in words, where signal and exit code do not say it."""
    stopped: bool = False
    """The launcher ended it, or had taken its slot away."""
    started_at: float | None = None
    first_started_at: float | None = None
    """Of the first worker that was started for this rank."""
    exited_at: float | None = None
    frozen_at: float | None = None
    """When an operator sent it SIGSTOP."""
    thawed_at: float | None = None
    """When SIGCONT followed; None until then."""
    unseen: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    model: ModelDescribed | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    epoch: int | None = None
    span_totals: dict[str, float] = field(default_factory=dict)
    """Seconds per kind of span, over the session."""
    last_span_end: float = 0.0
    """End of its last evaluation or checkpoint."""
    told_until: dict[str, float] = field(default_factory=dict)
    """End of the last span of each kind: what ends no later was told before."""
    broadcasts: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SPANS))
    """(begin, end) of each broadcast of weights or state."""


@dataclass(slots=True)
class HostSilence:
    """A time in which a host of the job did not answer its launcher."""

    host: str
    since: float
    ranks: list[int]
    until: float | None = None
    """When it answered again, or a new worker was started on it; None while it lasts."""


@dataclass(slots=True, frozen=True)
class Span:
    span: str
    rank: int
    started: float
    duration_s: float
    name: str


@dataclass(slots=True)
class PowerSeries:
    """What the sum of joules of one reading rests on."""

    since: float | None = None
    """From when on it was read."""
    readings: int = 0
    counted_s: float = 0.0
    """Of the measured seconds: by a counter of energy; the others by watts times their interval."""
    last_w: float | None = None
    highest_w: float = 0.0
    squares: float = 0.0
    """Variance of the joules that were summed from watts: between two samples the power may have changed at any moment."""
    rise_j: float = 0.0
    """What the watts went up by from sample to sample, times their intervals."""
    last_change_j: float = 0.0
    """Of it, the last."""
    ends: float = 0.0
    """Joules by which a counter that counts now and then may be off at the ends of its stretches."""


@dataclass(slots=True)
class RailEnergy:
    joules: float = 0.0
    seconds: float = 0.0
    within: str = ""
    series: PowerSeries = field(default_factory=PowerSeries)


@dataclass(slots=True)
class GpuMeans:
    name: str = ""
    utilization_seconds: float = 0.0
    utilization_s: float = 0.0
    joules: float = 0.0
    power_s: float = 0.0
    series: PowerSeries = field(default_factory=PowerSeries)


@dataclass(slots=True)
class TemperatureMeans:
    celsius_seconds: float = 0.0
    seconds: float = 0.0
    highest: float = float("-inf")


class Strain(NamedTuple):
    """What of a reading can say that a node is short of something; None where it was not read."""

    cpu_percent: float | None
    load_1m: float | None
    memory_percent: float | None
    """Of what may be used: of the node or of a control group's limit, the one that is fuller."""
    memory_wait_percent: float | None
    """Of the last ten seconds, in which tasks waited for memory."""
    gpu_percent: float | None
    """Mean utilisation of the GPUs that have ranks."""
    throttled: tuple[tuple[int, str], ...] = ()
    """(GPU, a reason that its driver gives for holding its clocks down)."""
    run_queue_wait_percent: float | None = None
    """Of the time: the rank that waits longest was ready to run and had no core."""


@dataclass(slots=True)
class NodeState:
    """One node: its last sample, a short history, and sums over the session."""

    node: str
    host: str = ""
    joined: NodeJoined | None = None
    left_at: float | None = None
    left_reason: str = ""
    last_heard: float = 0.0
    """The viewer's own time when anything last came from it."""
    heard_since: float = 0.0
    """Since then it has been heard without a pause of more than a few seconds."""
    lost_since: float | None = None
    """When it was last heard, while it counts as lost."""
    silences: list[tuple[float, float]] = field(default_factory=list)
    """Times (from, to) in which nothing came for so long that it counted as lost."""
    sample: NodeSampled | None = None
    least_interval_s: float | None = None
    """The shortest between two of its samples."""
    cpu_history: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    power_history: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    gpu_history: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """Mean utilisation of its GPUs."""
    strains: deque[Strain] = field(default_factory=lambda: deque(maxlen=STRAINS))
    """Of its last samples, one each."""
    cpu_percent_seconds: float = 0.0
    cpu_seconds: float = 0.0
    core_percent_seconds: list[float] = field(default_factory=list)
    core_seconds: list[float] = field(default_factory=list)
    """Of each core, while it was on."""
    temperatures: dict[str, TemperatureMeans] = field(default_factory=dict)
    rails: dict[str, RailEnergy] = field(default_factory=dict)
    gpus: dict[int, GpuMeans] = field(default_factory=dict)
    clock_set_at: float | None = None
    """When its wall clock was last set, and by how much."""
    clock_set_by_s: float = 0.0
    clock_offset_s: float | None = None
    clock_round_trip_s: float | None = None


@dataclass(slots=True)
class LogEntry:
    """One line of the event log. What comes again and again (an epoch, an evaluation) is one line that is counted."""

    at: float
    severity: Severity
    text: str
    rank: int | None = None
    host: str = ""
    topic: str = ""
    """What the line is counted by; empty for what stands alone."""
    count: int = 1
    """So many times; `at` and `text` are of the last."""
    first_at: float | None = None
    """When it came first, which is its place in the log; on a screen it stands where it came last. None of what came once."""


class OutputLine(NamedTuple):
    at: float
    rank: int
    host: str
    output: str
    text: str


@dataclass(slots=True)
class SessionState:
    """The whole session. Read it freely; never write to it outside the fold."""

    session_id: str = ""
    started: float | None = None
    distmon_version: str = ""
    origin: str = ""
    complete: bool = False
    now: float = 0.0
    """The latest time that an event gave."""
    job: JobState = field(default_factory=JobState)
    ranks: dict[int, RankState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    generations: dict[int, Generation] = field(default_factory=dict)
    history: History | None = None
    """Of the job over time, from the first step on."""
    stepped_until: float = -math.inf
    """The end of the latest step that is known."""
    set_back: bool = False
    """Whether the clock of a rank was."""
    trail: EnergyTrail = field(default_factory=EnergyTrail)
    """What all power readings came to that lie within no other."""
    unsettled_epochs: set[int] = field(default_factory=set)
    """Those whose last steps may lie in the trail."""
    epochs: dict[int, Epoch] = field(default_factory=dict)
    """Those that are known by number."""
    printed: dict[int, dict[str, float]] = field(default_factory=dict)
    """Metrics by epoch, as rank 0 printed both."""
    summed_nodes: set[str] = field(default_factory=set)
    """Nodes of which the latest steps came as sums."""
    hang_watch: HangWatch = field(default_factory=HangWatch)
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS))
    membership: list[MembershipChanged] = field(default_factory=list)
    elastic: ElasticState = field(default_factory=ElasticState)
    """Of a job whose ranks may come and go; empty else."""
    clock_offsets: dict[str, float] = field(default_factory=dict)
    """Node -> seconds that are added to its times, where its clock surely differs from the viewer's."""
    host_silences: list[HostSilence] = field(default_factory=list)
    gaps: list[GapFound] = field(default_factory=list)
    log: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    output: deque[OutputLine] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    output_lines: int = 0
    output_dropped: int = 0
    events: int = 0
    unknown_kinds: Counter[str] = field(default_factory=Counter)
