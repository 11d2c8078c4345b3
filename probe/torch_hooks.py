"""PyTorch: batches, backward, waiting for collectives, optimizer step, checkpoints.

All wrappers pass through at once on another thread, in a forked child and inside what is no training: one comparison.
What runs at every step is in `hot.py`.
"""

import sys
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Dict, List

from .cuda_events import CudaTimer
from .hot import COMPUTE, EXPOSED, OPTIMIZER, Function, timed_backward, timed_batches, timed_step, timed_synchronize
from .patching import cut, wrap
from .ring import UNSEEN
from .steps import NO_FULL_BATCHES, UNCOUNTABLE, FullBatches, StepTimer
from .worker import Worker, watch

WAIT = "horovod_torch_wait_and_clear"


def install(worker: Worker) -> None:
    """Hook what is imported of torch, and what will be."""
    hooks: Dict[str, Callable[[StepTimer, Any], None]] = {
        "torch.autograd": _hook_autograd,
        "torch.utils.data.dataloader": _hook_dataloader,
        "torch.utils.data.distributed": _hook_sampler,
        "torch.nn.modules.module": _hook_module,
        "torch.serialization": _hook_serialization,
        "horovod.torch.mpi_ops": _hook_collectives,
        "horovod.torch.functions": _hook_broadcasts,
        "horovod.torch.optimizer": partial(_hook_optimizer, worker),
    }
    for name, hook in hooks.items():
        watch.add(name, _guarded(worker, name, hook))


def _guarded(worker: Worker, name: str, hook: Callable[[StepTimer, Any], None]) -> Callable[[ModuleType], None]:
    return lambda module: worker.timer.attempt(name, lambda: hook(worker.timer, module))


def _hook_autograd(timer: StepTimer, module: Any) -> None:
    wrap(module, "backward", partial(timed_backward, timer))
    timer.sees(COMPUTE)


def _hook_dataloader(timer: StepTimer, module: Any) -> None:
    def make_iter(original: Function) -> Function:
        def __iter__(self: Any) -> Any:
            if timer.thread != get_ident():
                return original(self)
            timer.iterator_wanted()
            iterator = original(self)
            timer.iterator_made(id(iterator), _length(self))
            timer.attempt("samples", lambda: timer.batches_known(id(iterator), full_batches(self)))
            return iterator

        return __iter__

    wrap(module._BaseDataLoaderIter, "__next__", partial(timed_batches, timer, count_samples))
    wrap(module.DataLoader, "__iter__", make_iter)


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        return UNSEEN


