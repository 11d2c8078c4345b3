"""The journal: what is written is found again, whatever happens to the agent, to the file or to the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distmon.agent import journal as module
from distmon.agent.journal import Journal
from distmon.agent.segments import SUFFIX, Commit, Scan, Snapshot, encode
from distmon.core.errors import DistmonError
from distmon.wire.backlog import Backlog, Part

STREAM = "n/b1/ranks"


def opened(folder: Path, boot: str = "b1", limit: int = 1 << 20, age_s: float = 1e6, machine: str = "m1") -> Journal:
    return Journal(folder, boot, machine, limit, age_s)


def text(number: int) -> bytes:
    return b"event %d" % number


def write(journal: Journal, first: int, last: int, at: float = 0.0, stream: str = STREAM) -> bool:
    part = Part(stream, first, [text(number) for number in range(first, last + 1)])
    return journal.write([part], b"mark %d" % last, at or float(first))


def numbers(journal: Journal, cursor: int = 0, stream: str = STREAM) -> list[int]:
    """All from a cursor on, as a viewer would ask for them."""
    found: list[int] = []
    while events := journal.read(stream, cursor, 100):
        assert [event.encoded for event in events] == [text(event.seq) for event in events]
        found += [event.seq for event in events]
        cursor = found[-1] + 1
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*" + SUFFIX))


def test_from_any_cursor_all_that_follows(folder: Path) -> None:
    with closing(opened(folder)) as journal:
        for first in range(1, 100, 3):
            assert write(journal, first, first + 2)
        for cursor in (0, 1, 2, 50, 99, 100):
            assert numbers(journal, cursor) == list(range(max(cursor, 1), 100))


def test_an_agent_that_was_killed_goes_on_with_the_same_numbers(folder: Path) -> None:
    journal = opened(folder)
    write(journal, 1, 5)
    os.close(journal._lock)  # as the end of its process does
    with closing(opened(folder, boot="b2")) as again:
        assert (again.boot, again.next_seqs, again.mark) == ("b1", {STREAM: 6}, b"mark 5")
        write(again, 6, 7)
        assert numbers(again) == list(range(1, 8))
    assert len(segments(folder)) == 1


def test_after_the_machine_was_off_numbers_begin_anew_and_the_old_ones_are_still_given(folder: Path) -> None:
    with closing(opened(folder)) as journal:
        write(journal, 1, 5)
    with closing(opened(folder, boot="b2", machine="m2")) as again:
        assert again.boot == "b2"
        write(again, 1, 3, stream="n/b2/ranks")
        assert again.streams() == [STREAM, "n/b2/ranks"]
        assert (numbers(again), numbers(again, stream="n/b2/ranks")) == ([1, 2, 3, 4, 5], [1, 2, 3])


def test_two_agents_cannot_share_it(folder: Path) -> None:
    with closing(opened(folder)), pytest.raises(DistmonError, match="in use by another agent"):
        opened(folder)
    opened(folder).close()


def test_an_open_folder_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(DistmonError, match="open to other users"):
        opened(folder)


def test_the_oldest_segments_go_by_size_and_by_age(folder: Path) -> None:
    with closing(opened(folder, limit=40_000, age_s=100.0)) as journal:
        for first in range(1, 20_000, 10):
            write(journal, first, first + 9, at=1.0)
        assert journal.held_bytes <= 40_000 + 10_000
        assert sum(path.stat().st_size for path in segments(folder)) == journal.held_bytes
        held = numbers(journal)
        assert held == list(range(journal.oldest(STREAM), 20_001))
        assert len(held) > 1000
        write(journal, 20_001, 20_001, at=1000.0)
        assert journal.oldest(STREAM) > held[0]


def test_what_is_kept_outlives_its_segment_and_a_restart(folder: Path) -> None:
    with closing(opened(folder, limit=40_000)) as journal:
        journal.write([Part(STREAM, 1, [b"who", b"x"], {0: "identity"})], b"", 1.0)
        for first in range(3, 20_000, 10):
            write(journal, first, first + 9)
        assert journal.oldest(STREAM) > 3
        assert journal.kept(STREAM) == {"identity": (1, b"who")}
    with closing(opened(folder)) as again:
        assert again.kept(STREAM) == {"identity": (1, b"who")}
        backlog = Backlog(name=STREAM, store=again)
        piece = backlog.slice_from(0)
        assert piece is not None
        assert (piece.seq, piece.events, piece.history) == (1, 1, True)


def test_since_a_time(folder: Path) -> None:
    with closing(opened(folder, limit=40_000)) as journal:
        for first in range(1, 3000, 10):
            write(journal, first, first + 9, at=float(first))
        assert journal.since(STREAM, 2991.0) == 2991
        assert journal.since(STREAM, 2501.5) == 2511
        assert journal.since(STREAM, 1e9) == journal.next_seqs[STREAM]
        assert journal.since(STREAM, 0.0) == journal.oldest(STREAM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A segment with a snapshot and five commits of two events."""
    folder = tmp_path_factory.mktemp("whole") / "journal"
    with closing(opened(folder)) as journal:
        for first in range(1, 10, 2):
            write(journal, first, first + 1)
    (path,) = segments(folder)
    return path.read_bytes()


