"""Everything that can happen, as typed, immutable events: the one schema for the wire and for session files.

Times are seconds since the Unix epoch on the sender's steady clock: the wall clock read once, advanced by CLOCK_MONOTONIC,
so that a step of the wall clock never reorders events. A value that could not be measured is None, never 0.

Compatibility: a new kind or a new optional field raises FORMAT_MINOR; anything else raises FORMAT_MAJOR.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from distmon.core.step_table import COLUMNS, MOST_STEPS, StepTable

FORMAT_MAJOR = 1
FORMAT_MINOR = 5


Moment = Annotated[float, Meta(ge=0, le=1e11)]
"""Seconds since the epoch. What lies outside is damage or malice, and would break sums; decoding refuses it."""
Duration = Annotated[float, Meta(ge=0, le=1e10)]
"""Seconds."""
Nanoseconds = Annotated[int, Meta(ge=-(10**15), le=10**15)]
Sum = Annotated[int, Meta(ge=0, le=10**15)]
"""Of nanoseconds, or of what is counted."""
Count = Annotated[int, Meta(ge=0, le=10**12)]
Measure = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""A reading or rate in any unit. What lies outside is no reading, and its square would break sums."""
Difference = Annotated[float, Meta(ge=-1e11, le=1e11)]
"""Seconds between two clocks."""
Percent = Annotated[float, Meta(ge=0, le=1000)]
"""Of a whole; fans and bursts can exceed it, but not tenfold."""
PercentOfCore = Annotated[float, Meta(ge=0, le=10**6)]
"""Of one core, over all cores that were used."""


_SUMMED = frozenset(COLUMNS[:-1])
"""What there can be sums of."""
_UNKNOWN = (None,)


def _kind(class_name: str) -> str:
    """StepsRecorded -> steps_recorded."""
    return "".join("_" + c.lower() if c.isupper() else c for c in class_name).lstrip("_")


class Event(Struct, frozen=True, kw_only=True, tag_field="kind", tag=_kind, omit_defaults=True, gc=False):
    """What all events carry. `stream` and `seq` name the event within its sender's boot, so that loss can be seen.

    The garbage collector leaves them out: they hold nothing that could lead back to them, and thousands come in a second.
    """

    at: Moment
    stream: str = ""
    seq: int = 0


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A value inside an event."""


# --- the session and the job ----------------------------------------------------------------------------------------


class SessionStarted(Event, frozen=True, kw_only=True, omit_defaults=False):
    """The first event of every session, and the first line of every session file."""

    session_id: str
    distmon_version: str
    format: tuple[int, int] = (FORMAT_MAJOR, FORMAT_MINOR)
    origin: str = "live"
    """Where the events come from: live, or the kind of file that they were imported from."""


class SessionEnded(Event, frozen=True, kw_only=True):
    """The recorder closed the session in good order; a session without it is incomplete."""


class JobStarted(Event, frozen=True, kw_only=True):
    job: str
    command: list[str]
    np: int
    min_np: int | None = None
    max_np: int | None = None
    backend: str = "horovod"
    hosts: str = ""
    network_interface: str = ""
    cwd: str = ""
    python: str = ""
    """The training's interpreter, which need not be distmon's."""
    environment: dict[str, str] = {}
    """Versions of what the training uses; never the process environment."""
    elastic: bool = False
    """Ranks may come and go."""
    timeline: str = ""
    """Where Horovod was told to write its timeline, on rank 0's host."""
    fusion_threshold_bytes: int | None = None
    """Of Horovod's fusion buffer; None where it is not known, or changes."""


LaunchStage = Literal[
    "resolving", "checking_hosts", "starting_agents", "starting_driver", "waiting_for_slots", "rendezvous", "first_step"
]


class LaunchProgressed(Event, frozen=True, kw_only=True):
    """What the launch is waiting for now, and until when (`deadline`, seconds since the epoch)."""

    stage: LaunchStage
    detail: str = ""
    deadline: float | None = None


