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


def remember_answers(launch: Any, tell: Callable[[], None]) -> None:
    """Have `launch.mpi_built` and `launch.gloo_built` answer from the cache; `tell` is called before a slow look."""
    extensions = _extensions()
    if not extensions:
        return
    importlib.import_module("horovod.common.util").EXTENSIONS = [_framework(path) for path in extensions]
    key = json.dumps([(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in extensions])
    for name in ("mpi_built", "gloo_built"):
        original = getattr(launch, name, None)
        if original is not None:
            setattr(launch, name, _remembered(original, name, key, tell))


def _remembered(original: Callable[..., Any], name: str, key: str, tell: Callable[[], None]) -> Callable[..., Any]:
    def built(*args: Any, **kwargs: Any) -> Optional[bool]:
        known = _read().get(key, {}).get(name)
        if known is not None:
            return bool(known)
        tell()
        answer = original(*args, **kwargs)
        if answer is not None:
            _write(key, name, bool(answer))
        return None if answer is None else bool(answer)

    return built


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


def _read() -> Dict[str, Dict[str, bool]]:
    """What is known; nothing where the file is missing or was cut."""
    try:
        with open(_path(), encoding="ascii") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(key: str, name: str, answer: bool) -> None:
    known = _read()
    known.setdefault(key, {})[name] = answer
    path = _path()
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="ascii") as file:
            json.dump(known, file)
        os.replace(temporary, path)
    except OSError:
        # A cache that cannot be written costs time at the next launch, no more.
        return
