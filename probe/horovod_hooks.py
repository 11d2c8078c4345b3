"""Horovod's init and shutdown, one place for every framework: where a process becomes a worker, and gets its rank again."""

import os
from types import ModuleType
from typing import Any, Dict

from . import elastic_hooks, keras_hooks, tensorflow_hooks, torch_hooks, worker
from .patching import Function, wrap
from .ring import monotonic_ns, process_start_ticks

RANKS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


def install(basics: ModuleType) -> None:
    """Hook module `horovod.common.basics`."""
    cls = getattr(basics, "HorovodBasics", None)
    # Without them this is no Horovod that we know: the rank stays unmeasured, as one that never reported.
    if hasattr(cls, "init") and hasattr(cls, "shutdown"):
        wrap(cls, "init", _timed_init)
        wrap(cls, "shutdown", _timed_shutdown)
        # A script may decorate its function before it calls init.
        elastic_hooks.install()


def _timed_init(original: Function) -> Function:
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        this = worker.become()
        if this is None or not this.timer.thread or this.initialised:
            return original(self, *args, **kwargs)
        start = monotonic_ns()
        this.timer.attempt("rendezvous", lambda: before_init(this, start))
        result = original(self, *args, **kwargs)
        this.timer.attempt("identity", lambda: after_init(this, {name: getattr(self, name)() for name in RANKS}, start))
        return result

    return init


def before_init(this: worker.Worker, start: int) -> None:
    """The worker asks for its rank, at `start`."""
    this.timer.message({"type": "phase", "phase": "rendezvous"})
    if this.inits == 0:
        began = _process_start_ns(start)
        this.timer.ring.span("initialisation", began, start - began, "imports")


def _process_start_ns(now: int) -> int:
    """Start of this process on CLOCK_MONOTONIC, from its age; exact to a clock tick."""
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    age = uptime - process_start_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
    return now - max(0, int(age * 1e9))


def after_init(this: worker.Worker, ranks: Dict[str, int], start: int) -> None:
    """It has its rank, for the first time or again."""
    timer = this.timer
    timer.ring.span("rendezvous", start, monotonic_ns() - start)
    first = this.inits == 0
    this.inits += 1
    this.initialised = True
    timer.begin_generation(int(os.environ.get("DISTMON_GENERATION", "0")) + this.inits - 1)
    timer.message(worker.identity(this, ranks))
    timer.message({"type": "phase", "phase": "initialisation"})
    if first:
        for hooks in (torch_hooks, tensorflow_hooks, keras_hooks):
            hooks.install(this)


def _timed_shutdown(original: Function) -> Function:
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        this = worker.current()
        if this is None or not this.timer.thread or not this.initialised:
            return original(self, *args, **kwargs)
        this.initialised = False
        this.flush()
        start = monotonic_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            this.timer.attempt("teardown", lambda: this.timer.ring.span("teardown", start, monotonic_ns() - start))

    return shutdown
