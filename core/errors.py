"""The one error that a user sees."""


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