class RankPlace(Part, frozen=True, kw_only=True):
    rank: int
    host: str
    local_rank: int


class RanksAssigned(Event, frozen=True, kw_only=True):
    """A rendezvous round gave out ranks. `generation` counts rounds from 0."""

    generation: int
    world_size: int
    places: list[RankPlace]
    resets: int | None = None
    """How often Horovod's elastic driver has reset the job."""


class WorkerStarted(Event, frozen=True, kw_only=True):
    """The launcher started a worker's process. `rank` is the rank at that moment; it may change after an elastic reset."""

    host: str
    local_rank: int
    rank: int
    generation: int = 0
    pid: int | None = None


class WorkerExited(Event, frozen=True, kw_only=True):
    host: str
    local_rank: int
    rank: int
    exit_code: int
    """As a shell gives it: 128+n for signal n."""
    signal: str = ""
    expected: bool = False
    """True when the launcher ended it or had taken its slot away, so that it is no failure."""
    cause: str = ""
    """In words, where signal and exit code do not say it: out of memory, or a host that no longer answers."""
    removed: bool = False
    """Its slot had been taken away: it left by Horovod's abort, which a shell shows as 134."""


class OutputWritten(Event, frozen=True, kw_only=True):
    """Lines that one rank wrote, in order, without line ends."""

    rank: int
    host: str
    local_rank: int
    output: Literal["stdout", "stderr"]
    lines: list[str]
    dropped: int = 0
    """Lines lost before these because the reader could not keep up."""


class Failure(Part, frozen=True, kw_only=True):
    """The first death of a job; ranks that died of it are not listed here."""

    rank: int | None
    host: str
    signal: str = ""
    exit_code: int | None = None
    cause: str = ""
    """In words, where signal and exit code do not say it; as in WorkerExited."""
    last_lines: list[str] = []


class JobEnded(Event, frozen=True, kw_only=True):
    exit_code: int
    reason: Literal["finished", "failed", "stopped", "lost"] = "finished"
    failure: Failure | None = None
    detail: str = ""


class NoticeGiven(Event, frozen=True, kw_only=True):
    """Something that distmon has to say about itself or the job, in one line."""

    severity: Literal["info", "warning", "error"]
    text: str
    source: str = ""


class HostReachChanged(Event, frozen=True, kw_only=True):
    """A host of the job no longer answers its launcher, or answers again."""

    host: str
    answers: bool
    since: Moment
    """Its last word before the silence."""
    ranks: list[int] = []
    """Those that it has."""
    given_up_after_s: Duration | None = None
    """Of silence; None where it is waited for without an end."""


class ActionTaken(Event, frozen=True, kw_only=True):
    """An operator acted on the job from a viewer."""

    action: str
    detail: str = ""


class MarkSet(Event, frozen=True, kw_only=True):
    """The training script (or its user) named a moment."""

    text: str
    rank: int | None = None
    step: int | None = None


# --- elastic membership ---------------------------------------------------------------------------------------------

ElasticKind = Literal[
    "host_joined", "host_left", "host_failed", "host_blacklisted", "rendezvous", "worker_started", "worker_exited", "resumed"
]


class MembershipChanged(Event, frozen=True, kw_only=True):
    """A change of who takes part, as Horovod's own driver saw it."""

    change: ElasticKind
    host: str = ""
    rank: int | None = None
    slots: int | None = None
    """Of the host, from now on."""
    until: Moment | None = None
    """When a blacklisted host may come back; None if never."""
    detail: str = ""


class DiscoveryReported(Event, frozen=True, kw_only=True):
    """How the host discovery fares, when that changes. While it fails, the hosts known last stay."""

    status: Literal["ok", "failing", "timed_out"]
    failures: Count = 0
    """In a row."""
    detail: str = ""


# --- workers: what the probe saw ------------------------------------------------------------------------------------


