"""Where each thread of this worker is, written to a file when the agent of its node asks: a rank that hangs cannot tell it.

faulthandler writes from inside its signal handler, whatever the interpreter is doing. The file lies beside the ring; its first
line names the signal, one of the real-time signals that nobody has taken.
"""

import faulthandler
import os
import signal
from typing import Any, List

SUFFIX = ".stacks"
_PREFERRED = 9
"""Offset from SIGRTMIN; the first ones are taken by some C libraries."""


def offer(ring_path: str) -> None:
    """Make the file, and be ready for its signal. Raises OSError or ValueError where that cannot be."""
    number = _free_signal()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.splitext(ring_path)[0] + SUFFIX, flags, 0o600)
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    os.write(file, b"signal %d\n" % number)


def _free_signal() -> int:
    """Raises ValueError if every one is taken."""
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    numbers: List[Any] = [*range(first + _PREFERRED, last), *range(first, first + _PREFERRED)]
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            return int(number)
    raise ValueError("every real-time signal is taken")
