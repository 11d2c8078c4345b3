"""What Python runs at its start in a job under distmon: arm the probe for workers, then run the user's own sitecustomize.

Every Python of the job comes through here, so nothing is loaded before Horovod itself is imported.
"""

import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TRIGGER = "horovod.common.basics"


class _Trigger:
    """Waits for Horovod, then loads the probe under a private name and lets it hook the import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != TRIGGER:
            return None
        sys.meta_path.remove(self)
        try:
            return _probe().watch_horovod(path, target)
        except Exception:
            # The probe's files are damaged or of another version: training must not notice.
            return None


def _probe() -> Any:
    """The probe's package, loaded by path: distmon itself never enters the training's sys.path."""
    from importlib.util import module_from_spec, spec_from_file_location

    name = "_distmon_probe"
    if name not in sys.modules:
        folder = os.path.dirname(HERE)
        spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(f"no probe in {folder}")
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def _run_own_sitecustomize() -> None:
    """Run the sitecustomize that this file hides, as Python would have."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != HERE])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if (
    "DISTMON_RING_DIR" in os.environ
    and ("HOROVOD_RANK" in os.environ or "RANK" in os.environ)
    and os.environ.get("DISTMON_DISABLE") != "1"
    and os.environ.get("DISTMON_WORKER", str(os.getpid())) == str(os.getpid())
):
    sys.meta_path.insert(0, _Trigger())
_run_own_sitecustomize()
