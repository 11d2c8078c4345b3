"""Where an agent may listen: its user's own sockets and loopback, nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.wire.addresses import check_address, private_directory
from distmon.wire.publisher import Publisher


@pytest.mark.parametrize(
    "address", ["ipc:///run/x/agent.sock", "tcp://127.0.0.1:5555", "tcp://127.1.2.3:1", "tcp://localhost:65535", "tcp://[::1]:5"]
)
def test_allowed(address: str) -> None:
    assert check_address(address, binding=False) == address


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tcp://0.0.0.0:5555", "needs keys first"),
        ("tcp://*:5555", "needs keys first"),
        ("tcp://10.0.0.1:5555", "needs keys first"),
        ("tcp://[::]:5555", "needs keys first"),
        ("tcp://127.0.0.1.example.org:5555", "needs keys first"),
        ("tcp://127.0.0.1", "write tcp://127.0.0.1:PORT"),
        ("tcp://127.0.0.1:99999", "from 1 to 65535"),
        ("tcp://127.0.0.1:0", "from 1 to 65535"),
        ("tcp://127.0.0.1:5555;eth0", "write tcp://127.0.0.1:PORT"),
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
    assert check_address("tcp://127.0.0.1:*", binding=True)
    with pytest.raises(UsageError):
        check_address("tcp://127.0.0.1:*", binding=False)


def test_the_folder_is_made_private(tmp_path: Path) -> None:
    assert private_directory(tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(DistmonError, match="chmod 700"):
        private_directory(tmp_path / "open")


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    private_directory(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DistmonError, match="not a folder of its own"):
        private_directory(tmp_path / "link")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Publisher]:
    publisher = Publisher("n", "b", [f"ipc://{tmp_path}/run/a.sock", "tcp://127.0.0.1:*"])
    yield publisher
    publisher.close()


def test_an_address_in_use_is_not_taken_over(running: Publisher) -> None:
    for address in running.addresses:
        with pytest.raises(DistmonError, match="is taken by a running process"):
            Publisher("n", "b2", [address])


def test_a_socket_left_behind_by_a_dead_process_is_used_again(tmp_path: Path) -> None:
    private_directory(tmp_path / "run")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "run" / "a.sock"))
    Publisher("n", "b", [f"ipc://{tmp_path}/run/a.sock"]).close()
