"""horovodrun's --output-filename: DIR/rank.N/stdout and stderr."""

import os
from typing import Any, List, Set

_written: Set[str] = set()


class OutputFiles:
    """Files of one worker. A later worker with the same rank adds to them, where Horovod would overwrite."""

    def __init__(self, folder: str, rank: int, size: int) -> None:
        path = os.path.join(folder, "rank." + str(rank).zfill(len(str(max(0, size - 1)))))
        os.makedirs(path, exist_ok=True)
        self._files = {name: _open(os.path.join(path, name)) for name in ("stdout", "stderr")}

    def write(self, stream: str, pieces: List[Any]) -> None:
        """Append pieces with what ended them."""
        self._files[stream].write("".join(text + end for text, end in pieces).encode("utf-8", "replace"))

    def close(self) -> None:
        """Close both."""
        for file in self._files.values():
            file.close()


def _open(path: str) -> Any:
    mode = "ab" if path in _written else "wb"
    _written.add(path)
    return open(path, mode, buffering=0)