class WorkerIdentified(Event, frozen=True, kw_only=True):
    """A worker came out of (re)initialisation and knows its rank. `worker` is unique within the session."""

    worker: str
    node: str
    host: str
    pid: int
    rank: int
    size: int
    local_rank: int
    generation: int = 0
    framework: str = ""
    framework_version: str = ""
    horovod_version: str = ""
    script: str = ""
    visible_devices: str | None = None


class StepsRecorded(Event, frozen=True, kw_only=True):
    """Consecutive steps of one worker, in columns of equal length.

    A step runs from the end of the previous optimizer step to the end of its own; `origin` is the start of the first one and
    `start_ns` counts from it. A phase that was not seen is None, for one step or for all. Phases not listed are the rest.
    Raises ValueError, and decoding refuses, when the columns differ in length.
    """

    node: str
    worker: str
    rank: Count
    generation: Count
    first_step: Count
    origin: Moment
    start_ns: list[Nanoseconds]
    duration_ns: list[Nanoseconds]
    input_wait_ns: list[Nanoseconds | None] | None = None
    compute_ns: list[Nanoseconds | None] | None = None
    exposed_communication_ns: list[Nanoseconds | None] | None = None
    optimizer_ns: list[Nanoseconds | None] | None = None
    samples: list[Count | None] | None = None
    micro_batches: list[Count] | None = None
    epoch: int | None = None

    def __post_init__(self) -> None:
        count = len(self.duration_ns)
        waits, computes = self.input_wait_ns, self.compute_ns
        exposed, optimizers = self.exposed_communication_ns, self.optimizer_ns
        # Written out: a large job makes and takes thousands of these a second.
        if (
            len(self.start_ns) != count
            or (waits is not None and len(waits) != count)
            or (computes is not None and len(computes) != count)
            or (exposed is not None and len(exposed) != count)
            or (optimizers is not None and len(optimizers) != count)
            or (self.samples is not None and len(self.samples) != count)
            or (self.micro_batches is not None and len(self.micro_batches) != count)
        ):
            raise ValueError("the columns of steps_recorded differ in length")


class NodeStepsRecorded(Event, frozen=True, kw_only=True):
    """What StepsRecorded says of one worker, of several of a node at once: a large job has thousands of workers.

    Lists are by worker, and `table.start_ns` counts from `origin` for all. Steps of which a phase was seen now and then, or that
    took more than four seconds, come as StepsRecorded. Raises ValueError, and decoding refuses, when lists differ in length.
    """

    node: str
    generation: Count
    origin: Moment
    workers: list[str]
    ranks: list[Count]
    first_steps: list[Count]
    table: StepTable
    epoch: int | None = None

    def __post_init__(self) -> None:
        if not len(self.workers) == len(self.ranks) == len(self.first_steps) == len(self.table.counts):
            raise ValueError("the lists of node_steps_recorded differ in length")


class NodeStepsSummed(Event, frozen=True, kw_only=True):
    """The steps of a node's workers in about a second, added up, for a viewer that asked for sums instead of each step.

    Lists are by worker: the number of the first step, how many there are, where the first begins (`start_ns` counts from
    `origin`) and how long it is from there to the end of the last. `sums` are by column of a StepTable; None where it was not
    measured in every step. Raises ValueError, and decoding refuses, when the lists do not belong together.
    """

    node: str
    generation: Count
    origin: Moment
    workers: list[str]
    ranks: list[Count]
    first_steps: list[Count]
    counts: list[Annotated[int, Meta(ge=1, le=MOST_STEPS)]]
    start_ns: list[Nanoseconds]
    span_ns: list[Sum]
    sums: dict[str, list[Sum | None]]
    epoch: int | None = None

    def __post_init__(self) -> None:
        # In few steps: a large job makes and takes a thousand of these a second. That nothing is below zero the types say.
        sums, by_worker = self.sums, (self.ranks, self.first_steps, self.counts, self.start_ns, self.span_ns)
        if {*map(len, by_worker), *map(len, sums.values())} != {len(self.workers)}:
            raise ValueError("the lists of node_steps_summed differ in length")
        if not _SUMMED.issuperset(sums) or None in sums.get("duration_ns", _UNKNOWN):
            raise ValueError("node_steps_summed has columns that are not known, or no durations")
        if not self.counts or sum(self.counts) > MOST_STEPS:
            raise ValueError("node_steps_summed has no workers, or too many steps")


