"""What Horovod was built with, asked once per build.

Horovod answers by importing a whole framework in a forked child, twice, at every launch: seconds to tens of seconds. The answer
lies in its extension libraries and changes only with them, so it is kept in the user's cache under their size and time.
"""

import glob
import importlib
import json
import os
from typing import Any, Callable, Dict, List, Optional

_PREFERRED = ("torch", "tensorflow", "mxnet")
"""All extensions of one build give the same answer; the one that loads fastest is asked."""
_QUESTIONS = ("mpi_built", "gloo_built")


def remember_answers(launch: Any, tell: Callable[[], None]) -> None:
    """Have `launch.mpi_built` and `launch.gloo_built` answer from the cache; `tell` is called before a slow look."""
    look = getattr(importlib.import_module("horovod.common.util"), "_check_extension_lambda", None)
    extensions = _extensions()
    if look is None or not extensions:
        return
    key = json.dumps([(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in extensions])

    def answers() -> Optional[Dict[str, bool]]:
        known = _read().get(key)
        if not isinstance(known, dict):
            tell()
            known = _ask(look, [_framework(path) for path in extensions])
            if known is not None:
                _write(key, known)
        return known

    for name in _QUESTIONS:
        if hasattr(launch, name):
            setattr(launch, name, lambda verbose=False, name=name: (answers() or {}).get(name))


def _ask(look: Callable[..., Any], frameworks: List[str]) -> Optional[Dict[str, bool]]:
    """Both questions in one child; None where no extension loads."""
    for framework in frameworks:
        found = look(framework, lambda ext: {name: bool(getattr(ext, name)()) for name in _QUESTIONS}, "built", False)
        if found:
            return dict(found)
    return None


def _framework(path: str) -> str:
    return os.path.basename(os.path.dirname(path))


def _extensions() -> List[str]:
    """Libraries of this Horovod, the preferred first."""
    folder = os.path.dirname(os.path.abspath(importlib.import_module("horovod").__file__ or ""))
    found = glob.glob(os.path.join(glob.escape(folder), "*", "mpi_lib*.so"))
    return sorted((p for p in found if _framework(p) in _PREFERRED), key=lambda p: _PREFERRED.index(_framework(p)))


def _path() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "distmon", "horovod-built.json")


def _read() -> Dict[str, Any]:
    """What is known; nothing where the file is missing or was cut."""
    try:
        with open(_path(), encoding="ascii") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(key: str, answers: Dict[str, bool]) -> None:
    path = _path()
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="ascii") as file:
            json.dump({**_read(), key: answers}, file)
        os.replace(temporary, path)
    except OSError:
        # A cache that cannot be written costs time at the next launch, no more.
        return