def full_batches(loader: Any) -> FullBatches:
    """Those that torch's own samplers and collation make; none where others do.

    To look at a tensor costs a third of all that the hooks do at a step.
    """
    data: Any = sys.modules["torch.utils.data"]
    batches = loader.batch_sampler
    own = type(batches) is data.BatchSampler and type(batches.sampler).__module__.startswith("torch.utils.data.")
    if not own or loader.collate_fn is not getattr(data, "default_collate", None) or not getattr(loader, "in_order", True):
        return NO_FULL_BATCHES
    if isinstance(loader.dataset, data.IterableDataset) or hasattr(loader.dataset, "__getitems__"):
        return NO_FULL_BATCHES
    return FullBatches(batches.batch_size, len(batches.sampler) // batches.batch_size)


def count_samples(data: Any) -> int:
    """Samples in a batch: the first dimension of the first tensor in it, UNCOUNTABLE if there is none."""
    if type(data) is list:
        # What the default collation makes of a data set of tuples: no search.
        try:
            return int(data[0].shape[0])
        except (AttributeError, IndexError, TypeError, ValueError):
            pass
    while True:
        if isinstance(data, (list, tuple)) and data:
            data = data[0]
        elif isinstance(data, dict) and data:
            data = next(iter(data.values()))
        else:
            break
    try:
        return int(data.shape[0])
    except (AttributeError, IndexError, TypeError, ValueError):
        return UNCOUNTABLE


def _hook_sampler(timer: StepTimer, module: Any) -> None:
    def make(original: Function) -> Function:
        def set_epoch(self: Any, epoch: int) -> Any:
            timer.epoch_stated(int(epoch))
            return original(self, epoch)

        return set_epoch

    wrap(module.DistributedSampler, "set_epoch", make)


def _hook_module(timer: StepTimer, module: Any) -> None:
    def make_eval(original: Function) -> Function:
        def eval(self: Any) -> Any:
            if timer.thread == get_ident():
                timer.evaluation_begins()
            return original(self)

        return eval

    def make_train(original: Function) -> Function:
        def train(self: Any, mode: bool = True) -> Any:
            if mode and timer.thread == get_ident():
                timer.evaluation_goes_on()
            return original(self, mode)

        return train

    wrap(module.Module, "eval", make_eval)
    wrap(module.Module, "train", make_train)


def _hook_serialization(timer: StepTimer, module: Any) -> None:
    import torch

    wrap(module, "save", partial(cut, timer, "checkpoint", "torch.save"))
    torch.save = module.save


def _hook_broadcasts(timer: StepTimer, module: Any) -> None:
    import horovod.torch

    for name in ("broadcast_parameters", "broadcast_optimizer_state"):
        wrap(module, name, partial(cut, timer, "sync", name))
        if hasattr(horovod.torch, name):
            setattr(horovod.torch, name, getattr(module, name))


def _hook_collectives(timer: StepTimer, module: Any) -> None:
    """Waits for a collective called by hand: the one C call below all of them."""

    def make(original: Function) -> Function:
        def horovod_torch_wait_and_clear(handle: Any) -> Any:
            if timer.thread != get_ident():
                return original(handle)
            timer.communication_begins()
            result = original(handle)
            timer.communication_ends()
            timer.still_initialising()
            timer.evaluation_goes_on()
            return result

        return horovod_torch_wait_and_clear

    wrap(module.mpi_lib, WAIT, make)
    timer.sees(EXPOSED)


def _hook_optimizer(worker: Worker, timer: StepTimer, module: Any) -> None:
    from horovod.torch.mpi_ops import mpi_lib

    functions = vars(mpi_lib)
    plain_steps = hook_plain_optimizers(timer)

    def make_init(original: Function) -> Function:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if timer.thread == get_ident():
                timer.still_initialising()
                while plain_steps:
                    plain_steps.pop().remove()
                timer.passes_per_step = max(1, int(self.backward_passes_per_step))
                timer.attempt("compute", lambda: time_on_gpu(worker, self))
                timer.attempt("model", lambda: timer.message(_describe(module, self)))

        return __init__

    for cls in (module._DistributedOptimizer, module._DistributedAdasumOptimizer):
        wrap(cls, "__init__", make_init)
        wrap(cls, "step", partial(timed_step, timer))
    synchronize = partial(timed_synchronize, timer, functions, WAIT, getattr(functions[WAIT], "__wrapped__", functions[WAIT]))
    wrap(module._DistributedOptimizer, "synchronize", synchronize)
    timer.sees(OPTIMIZER)


def time_on_gpu(worker: Worker, optimizer: Any) -> None:
    """Let the GPU's clock split the steps, if the parameters are on one."""
    timer = worker.timer
    if timer.gpu is None and any(parameter.is_cuda for group in optimizer.param_groups for parameter in group["params"]):
        timer.gpu = CudaTimer(sys.modules["torch"].cuda, timer.ring.step)
        timer.sink = timer.gpu.step
        worker.flushers.append(timer.gpu.flush)


def hook_plain_optimizers(timer: StepTimer) -> List[Any]:
    """Steps of optimizers that Horovod did not wrap; returns the handles that take the hooks off again.

    Where one is wrapped, its steps are the steps: torch's hooks would count them twice.
    """

    def before(*_: Any) -> None:
        if timer.thread == get_ident():
            timer.optimizer_begins()

    def after(*_: Any) -> None:
        if timer.thread == get_ident():
            timer.optimizer_ends()

    optimizer: Any = sys.modules["torch.optim.optimizer"]
    if not hasattr(optimizer, "register_optimizer_step_pre_hook"):
        timer.unseen("step", "an optimizer that Horovod does not wrap is seen with torch 2.0 and later only")
        return []
    return [optimizer.register_optimizer_step_pre_hook(before), optimizer.register_optimizer_step_post_hook(after)]


def _describe(module: Any, optimizer: Any) -> Dict[str, Any]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    reduced = [parameter for parameter in parameters if parameter.requires_grad]
    return {
        "type": "model",
        "parameters": sum(parameter.numel() for parameter in parameters),
        "tensors": len(reduced),
        "gradient_bytes": sum(parameter.numel() * parameter.element_size() for parameter in reduced),
        "optimizer": type(optimizer).__name__,
        "backward_passes_per_step": int(optimizer.backward_passes_per_step),
        "operation": _operation(module, getattr(optimizer, "op", module.Adasum)),
    }


def _operation(module: Any, operation: Any) -> str:
    return next((name for name in ("Average", "Sum", "Adasum") if getattr(module, name) == operation), str(operation))
