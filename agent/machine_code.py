"""`native`: the agent's machine code (`_native.c`); None where that was not built, and the same in Python serves."""

from __future__ import annotations

try:
    from distmon.agent import _native as native
except ImportError:
    native = None  # type: ignore[assignment]

__all__ = ["native"]
