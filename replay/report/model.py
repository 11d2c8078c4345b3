"""What `distmon report --json` gives; docs/json.md says what each key means. Within a format keys stay."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from distmon.core.reconcile import Reconciled
from distmon.core.scaling import Fit, Kind

FORMAT = 1


class WorldSize(Struct, kw_only=True):
    min: int | None
    max: int | None
    last: int | None


class Throughput(Struct, kw_only=True):
    generation: int | None
    """The last that trained."""
    steps: int | None
    """Of it, after warm-up."""
    mean_samples_per_s: float | None
    median_samples_per_s: float | None
    p5_samples_per_s: float | None
    p95_samples_per_s: float | None
    quantile_error: float | None
    """Relative, of the three before; 0 where they are exact."""
    quantile_steps: int | None
    ci95_samples_per_s: tuple[float, float] | None
    session_mean_samples_per_s: float | None
    last_30s_samples_per_s: float | None
    last_30s_steps_per_s: float | None


class Spell(Struct, kw_only=True):
    first_step: int
    steps: int
    step_s: float


class Warmup(Struct, kw_only=True):
    steps: int | None
    duration_s: float | None
    method: str
    excess_s: float | None
    shape: str
    stalls: int
    spells: list[Spell]


class StepSplit(Struct, kw_only=True):
    input_wait: float | None
    compute: float | None
    exposed_communication: float | None
    optimizer: float | None
    rest: float | None


class WallSplit(Struct, kw_only=True):
    launch: float | None
    rendezvous: float | None
    initialisation: float | None
    warmup: float | None
    steady: float | None
    evaluation: float | None
    checkpoint: float | None
    restart: float | None
    redone: float | None
    tail: float | None
    unexplained: float | None


class Rank(Struct, kw_only=True):
    rank: int
    host: str
    steps: int
    micro_batches: int
    step_median_s: float | None
    samples: int | None
    mean_samples_per_s: float | None
    median_samples_per_s: float | None
    step_median_error: float | None
    split_s: StepSplit
    status: str
    unseen: dict[str, str]


class Epoch(Struct, kw_only=True):
    epoch: int
    ranks: tuple[int, int] | None
    samples: int | None
    redone_samples: int | None
    duration_s: float | None
    training_s: float | None
    samples_per_s: float | None


class Metric(Struct, kw_only=True):
    name: str
    rank: int
    """The lowest that logged it."""
    value: float
    """The last."""
    step: int | None
    epoch: int | None


class Rail(Struct, kw_only=True):
    name: str
    mean_w: float | None
    within: str


class Core(Struct, kw_only=True):
    core: int
    mean_percent: float | None


class Zone(Struct, kw_only=True):
    name: str
    mean_c: float | None
    max_c: float


class Gpu(Struct, kw_only=True):
    index: int
    name: str
    utilization_mean_percent: float | None
    power_mean_w: float | None


class Silence(Struct, kw_only=True):
    from_s: float
    to_s: float | None


class HostSilence(Struct, kw_only=True):
    """A host of the job did not answer its launcher."""

    host: str
    ranks: list[int]
    from_s: float
    to_s: float | None


class Node(Struct, kw_only=True):
    node: str
    host: str
    cpu_mean_percent: float | None
    power_mean_w: float | None
    energy_j: float | None
    energy_covers: str
    rails: list[Rail]
    gpus: list[Gpu]
    cores: list[Core]
    temperatures: list[Zone]
    power_mode: str | None
    silences: list[Silence]
    unavailable: dict[str, str]


class ElasticEvent(Struct, kw_only=True):
    at_s: float
    kind: str
    host: str
    rank: int | None
    detail: str


class LostTime(Struct, kw_only=True):
    detection: float | None = None
    teardown: float | None = None
    rendezvous: float | None = None
    initialisation: float | None = None
    sync: float | None = None
    redone: float | None = None
    below_capacity: float | None = None


class ElasticBooks(Struct, kw_only=True):
    from_s: float
    to_s: float
    ranks: int
    capacity_rank_s: float
    training_rank_s: float
    unexplained_rank_s: float


class Commits(Struct, kw_only=True):
    count: int
    mean_s: float
    share_percent: float | None


class ElasticRound(Struct, kw_only=True):
    generation: int
    world_size: int | None
    assigned_at_s: float | None
    first_step_at_s: float | None
    last_step_at_s: float | None
    cause: str
    rendezvous_s: float | None
    initialisation_s: float | None
    sync_s: float | None
    first_step_s: float | None
    usual_step_s: float | None
    undone_steps: int


class ElasticSegment(Struct, kw_only=True):
    kind: str
    from_s: float
    to_s: float
    generation: int | None
    rank: int | None


class ElasticLane(Struct, kw_only=True):
    host: str
    local_rank: int
    ended: str
    failed: bool
    segments: list[ElasticSegment]


class Elastic(Struct, kw_only=True):
    generations: int
    events: list[ElasticEvent]
    lost_s: LostTime
    books: ElasticBooks | None
    goodput_percent: float | None
    redone_steps: int | None
    redone_samples: int | None
    commits: Commits | None
    rounds: list[ElasticRound]
    lanes: list[ElasticLane]


class Books(Struct, kw_only=True):
    """Each rank's time line from the job's start to its end, added up over ranks, in rank-seconds."""

    ranks: int
    total_rank_s: float
    parts_rank_s: dict[str, float]
    unexplained_percent: float


class Communication(Struct, kw_only=True):
    ranks: int
    step_s: float
    exposed_s: float
    exposed_percent: float
    compute_s: float | None
    compute_to_communication: float | None
    waiting_s: float | None
    transfer_s: float | None
    bytes_per_step: int | None
    tensors: int | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    text: str


class HorovodTensor(Struct, kw_only=True):
    name: str
    operations: int
    fused: int
    size_bytes: int | None
    negotiate_us: float
    queue_us: float
    memcpy_us: float
    reduce_us: float
    total_us: float
    """Negotiation and operation."""
    wait_for_last_rank_us: float
    last_ready_rank: int | None
    """The rank that was last most often."""
    incomplete: bool


class HorovodFusion(Struct, kw_only=True):
    reductions: int
    """Of several tensors at once."""
    tensors_per_reduction: float | None
    bytes_per_reduction: float | None
    largest_bytes: int | None
    threshold_bytes: int | None


class HorovodTimeline(Struct, kw_only=True):
    """Times are unions on the clock, in microseconds."""

    file: str
    ranks: int
    span_us: float
    communication_us: float
    negotiate_us: float
    queue_us: float
    memcpy_in_us: float
    memcpy_out_us: float
    memcpy_us: float
    reduce_us: float
    allreduce_us: float
    collective_us: dict[str, float]
    fusion: HorovodFusion
    last_ready: dict[str, int]
    """Rank -> in how many operations it was the one that was waited for."""
    incomplete_tensors: int
    tensors: list[HorovodTensor]
    notes: list[str]


class EnergyReading(Struct, kw_only=True):
    """One rail or GPU."""

    host: str
    name: str
    energy_j: float
    error_j: float | None
    measured_s: float
    mean_w: float
    peak_w: float
    counted_percent: float
    within: str


class EpochEnergy(Struct, kw_only=True):
    epoch: int
    energy_j: float
    error_j: float | None
    per_sample_j: float | None


class Energy(Struct, kw_only=True):
    energy_j: float
    error_j: float | None
    energy_wh: float
    covers: str
    mean_w: float
    peak_w: float
    idle_percent: float | None
    measured_percent: float | None
    per_sample_j: float | None
    per_useful_sample_j: float | None
    epochs: list[EpochEnergy]
    readings: list[EnergyReading]
    node_hours: float
    cost: float | None
    cost_per_sample: float | None


class StackGroup(Struct, kw_only=True):
    ranks: list[int]
    waits_in: str
    frames: list[str]


class Hang(Struct, kw_only=True):
    from_s: float
    found_at_s: float
    to_s: float | None
    missing: list[int]
    waiting: list[int]
    collective: str
    groups: list[StackGroup]
    text: str


class Failure(Struct, kw_only=True):
    rank: int | None
    host: str
    signal: str
    exit_code: int | None
    cause: str
    """In words, where signal and exit code do not say it; may be empty."""
    last_lines: list[str]
    hung_ranks: list[int]
    """Ranks for which the others had waited in vain until then; empty where training went on."""
    hung_s: float | None
    hung_signal: str
    """By which an operator had stopped them; empty where none had."""


class Verdict(Struct, kw_only=True):
    """`held_*` are None where the session was not followed, or the finding is about its end alone."""

    kind: str
    rank: int | None
    host: str
    phase: str | None
    from_s: float | None
    to_s: float | None
    evidence: str
    at_end: bool
    held_from_s: float | None
    held_to_s: float | None
    held_s: float | None
    held_percent: float | None
    gain_percent: tuple[float, float] | None
    gain_of: Literal["step", "job"]
    no_gain: str
    try_first: str = field(name="try")
    check: str
    pattern: str
    text: str


class Gap(Struct, kw_only=True):
    node: str
    from_s: float
    to_s: float
    lost_records: int
    cause: str


class Summary(Struct, kw_only=True):
    library: str
    ranks: int | None
    gpu_mean_percent: float | None
    cpu_mean_percent: float | None
    power_mean_w: float | None


class Session(Struct, kw_only=True):
    session_id: str
    started: str | None
    duration_s: float | None
    complete: bool
    command: list[str]
    exit_code: int | None
    end_reason: str | None
    world_size: WorldSize
    steps: int
    samples: int | None
    throughput: Throughput
    warmup: Warmup
    step_s: float | None
    step_split_s: StepSplit
    wall_split_s: WallSplit
    rank_seconds: Books | None
    communication: Communication | None
    horovod_timeline: HorovodTimeline | None
    energy: Energy | None
    ranks: list[Rank]
    epochs: list[Epoch]
    metrics: list[Metric]
    nodes: list[Node]
    elastic: Elastic
    hangs: list[Hang]
    host_silences: list[HostSilence]
    failure: Failure | None
    verdicts: list[Verdict]
    gaps: list[Gap]
    file: str
    distmon_version: str
    summary: Summary
    unknown_kinds: dict[str, int]
    notes: list[str]
    reasons: dict[str, str]


class Karp(Struct, kw_only=True):
    """Karp and Flatt's serial share for a number of ranks; flat over them: a serial part, rising: an overhead that grows."""

    ranks: int
    low: float
    estimate: float
    high: float


class ScalingReport(Struct, kw_only=True):
    """`points` hold both speedups and what lies between them; `fits` the laws, or why they are refused."""

    kind: Kind | None
    kind_from: Literal["stated", "samples of an epoch"] | None
    basis: str
    points: list[Reconciled]
    karp_flatt: list[Karp]
    fits: list[Fit]
    notes: list[str]


class Report(Struct, kw_only=True):
    format: int = FORMAT
    sessions: list[Session]
    scaling: ScalingReport | None = None
    """Of sessions of one job with different numbers of ranks."""
    no_scaling: str = ""
    """Why several numbers of ranks give none; empty where there is scaling, or only one."""
