"""What the verbs that tell of recordings write, by where they write it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections import Counter

import pytest

from distmon.tui.cli.main import main


def report_on_a_terminal(columns: int) -> list[str]:
    """The report of the demo as it is written to a terminal so wide; 0 is one that does not say."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = list[str]()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(terminal, "write", written.append)
        assert main(["report", "--demo"]) == 0
    os.close(master)
    return "".join(written).splitlines()


def test_text_is_no_wider_than_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--demo"]) == 0
    piped = capsys.readouterr().out.splitlines()
    assert report_on_a_terminal(200) == report_on_a_terminal(0) == piped
    narrow = report_on_a_terminal(80)
    sentences = [line for line in piped if 80 < len(line) <= 118 and ". " in line]
    assert sentences and not set(sentences) & set(narrow)
    assert max(map(len, narrow)) <= 80
    # Tables go on below, with their first column again.
    assert Counter(" ".join(piped).split()) <= Counter(" ".join(narrow).split())
