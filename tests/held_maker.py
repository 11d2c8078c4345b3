"""The process that makes an index, held by a test: it tells of a share of the index, and of the rest when it is let go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_SCRIPT = """#!{python} -P
import subprocess, sys
made = subprocess.run([{python!r}, *sys.argv[1:]], stdout=subprocess.PIPE, check=True).stdout
cut = int(len(made) * {share})
sys.stdout.buffer.write(made[:cut])
sys.stdout.flush()
open({gate!r}).read()
sys.stdout.buffer.write(made[cut:])
"""


class HeldMaker:
    """Takes the place of the maker's Python. The bytes that it gives are the real one's."""

    def __init__(self, folder: Path, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self._gate = folder / "gate"
        os.mkfifo(self._gate)
        script = folder / "python"
        script.write_text(_SCRIPT.format(python=sys.executable, share=share, gate=str(self._gate)))
        script.chmod(0o700)
        monkeypatch.setattr("distmon.replay.index_maker.sys.executable", str(script))

    def let_go(self) -> None:
        """Waits until it has told of its share."""
        self._gate.write_bytes(b"")
