"""Run something right after a module was imported, and nothing before: how hooks reach a framework that loads later."""

import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Sequence

Action = Callable[[ModuleType], None]


class ImportWatch:
    """A finder that finds nothing by itself: it lets the others find, and adds an action to what they found."""

    def __init__(self) -> None:
        self._actions: Dict[str, Action] = {}

    def add(self, name: str, action: Action) -> None:
        """Call `action` with module `name` once it is imported: now, if it already is."""
        module = sys.modules.get(name)
        if module is not None and not _is_loading(module):
            action(module)
            return
        self._actions[name] = action
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None) -> Any:
        """The spec that the other finders give, with the action tied to its loader; None for every other module."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        _after_exec(spec.loader, action)
                    return spec
        return None


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _after_exec(loader: Any, action: Action) -> None:
    """Let `loader` run `action` after it has executed its module. The loader is the module's own: it leaves no trace."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        action(module)

    loader.exec_module = exec_module
