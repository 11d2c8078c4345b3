"""Keras: epochs, progress and logs from its callback list; evaluation and checkpoints as spans; accumulation."""

from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Dict

from .patching import Function, cut, wrap
from .worker import Worker, watch

TRAINING = ("keras.src.engine.training", "keras.engine.training", "tensorflow.python.keras.engine.training")
CALLBACKS = ("keras.src.callbacks", "keras.callbacks", "tensorflow.python.keras.callbacks")
OPTIMIZERS = (
    ("keras.src.optimizers.optimizer", "Optimizer"),
    ("keras.optimizers.optimizer_experimental.optimizer", "Optimizer"),
    ("keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2"),
    ("keras.optimizers.optimizer_v2.optimizer_v2", "OptimizerV2"),
)


def install(worker: Worker) -> None:
    """Hook Keras, in whichever place this TensorFlow keeps it."""

    def when(name: str, hook: Callable[[Worker, Any], None]) -> None:
        def action(module: ModuleType) -> None:
            worker.timer.attempt(name, lambda: hook(worker, module))

        watch.add(name, action)

    for name in TRAINING:
        when(name, _hook_model)
    for name in CALLBACKS:
        when(name, _hook_callbacks)
    for name, cls in OPTIMIZERS:
        when(name, partial(_hook_optimizer, cls))
    when("horovod._keras", _hook_distributed_optimizer)


def _hook_optimizer(cls: str, worker: Worker, module: Any) -> None:
    if worker.tensorflow is not None:
        worker.tensorflow.hook_optimizer(module, cls)


def _hook_model(worker: Worker, module: Any) -> None:
    timer = worker.timer
    for name, kind in (
        ("evaluate", "evaluation"),
        ("predict", "evaluation"),
        ("save", "checkpoint"),
        ("save_weights", "checkpoint"),
    ):
        wrap(module.Model, name, partial(cut, timer, kind, "Model." + name))


def _hook_callbacks(worker: Worker, module: Any) -> None:
    timer = worker.timer

    def before(name: str, action: Callable[..., None]) -> None:
        def make(original: Function) -> Function:
            def callback(self: Any, *args: Any, **kwargs: Any) -> Any:
                if timer.thread == get_ident():
                    timer.attempt(name, lambda: action(self, *args, **kwargs))
                return original(self, *args, **kwargs)

            return callback

        wrap(module.CallbackList, name, make)

    def train_begins(callbacks: Any, logs: Any = None) -> None:
        timer.still_initialising()
        model = callbacks.model
        if worker.tensorflow is not None:
            worker.tensorflow.gathers(getattr(model.optimizer, "_agg_helper", None))
            worker.tensorflow.ask_again()
            worker.tensorflow.steps_in_call = _steps_in_call(model)
            if worker.tensorflow.steps_in_call > 1:
                before("on_train_batch_begin", batch_begins)
                before("on_train_batch_end", batch_ends)
        timer.message(_describe(worker, model))

    def train_ends(callbacks: Any, logs: Any = None) -> None:
        if worker.tensorflow is not None:
            worker.tensorflow.steps_in_call = 1

    def epoch_begins(callbacks: Any, epoch: int, logs: Any = None) -> None:
        number = worker.epoch_of(int(epoch))
        timer.epoch_stated(number)
        params = callbacks.params or {}
        timer.message(
            {
                "type": "progress",
                "epoch": number,
                "epochs": params.get("epochs"),
                "steps_per_epoch": _optimizer_steps(params.get("steps"), timer.passes_per_step),
            }
        )

    def epoch_ends(callbacks: Any, epoch: int, logs: Any = None) -> None:
        for flusher in worker.flushers:
            flusher()
        values = {str(name): number for name, number in _numbers(logs or {}).items()}
        if values:
            timer.metrics(values)

    def batch_begins(callbacks: Any, batch: int, logs: Any = None) -> None:
        worker.keras_batch = batch

    def batch_ends(callbacks: Any, batch: int, logs: Any = None) -> None:
        if worker.tensorflow is not None and worker.tensorflow.steps_in_call > 1:
            worker.tensorflow.steps_taken(batch - worker.keras_batch + 1)

    before("on_train_begin", train_begins)
    before("on_train_end", train_ends)
    before("on_epoch_begin", epoch_begins)
    before("on_epoch_end", epoch_ends)


def _steps_in_call(model: Any) -> int:
    steps: Any = getattr(model, "_steps_per_execution", None)
    return int(steps.numpy()) if hasattr(steps, "numpy") else 1


def _optimizer_steps(batches: Any, passes: int) -> Any:
    return None if batches is None else -(-int(batches) // passes)


def _numbers(logs: Dict[str, Any]) -> Dict[str, float]:
    """The logs that are single numbers."""
    numbers = {}
    for name, value in logs.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            continue
    return numbers


def _describe(worker: Worker, model: Any) -> Dict[str, Any]:
    variables = model.trainable_variables
    sizes = [variable.shape.num_elements() or 0 for variable in variables]
    return {
        "type": "model",
        "parameters": int(model.count_params()) if model.built else sum(sizes),
        "tensors": len(variables),
        "gradient_bytes": sum(size * variable.dtype.size for size, variable in zip(sizes, variables)),
        "optimizer": type(model.optimizer).__name__,
        "backward_passes_per_step": worker.timer.passes_per_step,
        "operation": None,
    }


def _hook_distributed_optimizer(worker: Worker, module: Any) -> None:
    """How many batches an optimizer gathers into one step."""

    def make(original: Function) -> Function:
        def create_distributed_optimizer(*args: Any, **kwargs: Any) -> Any:
            optimizer = original(*args, **kwargs)
            if worker.tensorflow is not None:
                worker.tensorflow.gathers(optimizer._agg_helper)
            return optimizer

        return create_distributed_optimizer

    wrap(module, "create_distributed_optimizer", make)
