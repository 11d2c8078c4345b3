"""Put wrappers around functions of a framework, in place: subclasses and copies made later carry them along."""

import functools
from typing import Any, Callable

Function = Callable[..., Any]


def wrap(owner: Any, name: str, make: Callable[[Function], Function]) -> None:
    """Replace `owner.name` by `make(original)`. Raises AttributeError if there is no such function, which tells the version."""
    original = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))
