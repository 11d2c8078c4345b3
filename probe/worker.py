"""This process as a worker: when it becomes one, who it is, and the hooks that it gets then.

A process is a worker once it calls `hvd.init`. Until then, and in every other Python that inherits the environment
(the launcher's helpers, data loading workers, the script's own children), nothing is hooked but one import.
"""

import atexit
import os
import platform
import sys
from typing import Any, Callable, Dict, List, Optional

from . import ring, stacks
from .imports import ImportWatch
from .steps import StepTimer

WORKER_MARK = "DISTMON_WORKER"
watch = ImportWatch()


class Worker:
    """The ring and the timer of this process, and what the hooks want done when things end."""

    def __init__(self, writer: ring.RingWriter) -> None:
        self.timer = StepTimer(writer)
        self.inits = 0
        self.initialised = False
        """Between an init and its shutdown."""
        self.flushers: List[Callable[[], None]] = []
        self.tensorflow: Optional[Any] = None
        """The hooks of TensorFlow, where the script uses it through Horovod."""
        self.keras_batch = 0
        self.resumed_epoch: Optional[int] = None
        """The epoch that an elastic state is in, until the script says itself which one comes."""
        self.epoch_offset = 0

    def epoch_of(self, told: int) -> int:
        """The epoch that a loop calls `told`: after a reset some count from 0 again."""
        if self.resumed_epoch is not None:
            self.epoch_offset = self.resumed_epoch if told < self.resumed_epoch else 0
            self.resumed_epoch = None
        return told + self.epoch_offset

    def flush(self) -> None:
        """Write what is still held back, and close what is still open."""
        for flusher in self.flushers:
            self.timer.attempt("flush", flusher)
        self.timer.attempt("evaluation", self.timer.close_evaluation)

    def finish(self) -> None:
        """The process ends: nothing more comes."""
        if self.timer.thread:
            self.flush()
            self.timer.ring.close()


_worker: Optional[Worker] = None
_failed = False


def current() -> Optional[Worker]:
    """The worker that this process is, if it is one."""
    return _worker


def is_child_of_worker() -> bool:
    """Some ancestor of this process is the worker; this process is not."""
    return os.environ.get(WORKER_MARK, str(os.getpid())) != str(os.getpid())


def wanted() -> bool:
    """The environment asks for measuring: a ring directory, and a rank given by a launcher."""
    environment = os.environ
    return (
        "DISTMON_RING_DIR" in environment
        and environment.get("DISTMON_DISABLE") != "1"
        and ("HOROVOD_RANK" in environment or "RANK" in environment)
    )


def become() -> Optional[Worker]:
    """Make this process a worker, if the environment asks for it and it can be one; None otherwise."""
    global _worker, _failed
    if _worker is None and not _failed and wanted() and not is_child_of_worker():
        try:
            writer = ring.RingWriter.create(
                os.environ["DISTMON_RING_DIR"],
                int(os.environ.get("DISTMON_RING_RECORDS", ring.DEFAULT_RECORDS)),
                host=os.environ.get("HOROVOD_HOSTNAME", ""),
            )
        except (ring.RingError, OSError, ValueError):
            # Without a ring there is nobody to tell: training goes on unmeasured, and the agent misses this rank.
            _failed = True
            return None
        _worker = Worker(writer)
        os.environ[WORKER_MARK] = str(os.getpid())
        _worker.timer.attempt("stacks", lambda: stacks.offer(writer.path))
        atexit.register(_worker.finish)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget)
    return _worker


def _forget() -> None:
    """In a forked child: it shares the ring's memory with the worker and must not write there."""
    global _worker, _failed
    if _worker is not None:
        _worker.timer.off()
        _worker.flushers = []
    _worker, _failed = None, True


_DEVICE_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)


def identity(worker: Worker, ranks: Dict[str, int]) -> Dict[str, Any]:
    """Who this worker is now: its ranks, its process and what it runs."""
    return dict(
        ranks,
        type="identity",
        generation=worker.timer.generation,
        host=worker.timer.ring.header.host,
        pid=os.getpid(),
        python=platform.python_version(),
        executable=sys.executable,
        script=os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else "",
        horovod=_version("horovod"),
        frameworks={name: _version(name) for name in ("torch", "tensorflow", "keras") if name in sys.modules},
        visible_devices={name: os.environ[name] for name in _DEVICE_VARIABLES if name in os.environ},
    )


def ranks_of_environment() -> Dict[str, int]:
    """Ranks as the launcher gave them, for a script that asks no framework."""
    environment = os.environ
    names = {"size": "WORLD_SIZE", "local_size": "LOCAL_WORLD_SIZE", "cross_rank": "GROUP_RANK"}
    ranks = {}
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        text = environment.get("HOROVOD_" + name.upper(), environment.get(names.get(name, name.upper()), ""))
        if text.isdigit():
            ranks[name] = int(text)
    return ranks


def _version(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__version__", ""))
