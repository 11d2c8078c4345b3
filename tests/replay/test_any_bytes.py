"""Whatever bytes a file holds, reading it gives events, ends, or raises the one error; replay needs no screen or socket."""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay.keyframe import BadKeyframe, decode_state, encode_state
from distmon.replay.open_index import open_index
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import Notes, open_session

ANY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
LINES = [encode_json(event) for event in session(Script(ranks=1, nodes=1, seconds=3))]
ODD = [b"", b"{}", b"[1", b'{"kind":"new","at":1}', b"\r"]
pieces = st.one_of(st.sampled_from(LINES), st.binary(max_size=40), st.sampled_from(ODD))


def read_through(path: Path) -> None:
    try:
        opened = open_session(path)
    except DistmonError as error:
        assert path.name in str(error) and "\n" not in str(error)
        return
    notes = Notes()
    for _ in opened.events(notes):
        pass
    assert all("\n" not in sentence for sentence in notes.sentences())


@ANY
@given(content=st.binary(max_size=400), packed=st.booleans())
def test_any_bytes(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = tmp_path / ("s.jsonl.zst" if packed else "s.jsonl")
    path.write_bytes(content)
    read_through(path)


@ANY
@given(lines=st.lists(pieces, max_size=12))
def test_any_lines_after_a_header(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join([LINES[0], *lines]))
    notes = Notes()
    events = list(open_session(path).events(notes))
    all_lines = [line for piece in lines for line in piece.split(b"\n")]
    own = list(takewhile(lambda line: line != LINES[0], all_lines))
    assert notes.second_session == (len(own) + 2 if len(own) < len(all_lines) else None)
    assert len(events) - 1 + notes.skipped_count + notes.unknown_count == sum(bool(line.strip()) for line in own)


@ANY
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans())
def test_any_damage_to_a_compressed_recording_or_its_index(tmp_path: Path, at: int, bit: int, cut: bool) -> None:
    path = tmp_path / "s.jsonl.zst"
    for file in tmp_path.iterdir():
        file.unlink()
    with Recorder(path) as recorder:
        for event in session(Script(ranks=1, nodes=1, seconds=3)):
            recorder.write(event)
    for file in tmp_path.iterdir():
        content = bytearray(file.read_bytes())
        position = at % len(content)
        content[position] ^= 1 << bit
        file.write_bytes(content[:position] if cut else content)
    read_through(path)
    try:
        open_index(open_session(path)).close()
    except DistmonError as error:
        assert path.name in str(error)


@ANY
@given(at=st.integers(0, 100_000), bit=st.integers(0, 7))
def test_a_damaged_state_is_refused_or_is_a_state(at: int, bit: int) -> None:
    content = bytearray(encode_state(SessionState(session_id="s" * 50)))
    content[at % len(content)] ^= 1 << bit
    try:
        assert isinstance(decode_state(bytes(content)), SessionState)
    except BadKeyframe as refused:
        assert str(refused)


def test_replay_needs_no_screen_and_no_socket() -> None:
    code = (
        "import sys, distmon.replay.player, distmon.replay.recorder, distmon.replay.report.summarise\n"
        "print([name for name in ('textual', 'zmq', 'zstandard', 'psutil') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