def laid_out(folder: Path, content: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in segments(folder):
        path.unlink()
    (folder / f"00000001{SUFFIX}").write_bytes(content)
    (folder / "continues").write_text("b1 m1")


def test_cut_after_any_byte_only_the_torn_record_is_lost(folder: Path, whole: bytes) -> None:
    ends = [found.offset + found.size for found in Scan(whole)]
    for cut in range(len(whole) + 1):
        laid_out(folder, whole[:cut])
        with closing(opened(folder, boot="b2")) as journal:
            records = sum(end <= cut for end in ends)
            assert numbers(journal) == list(range(1, 2 * max(records - 1, 0) + 1))
            torn = cut not in (0, *ends)
            assert bool(journal.notices) == torn
            # What came after the cut may have been sent: its numbers are not used again.
            assert journal.boot == ("b2" if torn or not records else "b1")
            stream = f"n/{journal.boot}/ranks"
            first = journal.next_seqs.get(stream, 1)
            assert write(journal, first, first, stream=stream)
        with closing(opened(folder, boot="b3")) as again:
            assert numbers(again, first, stream)[-1:] == [first]


def test_any_flipped_bit_costs_its_record_and_is_told(folder: Path, whole: bytes) -> None:
    records = list(Scan(whole))
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        laid_out(folder, bytes(damaged))
        with closing(opened(folder, boot="b2")) as journal:
            hit = next(place for place, found in enumerate(records) if found.offset <= at < found.offset + found.size)
            lost = {2 * hit - 1, 2 * hit}
            assert numbers(journal) == [number for number in range(1, 11) if number not in lost]
            assert journal.notices
            assert journal.boot == "b2"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400))
def test_any_bytes_open(tmp_path: Path, content: bytes) -> None:
    laid_out(tmp_path / "journal", content)
    with closing(opened(tmp_path / "journal", boot="b2")) as journal:
        assert write(journal, 1, 1, stream="n/b2/ranks")
        assert numbers(journal, stream="n/b2/ranks") == [1]