class SpanRecorded(Event, frozen=True, kw_only=True):
    """Time of a worker outside steps: `span` is initialisation, rendezvous, sync, evaluation, checkpoint, teardown ..."""

    node: str
    worker: str
    rank: int
    span: str
    started: Moment
    duration_s: Duration
    name: str = ""


class TrainingInterrupted(Event, frozen=True, kw_only=True):
    """Horovod left the elastic training function at `at`, to form a new generation."""

    node: str
    worker: str
    rank: int
    generation: int
    cause: Literal["failure", "hosts_changed"]


class StateRestored(Event, frozen=True, kw_only=True):
    """An elastic state went back to its last commit: the steps after it are done again."""

    node: str
    worker: str
    rank: int
    generation: int
    committed_generation: int
    committed_steps: Count
    """Steps of that generation that had ended when the state was committed."""
    committed_at: Moment | None = None


class CommitsCounted(Event, frozen=True, kw_only=True):
    """What committing the elastic state has cost a worker since the last such event."""

    worker: str
    rank: int
    generation: int
    commits: Count
    total_s: Duration


class ThreadStack(Part, frozen=True, kw_only=True):
    name: str
    frames: list[str]
    """`file:line function`, the innermost first."""


class StackTaken(Event, frozen=True, kw_only=True):
    """Where a worker's Python threads were when its steps had stopped coming; the main thread first."""

    node: str
    worker: str
    rank: int
    silent_s: Duration
    """Since the end of its last step, when it was asked."""
    threads: list[ThreadStack]
    read_by: str = ""
    """The program that read it from outside, since the worker did not answer; empty where it did."""


class MetricsLogged(Event, frozen=True, kw_only=True):
    worker: str
    rank: int
    values: dict[str, float]
    step: int | None = None
    epoch: int | None = None


class ModelDescribed(Event, frozen=True, kw_only=True):
    """What is trained and reduced, from the optimizer's own lists."""

    worker: str
    rank: int
    parameters: int | None = None
    gradient_bytes: int | None = None
    tensors: int | None = None
    backward_passes_per_step: int = 1
    optimizer: str = ""


class ProgressDeclared(Event, frozen=True, kw_only=True):
    """How long the training will be, where the framework knows it."""

    worker: str
    rank: int
    epochs: int | None = None
    steps_per_epoch: int | None = None


class EpochStarted(Event, frozen=True, kw_only=True):
    worker: str
    rank: int
    epoch: int


class PhaseUnseen(Event, frozen=True, kw_only=True):
    """A field of this worker's steps cannot be measured, and why."""

    worker: str
    rank: int
    field: str
    reason: str


# --- nodes: what the agent saw --------------------------------------------------------------------------------------


class NodeJoined(Event, frozen=True, kw_only=True):
    node: str
    host: str
    boot: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    machine: str = ""
    system: str = ""
    agent_version: str = ""
    gpus: list[str] = []


class NodeLeft(Event, frozen=True, kw_only=True):
    """An agent said goodbye."""

    node: str
    reason: str = ""


class NetworkRate(Part, frozen=True, kw_only=True):
    name: str
    received_bytes_per_s: Measure | None
    sent_bytes_per_s: Measure | None
    used_by_training: bool = False


class DiskRate(Part, frozen=True, kw_only=True):
    name: str
    read_bytes_per_s: Measure | None
    written_bytes_per_s: Measure | None
    busy_percent: Percent | None = None


