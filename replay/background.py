"""Work in a thread of its own, whose result is asked for without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Begins at once. What the work raises, `result` raises."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._result: T | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="distmon-beside", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._result = work()
        except Exception as error:
            self._failure = error

    def result(self) -> T | None:
        """None while it is not done."""
        if self._thread.is_alive():
            return None
        if self._failure is not None:
            raise self._failure
        return self._result

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until it is done, whatever came of it."""
        self._thread.join()
