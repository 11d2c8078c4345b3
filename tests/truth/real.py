"""Real jobs under horovodrun that disturb themselves: what distmon's verdicts say of the recording, against the job's own log."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from distmon.core import measures
from distmon.core.events import Ticked
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.verdicts import Verdict, verdicts
from distmon.replay.session_file import Notes, open_session
from tests.truth.matrix import Named, blaming

JOB = Path(__file__).with_name("job.py")
DISTMON = Path(sys.executable).with_name("distmon")
BEGIN, END = 60, 220
"""The steps of the fault that verdicts are about."""
BLOCK, BLOCKS, SETTLE = 10, 32, 2
"""After these the fault is away and there in turns, for so many steps each; the first two of a block are not measured."""
STEPS = END + BLOCK * BLOCKS + 5
TRIMMED = 0.1
"""Of the steps with the fault, and of those without it: the shortest and the longest of them are left out, such as stalls."""
CROWD = 2
"""Processes by core that only spin while a crowded job runs."""
SPIN = "import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
STOP_S = 16.0
CORES = os.cpu_count() or 1
CAUSES = ("healthy", "input", "compute", "disk", "cpu_hog", "crowded", "stopped")
A_CORE_EACH = ("cpu_hog", "crowded")
"""Causes for as many ranks as cores: of more, ranks hog each other's."""
OF_THE_MACHINE = ("cpu_oversubscribed", "memory_pressure")
"""Kinds that are true of a machine that others use too."""
OF_FULL_CORES = "communication_bound"
"""True where more ranks than cores meet: their allreduce takes a fifth to a third of such a step."""
NOBODYS = ("healthy", "crowded")
"""Causes that are no rank's."""
PHASES = {"input": "input_wait", "disk": "input_wait", "compute": "compute", "cpu_hog": "compute"}


@dataclass(slots=True)
class RealTrial:
    cause: str
    ranks: int
    rank: int
    delay_s: float
    said: list[str]
    right: bool
    victims: list[int]
    named_after: int | None
    """Steps from the first delay in the job's own log, or of a crowded job its first, to the first right naming."""
    gain: tuple[float, float] | None
    measured_gain: float | None
    load: float = 0.0
    """Of the machine in the job's last minute."""


def run(cause: str, ranks: int, seed: int) -> RealTrial:
    """One job; the delay is 8 to 12 % of the step."""
    source = random.Random(f"{cause} {ranks} {seed}")
    rank, size = source.randrange(ranks), source.uniform(0.08, 0.12)
    delay, when = (STOP_S, f"{BEGIN}-{BEGIN + 1}") if cause == "stopped" else (0.1 * size, _when())
    with tempfile.TemporaryDirectory() as folder, _crowd(CROWD * CORES if cause == "crowded" else 0):
        recording = Path(folder) / "session.jsonl"
        steps = STEPS if cause in PHASES else END + 5
        job = [sys.executable, str(JOB), cause, str(rank), f"{delay:.4f}", when, str(steps), folder]
        command = [str(DISTMON), "run", "-np", str(ranks), "--headless", "--record", str(recording), "--", *job]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        log = (Path(folder) / f"rank{rank}.jsonl").read_text().splitlines()
        load = os.getloadavg()[0]
        first = 0 if cause == "crowded" else json.loads(log[0])["step"] if log else None
        trial = _judged(cause, ranks, rank, delay, recording, first)
        return replace(trial, load=load)


def blocks(*, fault: bool) -> Iterator[range]:
    """Steps after END, every other block of them."""
    for begin in range(END + BLOCK * fault, END + BLOCK * BLOCKS, 2 * BLOCK):
        yield range(begin, begin + BLOCK)


def _when() -> str:
    """The steps with the fault, as the job takes them."""
    return ",".join(f"{steps.start}-{steps.stop}" for steps in (range(BEGIN, END), *blocks(fault=True)))


