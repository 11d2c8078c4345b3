"""`from distmon import probe` inside a training process, where distmon itself is not installed.

The folder above is on the job's path under `distmon run`. It hands on the probe's calls (see `probe/api.py`).
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

__all__ = ["mark", "metric", "phase", "span", "step"]


def _probe() -> Any:
    """The probe's package under its private name, the one that the hooks are in."""
    name = "_distmon_probe"
    if name not in sys.modules:
        folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(f"no probe in {folder}")
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


_api = _probe().api_functions()
mark, metric, phase, span, step = (_api[name] for name in __all__)
