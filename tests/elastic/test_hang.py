"""Real ranks of which one stays away: the hang is told while it lasts, with every rank's stack; a second pause there is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distmon.core.codec import decode_json
from distmon.core.events import StackTaken
from distmon.core.fold import apply
from distmon.core.state import SessionState
from tests.launcher.driving import within

SCRIPT = Path(__file__).with_name("hang_script.py")
LATEST_S = 12.0
"""Ten seconds after three times the usual step, and two for a machine that is busy."""
pytestmark = pytest.mark.timeout(300)


def test_a_pause_is_told_once_and_a_skipped_collective_while_it_lasts(tmp_path: Path) -> None:
    recording, said = tmp_path / "run.jsonl", tmp_path / "said"
    words = [sys.executable, "-m", "distmon.tui.cli.main", "run", "--headless", "--record", str(recording), "-np", "2", "--"]
    words += [sys.executable, str(SCRIPT), "7", "7", "1s"]
    with said.open("wb") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        job = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    try:
        assert within(200, lambda: said.read_text(errors="replace").count("training hangs") >= 2), said.read_text()
    finally:
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 130
    state = SessionState()
    stacks = []
    for line in recording.read_bytes().splitlines():
        event = decode_json(line)
        apply(state, event)
        stacks += [event] if isinstance(event, StackTaken) else []
    pause, skipped = state.hang_watch.hangs
    assert pause.missing == skipped.missing == [1] and pause.waiting == skipped.waiting == [0]
    assert pause.collective == skipped.collective == "allreduce of the gradients"
    assert pause.ended is not None and skipped.ended is None
    assert [group.place.rpartition(" ")[2] for group in pause.groups if group.ranks == [1]] == ["look_something_up"]
    assert [group.waits_in for group in skipped.groups if group.ranks == [1]] == ["allreduce"]
    for hang in (pause, skipped):
        assert hang.found - hang.since < 3 * hang.usual_s + LATEST_S
    assert {stack.rank for stack in stacks} == {0, 1}
