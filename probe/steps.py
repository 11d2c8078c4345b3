"""Where the time of a training step goes: every nanosecond belongs to exactly one phase, so the phases add up to the step.

The hooks say when the training thread enters and leaves a phase. Between two of them (GAP) nobody knows yet what the time
is for: it becomes compute if a backward pass follows without a batch having been asked for, and rest otherwise.

Evaluation is told from training by what follows a batch: a batch of another iterator that no backward pass used was
evaluated, and its time is taken out of the step into a span of its own.
"""

import struct
from threading import get_ident
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .ring import UNSEEN, RingWriter, monotonic_ns

INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER, REST, GRAPH, GAP, CUT = range(8)
STEP_PHASES = 6
"""Phases below this number are part of the step. GRAPH is a call into a compiled graph, split when the graph tells."""


class StepTimer:
    """Times the steps of one worker on one thread, and writes them to its ring."""

    __slots__ = (
        "_backwards",
        "_batch_before",
        "_batch_start",
        "_batches",
        "_before",
        "_epochs_stated",
        "_eval_end",
        "_eval_start",
        "_first_start",
        "_fresh",
        "_graph_told",
        "_initialising_since",
        "_made",
        "_mark",
        "_pending",
        "_phase",
        "_samples",
        "_spent",
        "_stated_samples",
        "_told",
        "_training",
        "epoch",
        "generation",
        "gpu",
        "manual",
        "passes_per_step",
        "ring",
        "seen",
        "step",
        "thread",
    )

    def __init__(self, ring: RingWriter) -> None:
        self.ring = ring
        self.thread = get_ident()
        """The thread that is timed; 0 while nothing is, so that one comparison switches every hook off."""
        self.generation = 0
        self.step = 0
        self.epoch = -1
        self.manual = False
        """The script says itself where its steps end."""
        self.seen: Set[int] = set()
        """Phases that some hook has seen so far; of the others a step says nothing."""
        self.gpu: Optional[Any] = None
        """Times the same phases on the GPU's clock, where training runs on one."""
        self.passes_per_step = 1
        """Batches that the optimizer gathers into one step."""
        self._epochs_stated = False
        self._told: Set[Tuple[str, str]] = set()
        self._stated_samples: Optional[int] = None
        self.begin_generation(0)

    def begin_generation(self, generation: int) -> None:
        """The worker was initialised (again): steps count from 0, what comes now is initialisation."""
        now = monotonic_ns()
        self.generation = generation
        self.step = 0
        self._initialising_since = now
        self._eval_start = self._eval_end = 0
        self._pending: List[int] = []
        self._training: Set[int] = set()
        self._made: Dict[int, int] = {}
        self._fresh = 0
        self._restart(now)

    def _restart(self, now: int) -> None:
        self._spent = [0] * STEP_PHASES + [0, 0]
        self._before = self._batch_before = (self._spent[:], 0, 0)
        self._graph_told = 0
        self._batch_start = self._first_start = self._mark = now
        self._phase = GAP
        self._samples = self._batches = self._backwards = 0

    # Phases

    def enter(self, phase: int) -> int:
        """The thread begins something that belongs to `phase`; returns what `leave` goes back to."""
        now = monotonic_ns()
        was = self._phase
        if was == GAP:
            self._spent[COMPUTE if phase == COMPUTE else REST] += now - self._mark
        else:
            self._spent[was] += now - self._mark
        self._mark = now
        self._phase = phase
        return was

    def leave(self, back_to: int) -> int:
        """The thread ends what it began with `enter`; returns the time."""
        now = monotonic_ns()
        self._spent[self._phase] += now - self._mark
        self._mark = now
        self._phase = back_to
        return now

    @property
    def idle(self) -> bool:
        """No hook is inside anything: the script's own code runs."""
        return self._phase == GAP or self._phase == COMPUTE

    def was_graph(self, duration_ns: int) -> None:
        """The last `duration_ns` were a call into a compiled graph, as it turns out."""
        was = self.enter(GRAPH)
        self._spent[REST if was == GAP else was] -= duration_ns
        self._spent[GRAPH] += duration_ns

    def graph_ns(self) -> int:
        """Time in compiled graphs since the last time this was asked in this step."""
        total = self._spent[GRAPH]
        new, self._graph_told = total - self._graph_told, total
        return new

    # Batches

    def iterator_wanted(self) -> int:
        """The script begins to iterate over a loader, which may start workers; returns what `leave` goes back to."""
        back_to = self.enter(INPUT_WAIT)
        self.still_initialising()
        self._phase = INPUT_WAIT
        self._mark_batch()
        return back_to

    def iterator_made(self, source: int, length: int) -> None:
        """The loader gave iterator `source` of `length` batches (UNSEEN if it cannot tell)."""
        self._made[source] = length
        self._fresh = source
        self._training.discard(source)

    def batch_wanted(self, source: int) -> None:
        """The script asks iterator `source` for a batch."""
        self.enter(INPUT_WAIT)
        if source in self._pending or (self._pending and self._eval_start):
            self._unused_batches()
        if not self._pending and self._fresh != source:
            if self._initialising_since and source not in self._made:
                self.still_initialising()
                self._phase = INPUT_WAIT
            self._mark_batch()
        self._fresh = 0
        self._pending.append(source)

    def batch_came(self, samples: int) -> None:
        """The batch is there; what follows is the forward pass. `samples` is UNSEEN if it could not be counted."""
        self.leave(COMPUTE)
        self._batches += 1
        if samples < 0 or self._samples < 0:
            self._samples = UNSEEN
        else:
            self._samples += samples
        if self.gpu is not None:
            self.gpu.mark(INPUT_WAIT)

    def batches_ended(self, source: int) -> None:
        """The iterator had no more batches."""
        self.leave(GAP)
        self._pending.remove(source)
        self._unused_batches()
        self._training.discard(source)
        self._made.pop(source, None)

    def _mark_batch(self) -> None:
        self._batch_start = self._mark
        self._batch_before = (self._spent[:], self._samples, self._batches)

    def _unused_batches(self) -> None:
        """No backward pass used the last batches: unless they came from a training iterator, that was evaluation."""
        if not self._pending or self._training.issuperset(self._pending):
            return
        if not self._eval_start:
            self._eval_start, self._before = self._batch_start, self._batch_before
        self._evaluated_until(self._mark)
        self._pending = []

    def backward_begins(self) -> int:
        """A backward pass begins: the batch trains. Returns what `leave` goes back to."""
        was = self.enter(COMPUTE)
        self.training_begins()
        # An optimizer with a closure runs backward passes inside its step.
        return OPTIMIZER if was == OPTIMIZER else GAP

    def training_begins(self) -> None:
        """What the script does now trains on the batches that it has."""
        if self._eval_start:
            self.close_evaluation()
        self._backwards += 1
        if self._pending:
            if not self._training.issuperset(self._pending):
                self._epoch_begins()
            self._pending = []

    def _epoch_begins(self) -> None:
        """The first batch of a new iterator trains."""
        if not self._epochs_stated:
            self.epoch += 1
        self._training = set(self._pending)
        batches = max(self._made.get(source, UNSEEN) for source in self._pending)
        self._made = {}
        steps = None if batches < 0 else -(-batches // self.passes_per_step)
        self.message({"type": "progress", "epoch": self.epoch, "epochs": None, "steps_per_epoch": steps})

    def epoch_stated(self, epoch: int) -> None:
        """The script says which epoch comes now."""
        self._epochs_stated = True
        self.epoch = epoch

    def backward_done(self) -> None:
        """A backward pass that could not be timed by itself has just ended."""
        self.leave(self.backward_begins())

    # Evaluation and other spans

    def evaluation_begins(self) -> None:
        """The script puts its model into evaluation mode."""
        if self._backwards or self._eval_start:
            return
        self.leave(self.enter(REST))
        self._eval_start = self._eval_end = self._mark
        self._before = (self._spent[:], self._samples, self._batches)

    def evaluation_goes_on(self) -> None:
        """Something just ended that belongs to the evaluation, if there is one: metrics averaged, model back to training."""
        if self._eval_start and not self._backwards:
            self.leave(self.enter(REST))
            self._evaluated_until(self._mark)

    def _evaluated_until(self, now: int) -> None:
        spent, self._samples, self._batches = self._before
        self._spent = spent[:]
        self._eval_end = now

    def close_evaluation(self) -> None:
        """Whatever was evaluated ends here: report it."""
        start, end = self._eval_start, self._eval_end
        self._eval_start = self._eval_end = 0
        if end > start:
            self.span("evaluation", start, end - start)

    def cut_begins(self) -> Tuple[int, int]:
        """Something that is no training begins (a checkpoint, a validation): hooks inside it are off until `cut_ends`."""
        if self._eval_start:
            self.close_evaluation()
        back_to = self.enter(CUT)
        self.thread = 0
        return back_to, self._mark

    def cut_ends(self, begun: Tuple[int, int], kind: str, name: str = "") -> None:
        """What `cut_begins` began is over: it is a span, and no part of the step."""
        self.thread = get_ident()
        back_to, start = begun
        self.span(kind, start, self.leave(back_to) - start, name)

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
        """Something just ended that comes before training: the first step has not begun yet."""
        if self._initialising_since and not self._backwards and not self._eval_start and not self._pending:
            self._restart(monotonic_ns())

    # Steps

    def step_ends(self) -> None:
        """The optimizer step is done, and with it the step."""
        end = self.leave(GAP)
        if self.manual:
            return
        self._end(end)

    def step_ends_as_told(self, samples: Optional[int]) -> None:
        """The script says that a step ends here. The first time, steps found by the hooks give way."""
        self.leave(self.enter(REST))
        if not self.manual:
            self.manual = True
            if self.step:
                self._restart(self._mark)
                return
        self._stated_samples = samples
        self._end(self._mark)
        self._stated_samples = None

    def _end(self, end: int) -> None:
        numbers = self.take_step(end)
        try:
            if self.gpu is None:
                self.ring.step(numbers)
            else:
                self.gpu.step(numbers)
        except struct.error:
            self.unseen("step", f"a number is out of range: {numbers}")

    def take_step(self, end: int) -> Tuple[int, ...]:
        """The step that ends at `end` as the ring wants it; a new one begins."""
        if self._eval_start:
            self.close_evaluation()
        if self._initialising_since:
            self._initialised_until(self._first_start)
            self._initialising_since = 0
        spent, seen = self._spent, self.seen
        duration = spent[0] + spent[1] + spent[2] + spent[3] + spent[4] + spent[5]
        samples = self._samples if INPUT_WAIT in seen else UNSEEN
        if self._stated_samples is not None:
            samples = self._stated_samples
        numbers = (
            self.step,
            self.generation,
            self.epoch,
            end - duration,
            duration,
            spent[INPUT_WAIT] if INPUT_WAIT in seen else UNSEEN,
            spent[COMPUTE] if COMPUTE in seen else UNSEEN,
            spent[EXPOSED] if EXPOSED in seen else UNSEEN,
            spent[OPTIMIZER] if OPTIMIZER in seen else UNSEEN,
            samples,
            self._batches or self._backwards or 1,
        )
        self.step += 1
        if self._pending:
            # Training without a backward pass that could be seen.
            self._training.update(self._pending)
            self._pending = []
        self._fresh = 0
        self._samples = self._batches = self._backwards = 0
        self._spent = [0, 0, 0, 0, 0, 0, 0, 0]
        self._graph_told = 0
        return numbers

    # Words

    def unseen(self, field: str, reason: str) -> None:
        """Say once why `field` of a step is None."""
        if (field, reason) not in self._told:
            self._told.add((field, reason))
            self.message({"type": "unseen", "field": field, "reason": reason})

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

    def off(self) -> None:
        """Time nothing any more: this process is a child of the worker, or the hooks have failed."""
        self.thread = 0
