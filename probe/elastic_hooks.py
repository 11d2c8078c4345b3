"""Elastic training: why a generation ended, what its re-initialisation took, and how far a failure throws the state back.

`horovod.common.elastic.run_fn` makes the loop around the user's function; the frameworks copy its name when they are imported.
The state's own methods are wrapped on the instance, for subclasses call those of the base class.
"""

import functools
import sys
from typing import Any

from . import worker
from .patching import Function, wrap
from .ring import monotonic_ns

MODULES = ("horovod.common.elastic", "horovod.torch.elastic", "horovod.tensorflow.elastic")
CAUSES = {"HorovodInternalError": "failure", "HostsUpdatedInterrupt": "hosts_changed"}


def install() -> None:
    """Hook run_fn wherever it is or will be known."""
    for name in MODULES:
        module = sys.modules.get(name)
        # One that is being imported right now has copied the name already, and is not seen by the watch any more.
        if module is not None and hasattr(module, "run_fn"):
            wrap(module, "run_fn", _followed_run_fn)
        elif module is None:
            worker.watch.add(name, _hook)


def _hook(module: Any) -> None:
    if hasattr(module, "run_fn"):
        wrap(module, "run_fn", _followed_run_fn)


def _followed_run_fn(original: Function) -> Function:
    def run_fn(func: Function, reset: Function) -> Function:
        run = original(_watched(func), reset)

        @functools.wraps(func)
        def elastic(state: Any, *args: Any, **kwargs: Any) -> Any:
            this = worker.current()
            if this is not None and this.timer.thread:
                this.timer.attempt("elastic", lambda: _Followed(this, state).install())
            return run(state, *args, **kwargs)

        return elastic

    return run_fn


def _watched(func: Function) -> Function:
    """The user's function; what ends a generation is told as it leaves."""

    @functools.wraps(func)
    def watched(state: Any, *args: Any, **kwargs: Any) -> Any:
        this = worker.current()
        if this is not None and this.timer.thread:
            this.timer.attempt("epoch", lambda: _resume_epoch(this, state))
        try:
            return func(state, *args, **kwargs)
        except Exception as error:
            cause = CAUSES.get(type(error).__name__)
            if this is not None and this.timer.thread and cause is not None:
                fields = {"type": "interrupted", "cause": cause, "generation": this.timer.generation}
                this.timer.attempt("interrupted", lambda: this.timer.message(fields))
            raise

    return watched


def _resume_epoch(this: worker.Worker, state: Any) -> None:
    """Where the state knows its epoch, a new loop over the data goes on with it, not with the next one."""
    epoch = getattr(state, "epoch", None)
    if type(epoch) is int and epoch >= 0:
        this.timer.epoch = epoch - 1
        this.resumed_epoch = epoch


class _Followed:
    """One elastic state: where its last commit stands, and what commits cost."""

    def __init__(self, this: worker.Worker, state: Any) -> None:
        self._worker = this
        self._timer = this.timer
        self._state = state
        self._committed = (self._timer.generation, self._timer.step)
        self._committed_ns = monotonic_ns()
        self._commits = 0
        self._commit_ns = 0

    def install(self) -> None:
        """Wrap the state's methods, once; a state without them stays as it is."""
        state = self._state
        if getattr(state, "_distmon_followed", False):
            return
        state._distmon_followed = True
        state.save = functools.wraps(state.save)(self._saving(state.save))
        state.restore = functools.wraps(state.restore)(self._restoring(state.restore))
        state.sync = functools.wraps(state.sync)(self._syncing(state.sync))
        self._worker.flushers.append(self._tell_commits)

    def _saving(self, original: Function) -> Function:
        def save(*args: Any, **kwargs: Any) -> Any:
            start = monotonic_ns()
            result = original(*args, **kwargs)
            self._committed = (self._timer.generation, self._timer.step)
            self._commits += 1
            self._committed_ns = monotonic_ns()
            self._commit_ns += self._committed_ns - start
            return result

        return save

    def _restoring(self, original: Function) -> Function:
        def restore(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            generation, steps = self._committed
            fields = {
                "type": "restored",
                "generation": self._timer.generation,
                "committed_generation": generation,
                "committed_steps": steps,
                "committed_ns": self._committed_ns,
            }
            self._timer.attempt("restored", lambda: self._timer.message(fields))
            return result

        return restore

    def _syncing(self, original: Function) -> Function:
        def sync(*args: Any, **kwargs: Any) -> Any:
            start = monotonic_ns()
            result = original(*args, **kwargs)
            self._timer.attempt("sync", lambda: self._timer.span("sync", start, monotonic_ns() - start))
            return result

        return sync

    def _tell_commits(self) -> None:
        """At the end of a generation and of the worker."""
        if self._commits:
            commits, self._commits, total_ns, self._commit_ns = self._commits, 0, self._commit_ns, 0
            fields = {"generation": self._timer.generation, "commits": commits, "total_s": total_ns / 1e9}
            self._timer.message(dict(fields, type="commits"))