class PowerRail(Part, frozen=True, kw_only=True):
    """One power reading. `within` names the rail that already holds this one, so that totals never count it twice."""

    name: str
    watts: Measure | None
    source: str
    energy_j: Measure | None = None
    """Joules since the last sample, from a counter where there is one."""
    within: str = ""


class Temperature(Part, frozen=True, kw_only=True):
    name: str
    celsius: Measure


class GpuProcess(Part, frozen=True, kw_only=True):
    """A process that the driver lists on a GPU; `pid` is the driver's, which counts in the host's namespace."""

    pid: int
    memory_bytes: int | None = None
    rank: int | None = None


class GpuReading(Part, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of it, which then follows its GPU and holds a part of that GPU's memory and processes."""

    index: int
    """The driver's number, in the order of the PCI bus; not the one that CUDA_VISIBLE_DEVICES gives it in a process."""
    instance: int | None = None
    """MIG: the number of the instance on GPU `index`; None for the GPU itself."""
    uuid: str = ""
    name: str = ""
    state: str = "ok"
    """ok, lost (off the bus), silent (its driver call does not return) or unreadable."""
    utilization_percent: Percent | None = None
    """The share of time in which some kernel ran, however small."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: Measure | None = None
    power_limit_w: Measure | None = None
    energy_j: Measure | None = None
    """Joules since the last sample, from the driver's counter."""
    sm_active_percent: Percent | None = None
    """The share of time and of streaming multiprocessors in which one had work; this and the next three are GPM's, which
    Hopper and later have."""
    sm_occupancy_percent: Percent | None = None
    """Warps in flight, of those that there is room for."""
    tensor_active_percent: Percent | None = None
    dram_active_percent: Percent | None = None
    """Of the memory's bandwidth."""
    temperature_c: Measure | None = None
    sm_clock_mhz: Measure | None = None
    memory_clock_mhz: Measure | None = None
    fan_percent: Percent | None = None
    performance_state: int | None = None
    """0 is the fastest."""
    pcie_received_bytes_per_s: Measure | None = None
    pcie_sent_bytes_per_s: Measure | None = None
    nvlink_received_bytes_per_s: Measure | None = None
    nvlink_sent_bytes_per_s: Measure | None = None
    """Sum over the links, payload only."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Memory errors since the driver was loaded."""
    retired_pages: int | None = None
    remapped_rows: int | None = None
    last_xid: int | None = None
    """The driver's last error code for this GPU since the agent began to listen."""
    throttle: list[str] = []
    """Why the clocks are lower than they could be."""
    processes: list[GpuProcess] = []
    ranks: list[int] = []
    unavailable: dict[str, str] = {}
    """Field name, "all", or "others" (all that are not named here) -> why it has no value."""
    notes: dict[str, str] = {}
    """Field name -> what to know about its value: that it is uncertain, or measured in another way."""
    age_s: dict[str, Measure] = {}
    """Field name, or "all" -> seconds since it was read, where that was not for this sample."""


class EngineReading(Part, frozen=True, kw_only=True):
    """A unit of a board beside its cores and GPU: video, vision and audio engines, the memory controller (EMC)."""

    name: str
    utilization_percent: Percent | None = None
    clock_mhz: Measure | None = None
    on: bool = True


class Pressure(Part, frozen=True, kw_only=True):
    """The share of the last ten seconds in which tasks of the node waited for a resource: `cpu`, `memory` or `io`."""

    resource: str
    some_percent: Percent | None = None
    """At least one task waited."""
    full_percent: Percent | None = None
    """All tasks that could have run waited."""


class ControlGroup(Part, frozen=True, kw_only=True):
    """What a container or batch job may use, where less than the node is open to it, and what it uses."""

    version: int
    """Of the kernel's control groups, 1 or 2."""
    cores: Measure | None = None
    """As many cores' time as it may take."""
    cpu_percent: Percent | None = None
    """CPU time as a share of `cores`."""
    throttled_s: Measure | None = None
    """Over `interval_s`: time that its cores were held back by the limit, summed over cores."""
    throttled_percent: Percent | None = None
    """The share of the scheduler's periods in which it was held back."""
    memory_used_bytes: int | None = None
    """Without the file cache that the kernel takes back first."""
    memory_limit_bytes: int | None = None
    pressures: list[Pressure] = []
    """Of the group's own tasks, where the kernel tells them apart."""


class ProcessReading(Part, frozen=True, kw_only=True):
    """One rank's process."""

    pid: int
    rank: int | None
    cpu_percent: PercentOfCore | None
    memory_bytes: int | None
    threads: int | None = None
    run_queue_wait_percent: Percent | None = None
    """Of the time: its main thread was ready to run and had no core. 100 at most, also where a longer wait ended just now."""


class NodeSampled(Event, frozen=True, kw_only=True):
    """One reading of a node. Rates are over `interval_s`; percentages of one core are 0-100, of the node likewise."""

    node: str
    interval_s: Duration
    cpu_percent: Percent | None = None
    cores_percent: list[Percent | None] = []
    cores_mhz: list[Measure | None] = []
    load_1m: Measure | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    pressures: list[Pressure] = []
    control_group: ControlGroup | None = None
    networks: list[NetworkRate] = []
    infiniband: list[NetworkRate] = []
    """Ports of adapters; they also carry what the interfaces on them carry, so the two never add up."""
    disks: list[DiskRate] = []
    power: list[PowerRail] = []
    temperatures: list[Temperature] = []
    gpus: list[GpuReading] = []
    engines: list[EngineReading] = []
    power_mode: str = ""
    """The board's own name for the limits that it runs under, such as MAXN; empty where there is none."""
    processes: list[ProcessReading] = []
    unavailable: dict[str, str] = {}
    """Field name, or a source that might have answered -> why it has no value, or is not in use."""
    sources: dict[str, str] = {}
    """Field name -> the program that gave it, where it was not read from the kernel."""
    age_s: dict[str, Measure] = {}
    """Field name -> seconds since it was read, where that was not just now."""


class ClockStepped(Event, frozen=True, kw_only=True):
    """The wall clock of a node was set: by how much it moved against the steady clock."""

    node: str
    by_s: Difference


class ClockOffsetEstimated(Event, frozen=True, kw_only=True):
    """Add `offset_s` to a node's times to get the viewer's; the true value lies within half of `round_trip_s`."""

    node: str
    offset_s: Difference
    round_trip_s: Difference


class GapFound(Event, frozen=True, kw_only=True):
    """Records that were made and will not arrive."""

    node: str
    started: Moment
    ended: Moment
    lost_records: Count
    cause: str = ""


class Ticked(Event, frozen=True, kw_only=True):
    """The viewer's clock: time passes for the state only by events like this one."""


AnyEvent = (
    SessionStarted
    | SessionEnded
    | JobStarted
    | LaunchProgressed
    | RanksAssigned
    | WorkerStarted
    | WorkerExited
    | OutputWritten
    | JobEnded
    | NoticeGiven
    | HostReachChanged
    | ActionTaken
    | MarkSet
    | MembershipChanged
    | DiscoveryReported
    | WorkerIdentified
    | StepsRecorded
    | NodeStepsRecorded
    | NodeStepsSummed
    | SpanRecorded
    | TrainingInterrupted
    | StateRestored
    | CommitsCounted
    | StackTaken
    | MetricsLogged
    | ModelDescribed
    | ProgressDeclared
    | EpochStarted
    | PhaseUnseen
    | NodeJoined
    | NodeLeft
    | NodeSampled
    | ClockStepped
    | ClockOffsetEstimated
    | GapFound
    | Ticked
)
