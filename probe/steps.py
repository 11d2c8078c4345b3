"""Where the time of a training step goes: every nanosecond is counted once, so the phases add up to the step.

The timer keeps one mark, the end of what was counted last. A hook that ends a piece of work counts the time since the
mark for its phase and moves the mark; a hook that begins one may move the mark first, which leaves what lay between to
the rest. Nobody need see the forward pass: from the batch to the end of the backward pass it is all compute, and where
no batch was seen, from the last step on.

Evaluation is told from training by what follows a batch: a batch that no backward pass used, of an iterator that has not
trained, was evaluated, and its time is taken out of the step into a span of its own.
"""

import os
from threading import get_ident
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from .hot import COMPUTE, EXPOSED, INPUT_WAIT, OPTIMIZER, PHASES, Counters
from .ring import UNSEEN, RingWriter, StepSink, monotonic_ns

__all__ = ["COMPUTE", "EXPOSED", "INPUT_WAIT", "OPTIMIZER", "PHASES", "UNCOUNTABLE", "StepTimer"]

SPLIT = ("input_wait", "compute", "exposed_communication", "optimizer")
"""The phases by the names of their fields, in the order of PHASES."""
UNCOUNTABLE = -(2**40)
"""Samples of a batch that hold no tensor: however many are added to it, the sum stays negative."""

NO_LOADER = "no DataLoader or tf.data iterator feeds this loop; waiting for its input counts as compute"
NOT_STATED = "no DataLoader or tf.data iterator feeds this loop, and probe.step() was not told samples="


class Snapshot(NamedTuple):
    """How much of the running step was counted, at a moment to which it may have to go back."""

    wait: int
    compute: int
    exposed: int
    cut: int
    samples: int
    batches: int


class FullBatches(NamedTuple):
    """The batches that an iterator begins with, all of one size, where that is known before they come."""

    size: int
    """Samples in each."""
    batches: int


NO_FULL_BATCHES = FullBatches(0, 0)


def samples_per_step() -> Optional[int]:
    """What the user said of every step, where the data loader cannot be seen; None if nothing, or nothing that can be meant."""
    stated = os.environ.get("DISTMON_SAMPLES_PER_STEP", "")
    return int(stated) if stated.isdecimal() and int(stated) > 0 else None


