"""The job's workers: starting them in Horovod's place, telling what happens to them, ending them."""

import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import processes, remote
from .channel import EventWriter
from .failure import Exit
from .liveness import Liveness
from .outfiles import OutputFiles
from .supervisor import FIRM, POLITE
from .worker import SSH_FAILED, Transport, Worker, start

KNOCK_ON_GRACE_S = 3.0
"""After a static job's first failure: time for the others to say what they see before they are ended."""
POLL_S = 0.2


class WorkerCommand(NamedTuple):
    """What Horovod wants to run in a slot, as data in place of its shell line."""

    argv: List[str]
    environment: Dict[str, str]


class Place(NamedTuple):
    """A worker's slot in the round in which it was started."""

    rank: int
    host: str
    local_rank: int
    generation: int
    local: bool
    """On the driver's own host."""
    static: bool
    """One failure ends the job."""

    def names(self) -> Dict[str, Any]:
        """What identifies the worker in events."""
        return {"rank": self.rank, "host": self.host, "local_rank": self.local_rank}


class Job:
    """Thread-safe: Horovod runs each worker in a thread of its own."""

    def __init__(self, spec: Dict[str, Any], writer: EventWriter) -> None:
        self.id: str = spec["job"]
        self.worker_environment: Dict[str, str] = spec["worker_environment"]
        self.guest_environment = {_latin(name): _latin(value) for name, value in spec["guest_environment"].items()}
        self.ssh_targets: Dict[str, Dict[str, Any]] = spec["ssh_targets"]
        """Host -> what ssh is told of it, where that is more than its name."""
        self.writer = writer
        self.limits: Dict[str, float] = {}
        """Seconds that Horovod waits at most: start (its own look at the network), slots, meeting."""
        self.generation = -1
        self._unready = 0
        self._first_waits = False
        self._told_progress = ("", "")
        self.resets: Optional[int] = None
        """How often Horovod's elastic driver has reset the job."""
        self._ranks: Dict[Tuple[str, int], int] = {}
        """(host, local rank) -> its rank in the latest round that gave it one."""
        self._assigned: Set[Tuple[str, int]] = set()
        self.stopping = False
        self.gave_up = ""
        """Why the launcher itself ended the job, in one line."""
        self.exits: List[Exit] = []
        self.liveness = Liveness(spec["lost_after_s"], self._tell_liveness)
        self._failed_at: Optional[float] = None
        self._workers: Dict[Worker, Place] = {}
        self._started = 0
        self._lock = threading.Lock()

    # --- what Horovod decides ---

    def assign(self, slots: List[Any]) -> None:
        """A rendezvous round gave out ranks."""
        self.generation += 1
        self._unready = len(slots)
        self._first_waits = len(slots) > 1
        self._assigned = {(slot.hostname, slot.local_rank) for slot in slots}
        self._ranks.update({(slot.hostname, slot.local_rank): slot.rank for slot in slots})
        places = [{"rank": s.rank, "host": s.hostname, "local_rank": s.local_rank} for s in slots]
        told = {"generation": self.generation, "world_size": len(places), "places": places, "resets": self.resets}
        self.writer.emit("ranks_assigned", **told)
        self.progress("rendezvous", f"waiting for {_count(len(places))} to load what they need and to meet")

    def progress(self, stage: str, detail: str, limit: str = "") -> None:
        """Tell what the launch waits for, and how long Horovod lets it."""
        if (stage, detail) != self._told_progress:
            self._told_progress = stage, detail
            self.writer.emit("progress", stage=stage, detail=detail, limit_s=self.limits.get(limit))

    def rank_waits(self) -> None:
        """A rank is there and waits for the others; the first one's patience is the round's."""
        with self._lock:
            first, self._first_waits = self._first_waits, False
        if first:
            self.progress("rendezvous", "the first rank is there and waits for the others", "meeting")

    def rank_ready(self) -> None:
        """One more rank has finished its rendezvous."""
        with self._lock:
            self._unready -= 1
            complete = self._unready == 0
        if complete:
            self.progress("first_step", "all ranks have met: waiting for the first step, for as long as it takes")

    def worker_waits(self, there: Set[Tuple[str, int]]) -> None:
        """Workers of the round that have come to the next rendezvous, or have ended; tells whom they wait for."""
        missing = [f"rank {self._ranks[slot]} on {slot[0]}" for slot in sorted(self._assigned - there) if slot in self._ranks]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            detail = f"a new round of ranks waits for {', '.join(missing[:3])}{more} to reach a commit or to end"
            self.progress("rendezvous", detail)

    def death_of(self, host: str, local_rank: int) -> Tuple[Optional[int], str, bool]:
        """Rank and cause of the latest death in a slot, and whether the launcher had asked for it."""
        for end in reversed(self.exits):
            if (end.host, end.local_rank) == (host, local_rank):
                signum = end.signal if end.signal in list(signal.Signals) else None
                cause = end.cause or (signal.Signals(signum).name if signum else f"exit code {end.exit_code}")
                return end.rank, cause, end.stopped
        return self._ranks.get((host, local_rank)), "", False

    def run_worker(self, command: WorkerCommand, place: Place, settings: Any, events: List[Any]) -> int:
        """Run one worker to its end and return its exit code; any of `events` set ends it."""
        mark = self._next_mark()
        folder = settings.output_filename
        files = OutputFiles(folder, place.rank, settings.num_proc) if folder else None
        try:
            worker = self._launch(self._spec(command, place, mark), place, settings, files)
        except OSError as error:
            return self._not_launched(place, error)
        while worker.read(POLL_S):
            self._look_after(worker, place)
            if worker.ordered_at is None and (any(e.is_set() for e in events) or (place.static and self._overdue())):
                worker.order(POLITE)
        code = worker.finish()
        if place.local:
            processes.send(processes.marked(mark), signal.SIGKILL)
        if worker.exit is None:
            self._record_loss(worker, code, place)
        if files:
            files.close()
        with self._lock:
            del self._workers[worker]
        return code

    def signal(self, rank: int, signum: int) -> None:
        """Pass a signal on to the worker that has this rank now."""
        with self._lock:
            found = [w for w, place in self._workers.items() if self._rank_now(place) == rank and w.exit is None]
        if found:
            found[-1].pass_on(signum)
        else:
            text = f"rank {rank} does not run, or was not started by distmon: no signal was sent"
            self.writer.emit("notice", severity="warning", text=text)

    # --- ending ---

    def stop(self, firm: bool) -> None:
        """End every worker: SIGTERM and a grace, or SIGKILL at once."""
        self.stopping = True
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.order(FIRM if firm else POLITE)

    def running(self) -> int:
        """Workers that have not ended with all that they started."""
        with self._lock:
            return len(self._workers)

    def sweep(self) -> None:
        """Kill what is left of the job on this host: its marked processes and the driver's own helpers."""
        processes.send(processes.descendants(os.getpid()) | processes.marked(self.id + "/"), signal.SIGKILL)

    def _names_now(self, place: Place) -> Dict[str, Any]:
        """What identifies the worker, with the rank that it has by now."""
        return dict(place.names(), rank=self._ranks.get((place.host, place.local_rank), place.rank))

    def _rank_now(self, place: Place) -> Optional[int]:
        """None for a worker whose slot was taken away."""
        slot = (place.host, place.local_rank)
        return self._ranks.get(slot) if slot in self._assigned else None

    def _overdue(self) -> bool:
        return self._failed_at is not None and time.monotonic() - self._failed_at > KNOCK_ON_GRACE_S

    # --- parts of run_worker ---

    def _next_mark(self) -> str:
        with self._lock:
            self._started += 1
            return f"{self.id}/{self._started}/"

    def _spec(self, command: WorkerCommand, place: Place, mark: str) -> Dict[str, Any]:
        environment = dict(command.environment)
        if place.local:
            environment.update(self.worker_environment)
        environment["DISTMON_GENERATION"] = str(place.generation)
        environment[processes.MARK] = mark
        return {
            "argv": [_latin(word) for word in command.argv],
            "environment": {_latin(name): _latin(value) for name, value in environment.items()},
            "inherit_environment": not place.local,
            "guest": None if place.local else {"job": self.id, "host": place.host, "environment": self.guest_environment},
            "cwd": _latin(os.getcwd()),
            "open_files": processes.inherited_open_files_limit() if place.local else None,
            "mark": mark,
            "exit_as_worker": False,
            "lost_after_s": 0 if place.local else self.liveness.limit_s,
        }

    def _launch(self, spec: Dict[str, Any], place: Place, settings: Any, files: Optional[OutputFiles]) -> Worker:
        transport = self._transport(place, settings)
        worker = Worker(transport, remote.payload(spec), lambda frame: self._on_frame(frame, place, worker, files))
        if not place.local:
            self.liveness.expect(place.host)
        with self._lock:
            self._workers[worker] = place
        worker.feed()
        if self.stopping:
            worker.order(POLITE)
        return worker

    def _transport(self, place: Place, settings: Any) -> Transport:
        """Start a supervisor where the worker is to be. Raises OSError."""
        if place.local:
            return start(remote.local_command(sys.executable))
        target = self.ssh_targets.get(place.host, {"target": place.host, "port": None})
        port = target["port"] or settings.ssh_port
        return start(remote.ssh_command(target["target"], sys.executable, port, settings.ssh_identity_file))

    def _not_launched(self, place: Place, error: OSError) -> int:
        """The supervisor, or the ssh to it, could not be started: a failure as a shell would tell it."""
        text = f"cannot start {error.filename or 'a supervisor'}: {error.strerror}"
        self.writer.emit_output(place.rank, place.host, place.local_rank, "stderr", [(text, "\n")])
        self._record_exit({"exit_code": 127, "signal": None, "pid": None}, place, False, [text])
        return 127

    def _on_frame(self, frame: Dict[str, Any], place: Place, worker: Worker, files: Optional[OutputFiles]) -> None:
        kind = frame["frame"]
        if kind == "output":
            self.writer.emit_output(stream=frame["stream"], pieces=frame["pieces"], **self._names_now(place))
            if files:
                files.write(frame["stream"], frame["pieces"])
        elif kind == "started":
            self.writer.emit("worker_started", pid=frame["pid"], generation=place.generation, **place.names())
        elif kind == "exited":
            if "at_ns" in frame and not place.local:
                frame = dict(frame, at_ns=worker.local_ns(frame["at_ns"]))
            self._record_exit(frame, place, worker.ordered_at is not None, worker.last_lines())
        elif kind == "leftovers":
            self.writer.emit("leftovers", names=frame["names"], **self._names_now(place))
        elif kind == "notice":
            text = f"rank {self._names_now(place)['rank']} on {place.host}: {frame['text']}"
            self.writer.emit("notice", severity="warning", text=text)

    def _look_after(self, worker: Worker, place: Place) -> None:
        """Tell of a host that has become silent, and give it up in the end."""
        if place.local:
            return
        self.liveness.heard(place.host, worker.heard_at)
        self.liveness.look(place.host)
        if self.liveness.lost(place.host):
            worker.cut()

    def _tell_liveness(self, host: str, state: str, silence_s: float) -> None:
        self.writer.emit(
            "host_reach",
            host=host,
            answers=state == "back",
            since=int((time.monotonic() - silence_s) * 1e9),
            ranks=sorted(self._ranks[slot] for slot in self._assigned if slot[0] == host),
            given_up_after_s=self.liveness.limit_s or None,
        )

    def _record_loss(self, worker: Worker, code: int, place: Place) -> None:
        """A worker whose connection ended before it: how it ended itself is not known."""
        silent_since = self.liveness.silent_since(place.host)
        asked = worker.ordered_at is not None and silent_since is None
        frame: Dict[str, Any] = {"exit_code": code, "signal": None, "pid": None}
        if not place.local and worker.transport_broke:
            frame["exit_code"] = SSH_FAILED
        if silent_since is not None:
            frame["cause"] = f"{place.host} did not answer for {time.monotonic() - silent_since:.0f} s"
            frame["silent_since_ns"] = int(silent_since * 1e9)
        elif not place.local and worker.transport_broke and not asked:
            frame["cause"] = f"the connection to {place.host} ended; how the rank did is not known"
        self._record_exit(frame, place, asked, worker.last_lines())

    def _record_exit(self, frame: Dict[str, Any], place: Place, asked: bool, last_lines: List[str]) -> None:
        at_ns = frame.get("at_ns", int(time.monotonic() * 1e9))
        # Horovod ends a worker whose slot it has taken away by letting it abort.
        removed = not place.static and (place.host, place.local_rank) not in self._assigned
        end = Exit(
            generation=self.generation,
            exit_code=frame["exit_code"],
            signal=frame["signal"],
            # When a host was cut off, not when it was given up: those that died of it did so in between.
            at_ns=frame.get("silent_since_ns", at_ns),
            stopped=asked or removed,
            last_lines=last_lines,
            cause=frame.get("cause", ""),
            **self._names_now(place),
        )
        self.exits.append(end)
        if end.exit_code != 0 and self._failed_at is None:
            self._failed_at = time.monotonic()
        told = {name: getattr(end, name) for name in ("exit_code", "signal", "stopped", "generation", "cause")}
        self.writer.emit(
            "worker_exited", t=at_ns, pid=frame["pid"], removed=removed and not asked, **told, **self._names_now(place)
        )


def _count(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _latin(text: str) -> str:
    """Bytes as the kernel has them, a character a byte, for hosts with other locales."""
    return os.fsencode(text).decode("latin-1")
