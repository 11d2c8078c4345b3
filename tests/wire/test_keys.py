"""Keys in files and on a pipe: what is trusted, and what is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.wire.keys import (
    OWN_KEY,
    VIEWERS,
    AgentKeys,
    Entry,
    FileList,
    checked_key,
    checked_name,
    create_own,
    decode_agent_keys,
    encode_agent_keys,
    entries,
    load_own,
    make_pair,
    public_of,
    save_entries,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_new_key_is_found_again_and_never_replaced(folder: Path) -> None:
    pair = create_own(folder)
    assert load_own(folder) == pair
    assert public_of(pair.secret) == pair.public
    with pytest.raises(DistmonError, match="there is a key already"):
        create_own(folder)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    folder, before = tmp_path / "config" / "distmon" / "keys", os.umask(0)
    try:
        create_own(folder)
        save_entries(folder, VIEWERS, [Entry(make_pair().public, "anna")])
    finally:
        os.umask(before)
    assert {made.stat().st_mode & 0o777 for made in (folder, folder.parent, folder.parent.parent)} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(("what", "mode"), [(OWN_KEY, 0o640), (OWN_KEY, 0o604), ("", 0o750), ("", 0o703)])
def test_what_others_could_read_or_change_is_refused(folder: Path, what: str, mode: int) -> None:
    create_own(folder)
    (folder / what).chmod(mode)
    with pytest.raises(DistmonError, match=r"is open to other users; run: chmod [67]00"):
        load_own(folder)


def test_a_link_is_no_key(folder: Path, tmp_path: Path) -> None:
    pair = create_own(folder)
    (folder / OWN_KEY).rename(tmp_path / "elsewhere")
    (folder / OWN_KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DistmonError, match="cannot read"):
        load_own(folder)
    assert pair.secret not in repr(pair)


@pytest.mark.parametrize("text", ["", "garbled\n", "ab" * 31 + "\n", "g" * 64])
def test_a_damaged_key_is_told_without_its_text(folder: Path, text: str) -> None:
    create_own(folder)
    (folder / OWN_KEY).write_text(text)
    with pytest.raises(DistmonError, match="holds no key") as caught:
        load_own(folder)
    assert not text.strip() or text.strip() not in str(caught.value)


def test_lists_keep_their_order_and_allow_comments(folder: Path) -> None:
    listed = [Entry(make_pair().public, "anna"), Entry(make_pair().public, "lab-2")]
    save_entries(folder, VIEWERS, listed)
    with (folder / VIEWERS).open("a") as file:
        file.write("# a remark\n\n")
    assert entries(folder, VIEWERS) == listed
    assert entries(folder / "absent", VIEWERS) == []


@pytest.mark.parametrize("line", ["nonsense", "ab anna", "0" * 64 + " an/na", "0" * 64 + " a b c"])
def test_a_wrong_line_is_named(folder: Path, line: str) -> None:
    save_entries(folder, VIEWERS, [Entry(make_pair().public, "anna")])
    with (folder / VIEWERS).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DistmonError, match="viewers, line 2"):
        entries(folder, VIEWERS)


def test_a_changed_list_counts_soon_and_a_bad_one_lets_nobody_in(folder: Path) -> None:
    now = [0.0]
    anna, ben = make_pair().public, make_pair().public
    save_entries(folder, VIEWERS, [Entry(anna, "anna")])
    allowed = FileList(folder, lambda: now[0])
    assert allowed.allows(anna)
    save_entries(folder, VIEWERS, [Entry(ben, "ben")])
    now[0] = 0.3
    assert (allowed.allows(anna), allowed.allows(ben)) == (False, True)
    (folder / VIEWERS).chmod(0o644)
    now[0] = 0.6
    assert not allowed.allows(ben)
    assert "is open to other users" in allowed.trouble()
    (folder / VIEWERS).chmod(0o600)
    now[0] = 0.9
    assert allowed.allows(ben)
    assert not allowed.trouble()
    (folder / VIEWERS).unlink()
    now[0] = 1.2
    assert not allowed.allows(ben)


def test_keys_for_one_job_go_over_a_pipe() -> None:
    keys = AgentKeys(make_pair(), [make_pair().public])
    line = encode_agent_keys(keys)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_agent_keys(line) == keys


@pytest.mark.parametrize("line", [b"", b"\n", b"{}", b"\xff", b'{"own":{"public":"secret!","secret":"x"},"viewers":[]}'])
def test_what_is_no_keys_is_refused_and_not_repeated(line: bytes) -> None:
    with pytest.raises(DistmonError) as caught:
        decode_agent_keys(line)
    assert "secret!" not in str(caught.value)


def test_what_people_type_is_checked() -> None:
    key = make_pair().public
    assert checked_key(f" {key.upper()}\n") == key
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        checked_key("abc")
    for name in ("", "a b", "x" * 65, "\x1b[2J", "#"):
        with pytest.raises(UsageError, match="is no name for a key"):
            checked_name(name)
