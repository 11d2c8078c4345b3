"""What the changes of an elastic job cost by the clock of the script itself: rank-seconds from `truth_script.py`'s logs."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LATE_EXIT_S = 2.0
"""The connections of a process that is killed close before the process is gone."""
FAILURE, CHANGE = "HorovodInternalError", "HostsUpdatedInterrupt"


@dataclass
class Note:
    what: str
    at: float


@dataclass
class Process:
    """One worker's log, and when it was killed, or its host was cut off."""

    slot: str
    notes: list[Note]
    killed: float | None = None
    silent: bool = False
    """Nobody is told of a cut: it counts from the last step that each rank could still end."""

    def failed(self, since: float) -> float:
        """When it noticed a failure after `since`; infinite where it did not."""
        return self.first(FAILURE, since) or math.inf

    def before(self, at: float, *what: str) -> float | None:
        """When one of these was noted last before `at`."""
        return max((note.at for note in self.notes if note.what in what and note.at < at), default=None)

    def first(self, what: str, after: float = 0.0) -> float | None:
        return next((note.at for note in self.notes if note.what == what and note.at > after), None)

    def pairs(self, what: str, begun: float) -> float:
        """Seconds from each `what`_begin to its end, from `begun` on."""
        total, since = 0.0, None
        for note in self.notes:
            if note.what == what + "_begin":
                since = note.at
            elif note.what == what + "_end" and since is not None and note.at > begun:
                total += note.at - max(since, begun)
        return total


def read(folder: Path, later: Mapping[str, float] | None = None) -> list[Process]:
    """Of every process, its log. `later`: by how much a host's CLOCK_MONOTONIC is, where it is not that of the others."""
    processes = []
    for path in sorted(folder.glob("*.log")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        slot = lines[0]["slot"]
        own = (later or {}).get(slot.partition(":")[0], 0.0)
        processes.append(Process(slot, [Note(line["what"], line["at"] - own) for line in lines]))
    return sorted(processes, key=lambda process: process.notes[0].at)


def lost(processes: list[Process], ranks: int, joined: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Rank-seconds of each part, from the first step to the last. `joined`: (host, when the discovery told of its return)."""
    begun = min(at for p in processes if (at := p.first("training")) is not None)
    ended = max(note.at for p in processes for note in p.notes if note.what == "step")
    for p in processes:
        if p.killed is not None:
            until = p.failed(p.killed) if p.silent else p.killed
            p.notes = [note for note in p.notes if note.at < until]
    killed = [p for p in processes if p.killed is not None]
    oldest = next(p for p in processes if p.killed is None)
    parts = dict.fromkeys(("detection", "teardown", "rendezvous", "initialisation", "sync", "redone"), 0.0)
    for p in processes:
        for part, seconds in _of_process(p, begun, killed, oldest).items():
            parts[part] += seconds
    changes = sorted(note.at for p in processes for note in p.notes if note.what == CHANGE)
    lives = [(p.notes[0].at, ended if p.killed is None else _loss(p, p, p.killed)) for p in processes]
    for host, seen in joined:
        start = next(p.notes[0].at for p in processes if p.slot.startswith(host + ":") and p.notes[0].at > seen)
        noticed = next(at for at in changes if at > seen)
        parts["detection"] += noticed - seen
        parts["rendezvous"] += start - noticed
        lives.append((seen, start))
    alive = sum(max(min(end, ended) - max(start, begun), 0.0) for start, end in lives)
    return {**parts, "below_capacity": ranks * (ended - begun) - alive}


def _of_process(process: Process, begun: float, killed: list[Process], oldest: Process) -> dict[str, float]:
    """`oldest` is the one whose state the others get."""
    parts = {"sync": process.pairs("sync", begun), "rendezvous": process.pairs("init", begun)}
    parts |= dict.fromkeys(("detection", "teardown", "initialisation", "redone"), 0.0)
    for note in process.notes:
        if note.what == FAILURE:
            dead = max((p for p in killed if (p.killed or 0.0) < note.at + LATE_EXIT_S), key=lambda p: p.killed or 0.0)
            loss = min(_loss(process, dead, dead.killed or 0.0), note.at)
            parts["detection"] += note.at - loss
            parts["redone"] += _undone(oldest, dead, loss)
        if note.what in (FAILURE, CHANGE):
            parts["teardown"] += (process.first("shutdown_end", note.at) or note.at) - note.at
        if note.what == "training" and note.at > begun:
            parts["initialisation"] += _getting_ready(process, begun, note.at)
    if process.killed is not None:
        parts["redone"] += _undone(oldest, process, _loss(process, process, process.killed))
    return parts


def _loss(process: Process, dead: Process, killed: float) -> float:
    """When the loss of another one, or of itself, began for a process."""
    return (process.before(process.failed(killed), "step") or killed) if dead.silent else killed


def _undone(oldest: Process, dead: Process, loss: float) -> float:
    """From the last commit of the state that goes on to the loss. It may come after it: a commit asks nobody before it saves.

    The failure may have been noticed before the dead process was gone.
    """
    failed = oldest.failed((dead.killed or loss) - LATE_EXIT_S)
    committed = oldest.before(failed, "commit", "training")
    return 0.0 if committed is None else max(min(loss, failed) - committed, 0.0)


def _getting_ready(process: Process, begun: float, training: float) -> float:
    """Before a generation's training: all since the process's start or the last teardown that is neither init nor sync."""
    since = max(n.at for n in process.notes if n.what in ("process", "shutdown_end") and n.at < training)
    bounds = [n.at for n in process.notes if n.what.startswith(("init_", "sync_")) and since < n.at < training]
    spent = sum(max(end - max(start, begun), 0.0) for start, end in zip(bounds[::2], bounds[1::2], strict=True))
    return training - max(since, begun) - spent
