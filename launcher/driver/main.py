"""Entry: drive horovod.runner for one job. `python main.py EVENTS_FD`, run by distmon under the training's Python.

Standard input holds the spec (one JSON line) and then orders; what happens goes to EVENTS_FD as JSON lines.
Horovod starts Python processes that import this file again, so importing it does nothing.
"""

import importlib.util
import os
import sys

PACKAGE = "_distmon_driver"


def _load_package() -> None:
    """Make this folder importable under a private name, and not as a place to find modules in."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != folder]
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def main() -> None:
    """Run the job that the first line of standard input describes; never returns."""
    _load_package()
    control = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    events = int(sys.argv[1])
    os.set_inheritable(events, False)
    importlib.import_module(PACKAGE + ".run").run(control, events)


if __name__ == "__main__":
    main()