@contextmanager
def _crowd(size: int) -> Iterator[None]:
    """Other programs that fill the cores meanwhile; each a session of its own, as the kernel may share time out by sessions."""
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", SPIN.format(core=number % CORES)], start_new_session=True)
        for number in range(size)
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def _judged(cause: str, ranks: int, rank: int, delay: float, recording: Path, first: int | None) -> RealTrial:
    expected = _expected(cause, rank)
    guilty = None if cause in NOBODYS else rank
    state, told, named = SessionState(), list[Verdict](), None
    victims, stalls, before = set[int](), set[Named](), set[Named]()
    for event in open_session(recording).events(Notes()):
        apply(state, event)
        step = measures.steps(state)
        if not isinstance(event, Ticked) or step >= END:
            continue
        told = verdicts(state)
        blamed = blaming(told)
        if step < BEGIN and cause not in NOBODYS:
            before |= {one for one in blamed if one[1] is None}
        stalls |= {one for one in blamed if one[0] == "stall" and one[1] is not None}
        victims |= {who for _, who, _ in blamed if who is not None and who != guilty}
        if named is None and first is not None and step and expected <= blamed:
            named = step - first
    true_here = {*OF_THE_MACHINE, *([OF_FULL_CORES] * (ranks > CORES or cause == "crowded"))} - {one[0] for one in expected}
    said = {one for one in blaming(told) - before if one[0] not in true_here} | (stalls if cause == "stopped" else set())
    gain = next((v.gain_percent for v in told if (v.kind, v.rank, v.phase) in expected), None)
    measured = measured_gain(measures.step_series(state.generations[min(state.generations)])[0]) if cause in PHASES else None
    words = [" ".join(str(part) for part in one if part is not None) for one in sorted(said, key=str)]
    right = said == expected and not victims
    return RealTrial(cause, ranks, rank, delay, words, right, sorted(victims), named, gain, measured)


def _expected(cause: str, rank: int) -> set[Named]:
    if cause == "healthy":
        return set()
    if cause == "crowded":
        return {("cpu_oversubscribed", None, None)}
    return {("stall", rank, None) if cause == "stopped" else ("straggler", rank, PHASES[cause])}


def measured_gain(durations: Sequence[float]) -> float:
    """Percent of the step that is saved where the fault is away: the two are in turns, so that what else goes on is in both."""

    def step_s(*, fault: bool) -> float:
        return _trimmed_mean([s for block in blocks(fault=fault) for s in durations[block.start + SETTLE : block.stop]])

    return 100 * (1 - step_s(fault=False) / step_s(fault=True))


def _trimmed_mean(values: list[float]) -> float:
    left_out = round(TRIMMED * len(values))
    kept = sorted(values)[left_out : len(values) - left_out]
    return sum(kept) / len(kept)


def lines(sizes: Iterable[int], seeds: range) -> Iterator[str]:
    """A Markdown row for each job as it ends, and a sentence on all."""
    yield "| ranks | cause | rank | delay | said | right | named after | gain told | gain measured | load |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    right, gains, count = 0, list[bool](), 0
    for ranks, cause, seed in product(sizes, CAUSES, seeds):
        if cause in A_CORE_EACH and ranks > CORES:
            continue
        count += 1
        try:
            trial = run(cause, ranks, seed)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"{error}\n")
            yield f"| {ranks} | {cause} | – | – | the job failed | no | – | – | – | {os.getloadavg()[0]:.1f} |"
            continue
        right += trial.right
        if trial.gain is not None and trial.measured_gain is not None:
            gains.append(trial.gain[0] <= trial.measured_gain <= trial.gain[1])
        yield _row(trial)
    yield ""
    yield f"Right class and rank in {right} of {count} jobs; measured gain within the interval in {sum(gains)} of {len(gains)}."


def _row(trial: RealTrial) -> str:
    gain = "–" if trial.gain is None else f"{trial.gain[0]:.1f} to {trial.gain[1]:.1f} %"
    measured = "–" if trial.measured_gain is None else f"{trial.measured_gain:.1f} %"
    cells = [
        str(trial.ranks),
        trial.cause,
        "–" if trial.cause in NOBODYS else str(trial.rank),
        "–" if trial.cause in (*NOBODYS, "cpu_hog") else f"{trial.delay_s * 1e3:.1f} ms",
        (", ".join(trial.said) or "nothing") + (f"; named before: {', '.join(map(str, trial.victims))}" if trial.victims else ""),
        "yes" if trial.right else "no",
        "–" if trial.named_after is None else f"{trial.named_after} steps",
        gain,
        measured,
        f"{trial.load:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"
