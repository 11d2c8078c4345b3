"""How a process ended, in words."""

from __future__ import annotations


def death(signal: str, exit_code: int | None, cause: str) -> str:
    """SIGKILL; exit code 3; SIGKILL, out of memory ... Where no signal is known, a cause stands alone. May be empty."""
    known = signal or (f"exit code {exit_code}" if exit_code is not None else "")
    if not cause:
        return known
    return f"{signal}, {cause}" if signal else cause
