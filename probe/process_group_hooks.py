"""torch's own process group, where torchrun starts the ranks: a process becomes a worker when it joins it.

DistributedDataParallel reduces inside backward, in threads that Python does not see: its waiting is part of compute.
"""

import sys
from typing import Any, Callable, List

from . import horovod_hooks, torch_hooks, worker
from .hot import OPTIMIZER
from .patching import Function, wrap
from .ring import monotonic_ns

MODULE = "torch.distributed.distributed_c10d"
WHERE_IT_IS = "torch reduces gradients inside backward, where Python sees nothing: the waiting is in compute"


def install(module: Any) -> None:
    """Hook module `torch.distributed.distributed_c10d`, before `torch.distributed` copies its names."""
    if hasattr(module, "init_process_group"):
        wrap(module, "init_process_group", _timed_init)


def _timed_init(original: Function) -> Function:
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        this = worker.become()
        if this is None or not this.timer.thread:
            return original(*args, **kwargs)
        start = monotonic_ns()
        first = this.inits == 0
        this.timer.attempt("rendezvous", lambda: horovod_hooks.before_init(this, start))
        result = original(*args, **kwargs)
        this.timer.attempt("identity", lambda: horovod_hooks.after_init(this, worker.ranks_of_environment(), start))
        if first:
            this.timer.attempt("step", lambda: _hook_optimizers(this))
        return result

    return init_process_group


def _hook_optimizers(this: worker.Worker) -> None:
    """Every optimizer's steps are the steps: nothing here says which one trains."""
    timer = this.timer
    handles: List[Any] = torch_hooks.hook_plain_optimizers(timer)
    timer.unseen("exposed_communication", WHERE_IT_IS)
    if not handles:
        return
    timer.sees(OPTIMIZER)
    register: Callable[[Function], Any] = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook

    def once(optimizer: Any, *_: Any) -> None:
        handles.pop().remove()
        timer.attempt("compute", lambda: torch_hooks.time_on_gpu(this, optimizer))

    handles.append(register(once))
