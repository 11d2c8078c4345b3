"""Recordings are read back as they were made; damage costs what it hit and is said."""

from __future__ import annotations

import json
import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from distmon.core import events as ev
from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.core.synthetic import Script, session
from distmon.replay.build_index import build_index
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import Notes, load_state, open_session

EVENTS = list(session(Script(ranks=2, nodes=1, seconds=20)))


def record(path: Path, events: list[ev.AnyEvent], *, flush_each: bool = False) -> Path:
    with Recorder(path) as recorder:
        for event in events:
            recorder.write(event)
            if flush_each:
                recorder.flush()
    return path


def read(path: Path) -> tuple[list[ev.AnyEvent], Notes]:
    notes = Notes()
    return list(open_session(path).events(notes)), notes


@pytest.fixture(params=["s.jsonl", "s.jsonl.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_a_recording_is_read_back_whole(path: Path) -> None:
    record(path, EVENTS)
    events, notes = read(path)
    assert events == EVENTS
    assert notes.sentences() == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_first_line_is_the_header_and_lines_are_plain_json(tmp_path: Path) -> None:
    path = record(tmp_path / "s.jsonl", EVENTS)
    lines = path.read_bytes().split(b"\n")
    assert lines[0].startswith(b'{"kind":"session_started"')
    header = json.loads(lines[0])
    assert {"at", "session_id", "distmon_version", "origin"} <= set(header)
    assert header["format"] == [ev.FORMAT_MAJOR, ev.FORMAT_MINOR]
    assert lines[-1] == b"" and len(lines) == len(EVENTS) + 1


def test_a_second_after_an_event_it_is_in_the_file(path: Path) -> None:
    now = [0.0]
    recorder = Recorder(path, clock=lambda: now[0])
    recorder.write(EVENTS[0])
    recorder.write(EVENTS[1])
    now[0] = 1.0
    recorder.write(EVENTS[2])
    assert read(path)[0] == EVENTS[:3]
    recorder.close()


def test_a_recording_never_overwrites(path: Path) -> None:
    record(path, EVENTS[:2])
    with pytest.raises(DistmonError, match="there already"):
        Recorder(path)


def test_appending_to_a_torn_file_starts_on_a_line_of_its_own(path: Path) -> None:
    record(path, EVENTS[:50], flush_each=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with Recorder(path, append=True) as recorder:
        recorder.write(EVENTS[50])
    events, notes = read(path)
    assert path.read_bytes()[: len(whole) - 7] == whole[:-7]
    assert events[-1] == EVENTS[50]
    assert events[:-1] == EVENTS[: len(events) - 1] and len(events) >= 40
    assert notes.sentences()


def test_a_file_cut_anywhere_loads_up_to_the_cut(path: Path) -> None:
    record(path, EVENTS[:60], flush_each=True)
    whole = path.read_bytes()
    header = len(encode_json(EVENTS[0]))
    for cut in range(header + 60, len(whole), max(len(whole) // 60, 1)):
        path.write_bytes(whole[:cut])
        events, notes = read(path)
        assert events == EVENTS[: len(events)]
        last_line_whole = path.suffix == ".jsonl" and whole[cut - 1 : cut + 1] in (b"}\n",)
        if path.suffix == ".jsonl" and whole[cut - 1 : cut] != b"\n" and not last_line_whole:
            assert notes.torn and "cut off" in notes.sentences()[0]


def test_a_damaged_compressed_part_costs_only_itself(tmp_path: Path) -> None:
    import zstandard

    path = tmp_path / "s.jsonl.zst"
    lines = [encode_json(event) + b"\n" for event in EVENTS]
    frames = [zstandard.ZstdCompressor(write_checksum=True).compress(b"".join(lines[i : i + 20])) for i in range(0, 80, 20)]
    spoilt = bytearray(frames[1])
    spoilt[len(spoilt) // 2] ^= 0xFF
    path.write_bytes(frames[0] + bytes(spoilt) + frames[2] + frames[3])
    events, notes = read(path)
    assert events[:20] == EVENTS[:20] and events[-40:] == EVENTS[40:80]
    assert notes.damage and "damaged" in " ".join(notes.sentences())


def numbered(lost: range = range(0), gap: bool = False, late: bool = False) -> list[ev.AnyEvent]:
    """A minute of two streams of a node, without some events of one of them; `late`: what the viewer never had is before them."""
    told: list[ev.AnyEvent] = [EVENTS[0]]
    told.append(ev.NodeJoined(at=1.0, stream="n/b/node", seq=1, node="n", host="h"))
    told.append(ev.ModelDescribed(at=1.5, stream="n/b/ranks", seq=1, worker="w", rank=0, parameters=1, tensors=1))
    for number in range(2 + 500 * late, 62 + 500 * late):
        if gap and number == lost.stop:
            told.append(ev.GapFound(at=9.0, node="n", started=8.0, ended=9.0, lost_records=len(lost), cause="c"))
        for stream in ("node", "ranks"):
            if stream == "node" or number not in lost:
                told.append(ev.NodeSampled(at=float(number), stream=f"n/b/{stream}", seq=number, node="n", interval_s=1.0))
    return told


def test_lines_that_were_taken_out_are_counted_by_the_numbers_of_the_others(path: Path) -> None:
    record(path, numbered(range(20, 32)))
    said = "12 lines are missing, as the numbers of the others tell: 12 of n"
    assert read(path)[1].sentences() == [said]
    assert build_index(open_session(path)).notes == [said]  # which a replay shows


def test_a_gap_of_the_agents_own_tells_of_no_line(path: Path) -> None:
    """What it lost, steps of a ring, never had a number."""
    events = numbered(range(20, 32))
    place = next(i for i, event in enumerate(events) if (event.stream, event.seq) == ("n/b/node", 5))
    events[place] = ev.GapFound(at=5.0, stream="n/b/node", seq=5, node="n", started=4.0, ended=5.0, lost_records=50, cause="ring")
    record(path, events)
    assert read(path)[1].sentences() == ["12 lines are missing, as the numbers of the others tell: 12 of n"]


def test_what_a_gap_tells_of_or_a_late_viewer_never_had_is_not_missing(tmp_path: Path) -> None:
    for name, events in (("a", numbered()), ("b", numbered(range(20, 32), gap=True)), ("c", numbered(late=True))):
        assert read(record(tmp_path / f"{name}.jsonl", events))[1].sentences() == []
    newer = [encode_json(event) for event in numbered()]
    newer[50] = newer[50].replace(b"node_sampled", b"node_dreamt")
    (tmp_path / "d.jsonl").write_bytes(b"\n".join(newer) + b"\n")
    assert read(tmp_path / "d.jsonl")[1].sentences() == ["skipped 1 line of unknown kind (node_dreamt): 51"]


def test_a_file_joined_with_another_is_read_up_to_the_second_session(path: Path) -> None:
    whole = record(path, EVENTS).read_bytes()
    once, _ = load_state(path)
    path.write_bytes(whole + whole)
    twice, notes = load_state(path)
    assert twice == once
    assert notes.second_session == len(EVENTS) + 1
    assert [f"line {len(EVENTS) + 1}" in sentence for sentence in notes.sentences()] == [True]
    with closing(Player(open_session(path))) as player:
        assert player.notes == notes.sentences()
        player.seek(player.duration_s)
        assert player.take_state() == once


def test_newer_minor_loads_and_counts_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    header = ev.SessionStarted(at=1.0, session_id="s", distmon_version="9", format=(ev.FORMAT_MAJOR, ev.FORMAT_MINOR + 3))
    path.write_bytes(encode_json(header) + b'\n{"kind":"hologram_seen","at":2.0}\n' + encode_json(ev.Ticked(at=3.0)) + b"\n")
    state, notes = load_state(path)
    assert state.now == 3.0
    assert dict(state.unknown_kinds) == {"hologram_seen": 1}
    assert notes.unknown == [(2, "hologram_seen")]
    assert any(f"{ev.FORMAT_MAJOR}.{ev.FORMAT_MINOR + 3}" in s for s in notes.sentences())


def test_newer_major_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "future.jsonl"
    path.write_bytes(b'{"kind":"session_started","format":[99,0],"everything":"else"}\n')
    with pytest.raises(DistmonError, match=r"future\.jsonl has format 99\.0") as refused:
        open_session(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("foreign.jsonl", b"hello\nworld\n"),
        ("list.jsonl", b"[]\n"),
        ("other.jsonl", b'{"kind":"ticked","at":1.0}\n'),
        ("binary.jsonl.zst", b"\x00\x01\x02\x03 not zstd"),
        ("empty.jsonl", b""),
        ("blank.jsonl", b"\n\n"),
        ("cut.jsonl", b'{"kind":"session_st'),
    ],
)
def test_what_is_no_session_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DistmonError, match=name.replace(".", r"\.")):
        open_session(path)
    assert path.read_bytes() == content


def test_what_is_no_file_is_refused_without_blocking_and_links_are_only_read(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to(record(tmp_path / "s.jsonl", EVENTS[:3]))
    said = {"folder": "a folder", "pipe": "not a regular file", "none": "no such file"}
    for name, words in said.items():
        with pytest.raises(DistmonError, match=words):
            open_session(tmp_path / f"{name}.jsonl")
    assert open_session(tmp_path / "link.jsonl").header == EVENTS[0]
    for name in ("folder", "pipe", "link"):
        with pytest.raises(DistmonError, match="cannot be written"):
            Recorder(tmp_path / f"{name}.jsonl", append=True)


def test_a_file_that_cannot_be_read_to_its_end_is_named() -> None:
    with pytest.raises(DistmonError, match="/proc/self/mem cannot be read: Input/output error"):
        open_session(Path("/proc/self/mem"))


def test_a_line_over_the_limit_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.replay.lines.LINE_LIMIT", 1 << 20)
    path = record(tmp_path / "s.jsonl", EVENTS[:3])
    with path.open("ab") as file:
        file.write(b"x" * (3 << 20) + b"\n" + encode_json(EVENTS[3]) + b"\n")
    events, notes = read(path)
    assert events == EVENTS[:4]
    assert [line for line, _ in notes.skipped] == [4]


def test_a_failed_write_ends_the_recording_and_not_the_job(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(path)
    recorder.write(EVENTS[0])
    recorder.flush()

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distmon.replay.recorder._write_all", no_space)
    recorder.write(EVENTS[1])
    recorder.flush()
    recorder.write(EVENTS[2])
    recorder.close()
    assert "No space left" in recorder.failed
    monkeypatch.undo()
    assert read(path)[0] == EVENTS[:1]
