"""Put wrappers around functions of a framework, in place: subclasses and copies made later carry them along."""

import functools
from threading import get_ident
from typing import Any, Callable, List, Tuple

from .steps import StepTimer

Function = Callable[..., Any]
MARK = "__distmon_wrapper__"

_applied: List[Tuple[Any, str, Any, Any]] = []


def wrap(owner: Any, name: str, make: Callable[[Function], Function]) -> None:
    """Replace `owner.name` by `make(original)`, once: a framework may show one class under several names.

    Raises AttributeError if there is no such function, which tells an unknown version.
    """
    original = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else getattr(owner, name)
    if getattr(original, MARK, None) is not original:
        wrapper = functools.wraps(original)(make(original))
        setattr(wrapper, MARK, wrapper)
        setattr(owner, name, wrapper)
        _applied.append((owner, name, original, wrapper))


def switch(on: bool) -> None:
    """Take all wrappers off, or put them back: for measuring what they cost."""
    for owner, name, original, wrapper in _applied:
        setattr(owner, name, wrapper if on else original)


def cut(timer: StepTimer, kind: str, name: str, original: Function) -> Function:
    """A function like `original` whose whole time is a span of `kind`, and no part of training."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if timer.thread != get_ident():
            return original(*args, **kwargs)
        begun = timer.cut_begins()
        try:
            return original(*args, **kwargs)
        finally:
            timer.cut_ends(begun, kind, name)

    return wrapper