def test_damage_in_an_older_segment_spares_the_newer_ones(folder: Path) -> None:
    with closing(opened(folder, limit=80_000)) as journal:
        for first in range(1, 3000, 10):
            write(journal, first, first + 9)
    first_segment = segments(folder)[0]
    content = bytearray(first_segment.read_bytes())
    content[len(content) // 2] ^= 1
    first_segment.write_bytes(bytes(content))
    with closing(opened(folder)) as again:
        missing = sorted(set(range(1, 3001)) - set(numbers(again)))
        assert missing == list(range(missing[0], missing[0] + 10))
    first_segment.unlink()
    with closing(opened(folder)) as again:
        assert numbers(again)[-1] == 3000


class Disk:
    """`os.write` of a disk with so much room."""

    def __init__(self) -> None:
        self.room = 1 << 30
        self._write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        taken = min(len(data), self.room)
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= taken
        return self._write(descriptor, data[:taken])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(os, "write", disk.write)
    yield disk


def said(journal: Journal) -> str:
    return " | ".join(notice for _, notice in journal.notices)


def test_a_full_disk_is_told_once_and_nothing_is_lost_when_there_is_room_again(folder: Path, disk: Disk) -> None:
    with closing(opened(folder)) as journal:
        write(journal, 1, 5)
        disk.room = 40  # within a record
        assert not write(journal, 6, 10)
        assert not write(journal, 11, 15)
        assert said(journal).count("cannot be written: No space left on device") == 1
        assert numbers(journal) == [1, 2, 3, 4, 5]
        disk.room = 1 << 30
        assert write(journal, 16, 20)
        assert "is written again; events that are not in it: 0" in said(journal)
        assert numbers(journal) == list(range(1, 21))


def test_what_a_full_disk_cost_is_counted_exactly(folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNWRITTEN_BYTES", 200)
    with closing(opened(folder)) as journal:
        write(journal, 1, 5)
        disk.room = 0
        for first in range(6, 1006, 5):
            assert not write(journal, first, first + 4)
        disk.room = 1 << 30
        assert write(journal, 1006, 1006)
        held = numbers(journal)
        lost = 1006 - len(held)
        assert lost > 900
        assert f"events that are not in it: {lost}" in said(journal)
        assert held == [1, 2, 3, 4, 5, *range(6 + lost, 1007)]


def test_an_agent_that_dies_on_a_full_disk_uses_no_number_again(folder: Path, disk: Disk) -> None:
    journal = opened(folder)
    write(journal, 1, 5)
    disk.room = 0
    write(journal, 6, 10)
    os.close(journal._lock)
    disk.room = 1 << 30
    with closing(opened(folder, boot="b2")) as again:
        assert again.boot == "b2"


def test_stopped_after_each_write_it_opens_with_whole_turns_alone(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent dies after so many bytes, also between a new segment's snapshot and its first turn."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 4096)
    for room in range(0, 30_000, 997):
        folder = tmp_path / f"at-{room}"
        disk.room = room
        journal = opened(folder, limit=1 << 20)
        turn = 1
        while write(journal, turn, turn) and turn < 200:
            turn += 1
        os.close(journal._lock)
        disk.room = 1 << 30
        with closing(opened(folder, boot="b2")) as again:
            held = numbers(again)
            assert held == list(range(1, len(held) + 1))
            assert again.mark == (b"mark %d" % len(held) if held else b"")


def test_only_the_last_segment_is_read_at_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make bench ONLY=wire` times a gigabyte."""
    with closing(opened(folder, limit=1 << 30)) as journal:
        for seq in range(1, 1000):
            journal.write([Part(STREAM, seq, [bytes(16_000)])], b"m", 1.0)
    read: list[Path] = []
    plain = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path)
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    with closing(opened(folder, limit=1 << 30)) as again:
        assert set(read) == set(segments(folder)[-1:])
        assert (again.oldest(STREAM), again.next_seqs[STREAM]) == (1, 1000)


def test_a_snapshot_needs_nothing_before_it() -> None:
    snapshot = Snapshot("b1", {STREAM: 7}, [], b"mark", [])
    (found,) = Scan(b"noise" + encode(snapshot))
    assert found.record == snapshot
    commit = Commit(1.0, [Part(STREAM, 7, [b"x"], {0: "k"})], b"m")
    scan = Scan(bytes(encode(commit) + b"\xd5JR1torn"))
    assert [found.record for found in scan] == [commit]
    assert scan.torn
