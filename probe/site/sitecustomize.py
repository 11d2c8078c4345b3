"""What Python runs at its start in a job under distmon: arm the probe for workers, then run the user's own sitecustomize.

Every Python of the job comes through here, so nothing is loaded before Horovod itself is imported.
"""

# What starting Python has loaded already: nothing here costs an import.
import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder, spec_from_file_location

HERE = os.path.dirname(os.path.abspath(__file__))
TRIGGER = "torch.distributed.distributed_c10d" if "TORCHELASTIC_RUN_ID" in os.environ else "horovod.common.basics"
"""What gives a process its rank: torch's process group where torchrun has started it, else Horovod."""


class _Trigger:
    """Waits for what gives a rank, then loads the probe under a private name and lets it hook the import."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != TRIGGER:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        try:
            return _load_probe(path, target)
        except Exception:
            # The probe's files are damaged or of another version: training must not notice.
            return None


def _load_probe(path: object, target: object) -> object:
    """Load the probe's package by path, for distmon itself never enters the training's sys.path, and let it watch."""
    name = "_distmon_probe"
    if name not in sys.modules:
        folder = os.path.dirname(HERE)
        spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(f"no probe in {folder}")
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    spec_of_trigger: object = sys.modules[name].watch_launch(TRIGGER, path, target)
    return spec_of_trigger


def _run_own_sitecustomize() -> None:
    """Run the sitecustomize that this file hides, as Python would have."""
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != HERE])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if (
    "DISTMON_RING_DIR" in os.environ
    and ("HOROVOD_RANK" in os.environ or "RANK" in os.environ)
    and os.environ.get("DISTMON_DISABLE") != "1"
    and os.environ.get("DISTMON_WORKER", str(os.getpid())) == str(os.getpid())
):
    sys.meta_path.insert(0, _Trigger())  # type: ignore[arg-type]
_run_own_sitecustomize()
