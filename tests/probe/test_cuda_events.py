"""The GPU's clock on a pretended GPU: what events say, when they are asked, and what happens when they never come."""

from distmon.probe.cuda_events import COMPUTE, EXPOSED, INPUT_WAIT, CudaTimer


class Gpu:
    """A stream that works through what is recorded on it only when told to; its events know their time then."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.pending: list[Event] = []
        self.made = 0

    def Event(self, enable_timing: bool) -> "Event":
        assert enable_timing
        self.made += 1
        return Event(self)

    def run(self, *durations_ms: float) -> None:
        for duration, event in zip(durations_ms, self.pending, strict=False):
            self.now_ms += duration
            event.done_at = self.now_ms
        self.pending = self.pending[len(durations_ms) :]


class Event:
    """As `torch.cuda.Event`; it has no `synchronize`, so that waiting would fail."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.done_at: float | None = None

    def record(self) -> None:
        self.done_at = None
        self.gpu.pending.append(self)

    def query(self) -> bool:
        return self.done_at is not None

    def elapsed_time(self, end: "Event") -> float:
        assert self.done_at is not None and end.done_at is not None
        return end.done_at - self.done_at


def cpu_step(index: int, duration_ms: int = 100) -> tuple[int, ...]:
    """A step as the CPU saw it: all its waiting in `synchronize`."""
    return (index, 0, 0, 0, duration_ms * 10**6, 5 * 10**6, 1, 90 * 10**6, 1, 32, 1)


def train(timer: CudaTimer, index: int) -> None:
    for phase in (INPUT_WAIT, COMPUTE, EXPOSED):
        timer.mark(phase)
    timer.step(*cpu_step(index))


def test_phases_are_the_gpus_and_come_when_it_is_done() -> None:
    gpu, written = Gpu(), list[tuple[int, ...]]()
    timer = CudaTimer(gpu, lambda *numbers: written.append(numbers))
    train(timer, 0)
    train(timer, 1)
    assert written == []
    gpu.run(0, 0, 0, 0, 5, 50, 30, 10)
    train(timer, 2)
    assert [numbers[0] for numbers in written] == [0, 1]
    assert written[1][5:9] == (5_000_000, 50_000_000, 30_000_000, 10_000_000)
    assert written[0][5:9] == (5_000_000, -1, -1, -1)


def test_phases_never_exceed_the_step() -> None:
    gpu, written = Gpu(), list[tuple[int, ...]]()
    timer = CudaTimer(gpu, lambda *numbers: written.append(numbers))
    train(timer, 0)
    train(timer, 1)
    gpu.run(0, 0, 0, 0, 5, 150, 30, 15)
    timer.flush()
    assert sum(written[1][5:9]) <= written[1][4]


def test_a_gpu_that_never_answers_costs_bounded_memory_and_no_wait() -> None:
    gpu, written = Gpu(), list[tuple[int, ...]]()
    timer = CudaTimer(gpu, lambda *numbers: written.append(numbers))
    for index in range(200):
        train(timer, index)
    assert len(written) == 200 - 64
    timer.flush()
    assert [numbers[0] for numbers in written] == list(range(200))


def test_events_are_used_again() -> None:
    gpu = Gpu()
    timer = CudaTimer(gpu, lambda *numbers: None)
    for index in range(100):
        train(timer, index)
        gpu.run(*[1.0] * 4)
    assert gpu.made < 20
