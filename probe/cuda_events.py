"""Phases on the GPU's own clock: events left on the training's stream, read back steps later, when they are done anyway.

The CPU runs ahead of the GPU, so what it waits for in `synchronize` is also the rest of the backward pass. Events tell
them apart without a synchronisation: nothing here ever waits.
"""

from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from .ring import StepSink

INPUT_WAIT, COMPUTE, EXPOSED = range(3)
WAITING_LIMIT = 64
"""Steps whose events may be outstanding; older ones go out unsplit, so that memory stays bounded."""


class Outstanding(NamedTuple):
    """A step that waits for its events."""

    numbers: Tuple[int, ...]
    start: Any
    marks: Dict[int, Any]
    end: Any


class CudaTimer:
    """Records an event at the end of each phase on the current stream, and splits steps once their events are done."""

    def __init__(self, cuda: Any, sink: StepSink) -> None:
        self._cuda = cuda
        self._sink = sink
        self._spare: List[Any] = []
        self._marks: Dict[int, Any] = {}
        self._end: Optional[Any] = None
        self._waiting: Deque[Outstanding] = deque()

    def mark(self, phase: int) -> None:
        """The work that was enqueued until now ends `phase`; the first batch and the last of the others count."""
        if phase == INPUT_WAIT and phase in self._marks:
            return
        if phase in self._marks:
            self._spare.append(self._marks[phase])
        self._marks[phase] = self._record()

    def step(self, *numbers: int) -> None:
        """A step ended, as the CPU saw it. It is written when the GPU has come that far."""
        marks, self._marks = self._marks, {}
        start, self._end = self._end, self._record()
        self._waiting.append(Outstanding(numbers, start, marks, self._end))
        self.flush(all_of_them=False)

    def flush(self, all_of_them: bool = True) -> None:
        """Write the steps whose events are done; with `all_of_them` the others too, unsplit."""
        while self._waiting:
            step = self._waiting[0]
            done = step.end.query()
            if not done and not all_of_them and len(self._waiting) <= WAITING_LIMIT:
                return
            self._waiting.popleft()
            self._sink(*(split(step) if done else _unsplit(step.numbers)))
            self._spare.extend(step.marks.values())
            if step.start is not None:
                self._spare.append(step.start)

    def _record(self) -> Any:
        event = self._spare.pop() if self._spare else self._cuda.Event(enable_timing=True)
        event.record()
        return event


def split(step: Outstanding) -> Tuple[int, ...]:
    """The step's numbers with the phases as the GPU saw them; unsplit where a phase left no event."""
    events = [step.start, *(step.marks.get(phase) for phase in (INPUT_WAIT, COMPUTE, EXPOSED)), step.end]
    if any(event is None for event in events):
        return _unsplit(step.numbers)
    wait, compute, exposed, optimizer = (int(begin.elapsed_time(end) * 1e6) for begin, end in zip(events, events[1:]))
    # The GPU is idle from the last step to the batch while the CPU waits for input, and while it does other things.
    wait = min(wait, max(0, step.numbers[5]))
    phases = [wait, compute, exposed, optimizer]
    total, duration = sum(phases), step.numbers[4]
    if total > duration:
        # The GPU's step lags behind the CPU's: its shares hold, its length is that of a neighbouring step.
        phases = [phase * duration // total for phase in phases]
    return (*step.numbers[:5], *phases, *step.numbers[9:])


def _unsplit(numbers: Tuple[int, ...]) -> Tuple[int, ...]:
    return (*numbers[:6], -1, -1, -1, *numbers[9:])
