"""One node: sensors, intake of the ranks' records, journal, publisher."""

from __future__ import annotations

import sys


def _import_msgspec() -> None:
    """Without typing_extensions, of which it wants nothing that this Python lacks, and which brings `inspect`, `ast` and `dis`
    along: a tenth of an agent's start, and a megabyte of its memory."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # so says the import system: not to be imported
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


_import_msgspec()
