"""The one error that a user sees."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DistmonError(Exception):
    """A failure that the user can act on: one line saying what is wrong and what to do.

    `exit_code` is 1 for a failure and 2 for wrong usage.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(DistmonError):
    """Wrong flags or arguments; exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


def told(error: OSError) -> str:
    """In one line what the system refused, and on what. Where it names no file and something is full, that is standard output."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    return f"standard output cannot be written: {reason}" if error.errno in _FULL else f"the system refused: {reason}"
