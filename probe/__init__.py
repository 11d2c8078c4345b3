"""What loads inside a training process. Standard library only; never blocks, never raises into user code.

The training's Python loads this folder by path, under a private name (`site/sitecustomize.py`). Scripts may say
`from distmon import probe` and call the functions of `api.py`; where nothing is measured they do nothing.
"""

import sys
from typing import Any, Dict

API = ("mark", "metric", "phase", "span", "step")


def api_functions() -> Dict[str, Any]:
    """The script's own calls by name: those of the copy that the hooks are in, where there is one."""
    hooked = sys.modules.get("_distmon_probe")
    if hooked is not None and hooked.__name__ != __name__:
        functions: Dict[str, Any] = hooked.api_functions()
        return functions
    from . import api

    return {name: getattr(api, name) for name in API}


def __getattr__(name: str) -> Any:
    """A call of the script's, loaded when first used: the agent imports this package for the ring alone."""
    if name in API:
        return api_functions()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def watch_launch(name: str, path: Any, target: Any) -> Any:
    """Hook what gives a process its rank, Horovod or torch's process group, which is being imported right now; its spec."""
    from . import horovod_hooks, process_group_hooks
    from .worker import watch

    watch.add(name, process_group_hooks.install if name == process_group_hooks.MODULE else horovod_hooks.install)
    return watch.find_spec(name, path, target)
