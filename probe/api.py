"""What a script may say itself, for loops that the hooks cannot read. Every call does nothing where nobody measures.

try:
    from distmon import probe
except ImportError:
    probe = None          # or any stand-in; under `distmon run` the import works everywhere

with probe.phase("input_wait"):
    batch = my_loader.next()
...
probe.step(samples=len(batch))
"""

from contextlib import contextmanager
from operator import index
from typing import Any, Iterator, Optional

from . import worker
from .ring import monotonic_ns
from .steps import COMPUTE, EXPOSED, INPUT_WAIT, OPTIMIZER, StepTimer

MOST_SAMPLES = 2**40
PHASES = {
    "input_wait": INPUT_WAIT,
    "compute": COMPUTE,
    "exposed_communication": EXPOSED,
    "communication": EXPOSED,
    "optimizer": OPTIMIZER,
}


def _timer() -> Optional[StepTimer]:
    """The timer of this worker; a script without Horovod becomes a worker by its first call. None where nobody measures."""
    this = worker.become()
    if this is None:
        return None
    if not this.inits:
        this.inits = 1
        this.timer.message(worker.identity(this, worker.ranks_of_environment()))
    return this.timer if this.timer.thread else None


def step(samples: Optional[int] = None) -> None:
    """A training step ends here, having trained `samples` samples on this rank. Steps found by hooks then give way."""
    timer = _timer()
    if timer is not None:
        timer.attempt("step", lambda: timer.step_ends_as_told(_samples_told(timer, samples)))


def _samples_told(timer: StepTimer, samples: Any) -> Optional[int]:
    """None, with the reason, for what is no number of samples."""
    if samples is None:
        return None
    try:
        number = index(samples)
    except TypeError:
        number = -1
    if not 0 <= number < MOST_SAMPLES:
        timer.unseen("samples", f"probe.step(samples={samples!r}) is no number of samples"[:300])
        return None
    return number


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What runs inside belongs to phase `name`: input_wait, compute, exposed_communication or optimizer."""
    timer = _timer()
    number = PHASES.get(name)
    if timer is None or number is None:
        if timer is not None:
            timer.unseen(name, "no such phase: " + ", ".join(sorted(PHASES)))
        yield
        return
    start = monotonic_ns()
    try:
        yield
    finally:
        timer.count(number, start)


@contextmanager
def span(kind: str, name: str = "") -> Iterator[None]:
    """What runs inside is no training (evaluation, checkpoint): a span of its own, and no part of a step."""
    timer = _timer()
    if timer is None:
        yield
        return
    begun = timer.cut_begins()
    try:
        yield
    finally:
        timer.cut_ends(begun, str(kind), str(name))


def metric(name: str, value: Any) -> None:
    """Note the value of a metric (a number) at this step."""
    timer = _timer()
    if timer is not None:
        timer.attempt("metrics", lambda: timer.metrics({str(name): float(value)}))


def mark(text: str) -> None:
    """Note something that happened now."""
    timer = _timer()
    if timer is not None:
        timer.message({"type": "mark", "text": str(text)[:4000]})
