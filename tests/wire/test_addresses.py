"""Where an agent may listen: its user's own sockets, and TCP only with keys."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.wire.addresses import check_address, prepare_socket, private_directory
from distmon.wire.gate import Gate
from distmon.wire.keys import FixedList, make_pair
from distmon.wire.publisher import Publisher


@pytest.mark.parametrize(
    "address", ["ipc:///run/x/agent.sock", "tcp://127.0.0.1:5555", "tcp://node1:1", "tcp://0.0.0.0:65535", "tcp://[::1]:5"]
)
def test_allowed_with_keys(address: str) -> None:
    assert check_address(address, binding=False, keyed=True) == address


def test_a_unix_socket_needs_no_keys() -> None:
    assert check_address("ipc:///run/x/agent.sock", binding=True)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tcp://0.0.0.0:5555", "needs keys first"),
        ("tcp://*:5555", "needs keys first"),
        ("tcp://10.0.0.1:5555", "needs keys first"),
        ("tcp://[::]:5555", "needs keys first"),
        ("tcp://127.0.0.1:5555", "needs keys first"),
        ("tcp://localhost:5555", "needs keys first"),
        ("tcp://127.0.0.1", "write tcp://HOST:PORT"),
        ("tcp://127.0.0.1:99999", "from 1 to 65535"),
        ("tcp://127.0.0.1:0", "from 1 to 65535"),
        ("tcp://127.0.0.1:5555;eth0", "write tcp://HOST:PORT"),
        ("ipc://@abstract", "absolute path"),
        ("ipc://relative/x", "absolute path"),
        ("ipc:///" + "x" * 120, "longer than"),
        ("pgm://eth0;1.2.3.4:5", "is no address"),
        ("5555", "is no address"),
        ("", "is no address"),
    ],
)
def test_refused_in_one_line(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        check_address(address, binding=True)
    assert "\n" not in str(caught.value)


def test_any_free_port_only_for_binding() -> None:
    assert check_address("tcp://127.0.0.1:*", binding=True, keyed=True)
    with pytest.raises(UsageError):
        check_address("tcp://127.0.0.1:*", binding=False, keyed=True)


def test_the_folder_is_made_private(tmp_path: Path) -> None:
    assert private_directory(tmp_path / "a").stat().st_mode & 0o777 == 0o700


def open_folder(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DistmonError) as caught:
        private_directory(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert refusal(open_folder(tmp_path / "an open one")).endswith(f"run: chmod 700 '{tmp_path}/an open one'")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o1770])
def test_no_chmod_is_advised_for_a_folder_that_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/me")
    said = refusal(open_folder(tmp_path / "shared", mode))
    assert "run: chmod" not in said
    assert "choose a folder of your own, like ipc:///run/me/distmon/NAME.sock, or make one: mkdir -m 700 DIR" in said


@pytest.mark.parametrize("home", ["/", "elsewhere", "."])
def test_no_chmod_is_advised_outside_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """Also for the home itself."""
    folder = open_folder(tmp_path / "lib")
    monkeypatch.setenv("HOME", str(folder / home))
    assert "run: chmod" not in refusal(folder)


def test_distmons_own_open_folder_is_to_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert f"run: chmod 700 {tmp_path}/distmon" in refusal(open_folder(tmp_path / "distmon"))


@pytest.mark.parametrize("folder", ["absent/new", "open/new"])
def test_a_sockets_folder_is_made_only_in_a_private_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    open_folder(tmp_path / "open")
    with pytest.raises(DistmonError, match=f"there is no folder {tmp_path}/{folder}; .*mkdir -m 700"):
        prepare_socket(f"ipc://{tmp_path}/{folder}/a.sock")
    assert not (tmp_path / folder).exists()


def test_distmons_own_folder_is_made_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_folder(tmp_path / "open")))
    prepare_socket(f"ipc://{tmp_path}/open/distmon/a.sock")
    assert (tmp_path / "open" / "distmon").stat().st_mode & 0o777 == 0o700


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    private_directory(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DistmonError, match="not a folder of its own"):
        private_directory(tmp_path / "link")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Publisher]:
    gate = Gate(make_pair(), FixedList([]))
    publisher = Publisher("n", "b", [f"ipc://{tmp_path}/run/a.sock", "tcp://127.0.0.1:*"], gate=gate)
    yield publisher
    publisher.close()
    gate.close()


def test_an_address_in_use_is_not_taken_over(running: Publisher) -> None:
    with closing(Gate(make_pair(), FixedList([]))) as gate:
        for address in running.addresses:
            with pytest.raises(DistmonError, match="is taken by a running process"):
                Publisher("n", "b2", [address], gate=gate)


def test_a_socket_left_behind_by_a_dead_process_is_used_again(tmp_path: Path) -> None:
    private_directory(tmp_path / "run")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "run" / "a.sock"))
    Publisher("n", "b", [f"ipc://{tmp_path}/run/a.sock"]).close()


def test_a_group_may_use_a_folder_and_socket_that_are_given_to_it(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "run", 0o750)
    group = folder.stat().st_gid
    assert private_directory(folder, group) == folder
    assert "open to other users" in refusal(folder)
    with pytest.raises(DistmonError, match="open to other users"):
        private_directory(folder, group + 1)
    with closing(Publisher("n", "b", [f"ipc://{folder}/a.sock"], group=group)):
        found = (folder / "a.sock").stat()
        assert (found.st_gid, found.st_mode & 0o777) == (group, 0o660)
    folder.chmod(0o770)
    with pytest.raises(DistmonError, match="open to other users"):
        private_directory(folder, group)