class StepTimer(Counters):
    """Times the steps of one worker on one thread, and writes them to its ring."""

    __slots__ = (
        "_batch_before",
        "_batch_start",
        "_before",
        "_epochs_stated",
        "_eval_end",
        "_eval_start",
        "_fresh",
        "_full",
        "_graph",
        "_initialising_since",
        "_made",
        "_pending",
        "_seen",
        "_stated_samples",
        "_told",
        "_training",
        "fed",
        "passes_per_step",
        "ring",
        "samples_per_step",
        "sink",
    )

    def __init__(self, ring: RingWriter) -> None:
        self.ring = ring
        self.slots = ring.slots
        self.thread = get_ident()
        self.epoch = -1
        self.manual = False
        self.flush_at = 0
        self.passes_per_step = 1
        """Batches that the optimizer gathers into one step."""
        self.gpu = None
        self.sink: StepSink = ring.step
        """Where steps go."""
        self._seen: Set[int] = set()
        self._epochs_stated = False
        self._told: Set[Tuple[str, str]] = set()
        self._stated_samples: Optional[int] = None
        self.samples_per_step = samples_per_step()
        """What the user said of every step; None where nothing was."""
        self.begin_generation(0)

    def begin_generation(self, generation: int) -> None:
        """The worker was initialised (again): steps count from 0, what comes now is initialisation."""
        self.generation = generation
        self.step = 0
        self._eval_start = self._eval_end = 0
        self._pending: List[int] = []
        self._training: Set[int] = set()
        self.feeding = 0
        self.graph = self.in_graph = 0
        self._made: Dict[int, int] = {}
        self._full: Dict[int, FullBatches] = {}
        self._seen.discard(INPUT_WAIT)
        self.fed = False
        """A loader or iterator that hooks see has trained since the worker was initialised."""
        self.seen_all = False
        self._epochs_stated = False
        self._restart()
        self._initialising_since = self.mark
        self.attention = True

    def _restart(self) -> None:
        """The running step begins now, with nothing counted."""
        now = monotonic_ns()
        self.start = self.mark = self._batch_start = now
        self.wait = self.compute = self.exposed = self.optimizer = self._graph = self.cut = 0
        self.samples = self.batches = self.backwards = self._fresh = 0
        self.in_step = False
        self._before = self._batch_before = Snapshot(0, 0, 0, 0, 0, 0)

    # Counting

    def begins(self) -> None:
        """A piece of work begins; what lay before it belongs to no phase."""
        self.mark = monotonic_ns()

    def input_ends(self) -> None:
        """Since the mark, the script waited for input."""
        now = monotonic_ns()
        self.wait += now - self.mark
        self.mark = now

    def backward_ends(self) -> None:
        """Since the mark, the script computed, up to the end of a backward pass: the batch trained."""
        now = monotonic_ns()
        self.compute += now - self.mark
        self.mark = now
        self.backwards += 1
        if self.attention:
            self.training_begins()
        if self.gpu is not None:
            self.gpu.mark(COMPUTE)

    def communication_begins(self) -> None:
        """The script begins to wait for a collective, by hand or in the middle of an optimizer step."""
        now = monotonic_ns()
        if self.in_step:
            self.optimizer += now - self.mark
        self.mark = now

    def communication_ends(self) -> None:
        """Since the mark, the script waited for a collective."""
        now = monotonic_ns()
        self.exposed += now - self.mark
        self.mark = now
        if self.gpu is not None:
            self.gpu.mark(EXPOSED)

    def optimizer_begins(self) -> None:
        """The optimizer step begins. It may wait for collectives first."""
        self.mark = monotonic_ns()
        self.in_step = True

    def optimizer_fails(self) -> None:
        """The optimizer step raised: no step ends."""
        self.in_step = False

    def optimizer_ends(self) -> None:
        """Since the mark, the optimizer worked; its step is done, and with it the training step."""
        now = monotonic_ns()
        self.optimizer += now - self.mark
        self.mark = now
        self.in_step = False
        if not self.manual:
            self.end_step(now)

    def graph_ends(self, duration_ns: int) -> int:
        """The last `duration_ns` were a call into a compiled graph that trained; returns the time."""
        now = self.mark = monotonic_ns()
        self._graph += duration_ns
        self.backwards += 1
        return now

    # Batches

    def iterator_wanted(self) -> None:
        """The script begins to iterate over a loader, which may start workers."""
        self.begins()
        self.still_initialising()
        self._mark_batch()

    def iterator_made(self, source: int, length: int) -> None:
        """The loader gave iterator `source` of `length` batches (UNSEEN if it cannot tell)."""
        self.input_ends()
        self._made[source] = length
        self._full.pop(source, None)
        self._fresh = source
        self.attention = True
        self._stop_training(source)

    def batches_known(self, source: int, full: FullBatches) -> None:
        """What iterator `source`, just made, begins with."""
        self._full[source] = full

    def batch_wanted(self, source: int) -> None:
        """The script asks iterator `source` for a batch."""
        self.mark = monotonic_ns()
        if source in self._training:
            self.feeding = source
            self.batch_size, self.full_batches = self._full.pop(source, NO_FULL_BATCHES)
        else:
            self.full_batches = 0
            self.batch_may_train(source)

    def batch_may_train(self, source: int) -> None:
        """A batch of an iterator that has not trained yet: remember how things stood, in case it is evaluated."""
        if source in self._pending or (self._pending and self._eval_start):
            self._unused_batches()
        if not self._pending and self._fresh != source:
            if source not in self._made:
                self.still_initialising()
            self._mark_batch()
        self._fresh = 0
        full = self._full.get(source, NO_FULL_BATCHES)
        self._full[source] = full._replace(batches=max(full.batches - 1, 0))
        self._pending.append(source)
        self.attention = True

    def batch_came(self, samples: int) -> None:
        """The batch is there; what follows is the forward pass. `samples` is UNCOUNTABLE if they could not be counted."""
        now = monotonic_ns()
        self.wait += now - self.mark
        self.mark = now
        self.batches += 1
        self.samples += samples
        if self.gpu is not None:
            self.gpu.mark(INPUT_WAIT)

    def batches_ended(self, source: int) -> None:
        """The iterator had no more batches."""
        self.input_ends()
        if source in self._pending:
            self._pending.remove(source)
            self._unused_batches()
        self._stop_training(source)
        self._made.pop(source, None)
        self._full.pop(source, None)

    def _stop_training(self, source: int) -> None:
        self._training.discard(source)
        self.feeding = 0

    def _mark_batch(self) -> None:
        self._batch_start = self.mark
        self._batch_before = self._snapshot()

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.wait, self.compute, self.exposed, self.cut, self.samples, self.batches)

    def _unused_batches(self) -> None:
        """No backward pass used the last batches, which come from iterators that train nothing: that was evaluation."""
        self._pending = []
        if not self._eval_start:
            self._eval_start, self._before = self._batch_start, self._batch_before
        self._evaluated_until(self.mark)

    def training_begins(self) -> None:
        """What the script does now trains on the batches that it has."""
        if self._eval_start:
            self.close_evaluation()
        if self._pending:
            self._epoch_begins()

    def _epoch_begins(self) -> None:
        """The first batch of a new iterator trains."""
        if not self._epochs_stated:
            self.epoch += 1
        self._training, self._pending = set(self._pending), []
        self.feeding = 0
        self.fed = True
        self.sees(INPUT_WAIT)
        batches = max(self._made.get(source, UNSEEN) for source in self._training)
        self._made = {}
        steps = None if batches < 0 else -(-batches // self.passes_per_step)
        self.message({"type": "progress", "epoch": self.epoch, "epochs": None, "steps_per_epoch": steps})

    def epoch_stated(self, epoch: int) -> None:
        """The script says which epoch comes now."""
        self._epochs_stated = True
        self.epoch = epoch

    # Evaluation and other spans

    def evaluation_begins(self) -> None:
        """The script puts its model into evaluation mode."""
        if not self.backwards and not self._eval_start:
            self._eval_start = self._eval_end = monotonic_ns()
            self.attention = True
            self._before = self._snapshot()

    def evaluation_goes_on(self) -> None:
        """Something just ended that belongs to the evaluation, if there is one: metrics averaged, model back to training."""
        if self._eval_start and not self.backwards:
            self._evaluated_until(monotonic_ns())

    def _evaluated_until(self, now: int) -> None:
        """What was counted since the evaluation began was no training."""
        self.wait, self.compute, self.exposed, cut, self.samples, self.batches = self._before
        self.cut = cut + now - self._eval_start
        self._eval_end = self.mark = now

    def close_evaluation(self) -> None:
        """Whatever was evaluated ends here: report it."""
        start, end = self._eval_start, self._eval_end
        self._eval_start = self._eval_end = 0
        if end > start:
            self.span("evaluation", start, end - start)

    def cut_begins(self) -> int:
        """Something that is no training begins (a checkpoint, a validation): hooks inside it are off until `cut_ends`."""
        if self._eval_start:
            self.close_evaluation()
        self.thread = 0
        return monotonic_ns()

    def cut_ends(self, start: int, kind: str, name: str = "") -> None:
        """What began at `start` is over: it is a span, and no part of the step."""
        self.thread = get_ident()
        duration = monotonic_ns() - start
        self.cut += duration
        self.mark += duration
        self.span(kind, start, duration, name)
        self.still_initialising()

    def span(self, kind: str, start_ns: int, duration_ns: int, name: str = "") -> None:
        """Report a span; initialisation stops before it and goes on after it."""
        if self._initialising_since:
            self._initialised_until(start_ns)
            self._initialising_since = start_ns + duration_ns
        self.ring.span(kind, start_ns, duration_ns, name)

    def _initialised_until(self, end_ns: int) -> None:
        if end_ns > self._initialising_since:
            self.ring.span("initialisation", self._initialising_since, end_ns - self._initialising_since, "")

    def still_initialising(self) -> None:
        """Something happens that comes before training: the first step has not begun before now."""
        if self._initialising_since and not (self.backwards or self._eval_start or self._pending):
            self._restart()

    # Steps

    def step_ends_as_told(self, samples: Optional[int]) -> None:
        """The script says that a step ends here. The first time, steps found by the hooks give way."""
        if not self.manual:
            self.manual = True
            if self.step:
                self._restart()
                return
        self._stated_samples = samples
        if samples is not None:
            self.samples = samples
        self.attempt("step", lambda: self.end_step(monotonic_ns()))
        self._stated_samples = None

    def end_step(self, end: int, sink: Optional[StepSink] = None) -> None:
        """Give the step that ends at `end` to `sink`, or where steps go; a new one begins."""
        sink = sink or self.sink
        if self.attention:
            self._before_step_ends()
        duration = end - self.start - self.cut
        step = self.step
        if self.seen_all and self.samples >= 0:
            phases: Tuple[int, ...] = (self.wait, self.compute, self.exposed, self.optimizer, self.samples, self.batches)
        else:
            phases = self._only_seen(step)
        sink(step, self.generation, self.epoch, end - duration, duration, *phases)
        self.begin_step(end)

    def begin_step(self, now: int) -> None:
        """A step has ended, and the next begins."""
        self.step += 1
        self.start = now
        self.wait = self.compute = self.exposed = self.optimizer = self.cut = 0
        self.samples = self.batches = self.backwards = 0

    def _before_step_ends(self) -> None:
        """What came before the step that ends now is over: initialisation, evaluation, batches that nobody knew to train."""
        if self._eval_start:
            self.close_evaluation()
        if self._initialising_since:
            self._initialised_until(self.start)
            self._initialising_since = 0
        if self._pending:
            self._epoch_begins()
        self._fresh = 0
        self.attention = False

    def _only_seen(self, step: int) -> Tuple[int, ...]:
        """The phases of the step, its samples and batches, with UNSEEN for what no hook can see here."""
        if not self._graph:
            self._explain(step)
        self._graph = 0
        counted = (self.wait, self.compute, self.exposed, self.optimizer)
        return self.seen_of(counted, self.samples, self.batches or self.backwards or 1)

    def seen_of(self, counted: Sequence[int], samples: int, batches: int) -> Tuple[int, ...]:
        """The phases, samples and batches of a step of which so much was counted, with UNSEEN for what no hook can see."""
        phases = [number if phase in self._seen else UNSEEN for phase, number in zip(PHASES, counted)]
        samples = samples if self.fed and samples >= 0 else UNSEEN
        if self._stated_samples is not None:
            samples = self._stated_samples
        elif self.samples_per_step is not None:
            samples = self.samples_per_step
        return (*phases, samples, batches)

    def _explain(self, step: int) -> None:
        """Say why, once it is clear that it stays so."""
        if step != 1 or self.fed:
            return
        if INPUT_WAIT not in self._seen and not self.manual:
            self.unseen("input_wait", NO_LOADER)
        if self.samples_per_step is None and self._stated_samples is None:
            self.unseen("samples", NOT_STATED if self.manual else NO_LOADER)

    def sees(self, *phases: int) -> None:
        """Hooks for these phases are in place."""
        self._seen.update(phases)
        self.seen_all = self._seen.issuperset(PHASES) and self.fed and self.samples_per_step is None

    # Words

    def unseen(self, field: str, reason: str) -> None:
        """Say once why `field` of a step is None."""
        if (field, reason) not in self._told:
            self._told.add((field, reason))
            self.message({"type": "unseen", "field": field, "reason": reason})

    def unsplit(self, reason: str) -> None:
        """Say once why steps are not split into phases."""
        for field in SPLIT:
            self.unseen(field, reason)

    def message(self, fields: Dict[str, Any]) -> None:
        """Write a message; one that is no JSON or too long is said to be so instead."""
        try:
            self.ring.message(dict(fields, time_ns=monotonic_ns()))
        except (TypeError, ValueError) as error:
            self.unseen(str(fields.get("type")), str(error))

    def metrics(self, values: Dict[str, float]) -> None:
        """Report metrics of the step that just ended, or runs."""
        self.message({"type": "metrics", "step": self.step, "epoch": self.epoch, "values": values})

    def attempt(self, feature: str, action: Callable[[], None]) -> None:
        """Do something of ours that must not fail in the script's face; if it fails, `feature` is reported as unseen."""
        try:
            action()
        except Exception as error:
            self.unseen(feature, f"{type(error).__name__}: {error}"[:300])

    def count(self, phase: int, since: int) -> None:
        """Since `since`, the script was in `phase`, as it says itself."""
        # Hooks inside may have counted a part already.
        since = max(since, self.mark)
        now = self.mark = monotonic_ns()
        self.sees(phase)
        if phase == INPUT_WAIT:
            self.wait += now - since
        elif phase == COMPUTE:
            self.compute += now - since
        elif phase == EXPOSED:
            self.exposed += now - since
        else:
            self.optimizer += now - since

    def off(self) -> None:
        """Time nothing any more: this process is a child of the worker."""
        self.thread = 0
