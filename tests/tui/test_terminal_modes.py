"""Case UI-03: however the app ends, the terminal is given back and the process is gone."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from distmon.core.codec import encode_json
from distmon.core.synthetic import Script, session
from distmon.tui.splash import said

PROGRAM = (str(Path(__file__).with_name("pty_app.py")),)
DISTMON = ("-m", "distmon.tui.cli.main")
READY = b"samples/s"
LIMIT_S = 15.0
SET_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")


class Terminal:
    """A process on a pseudo-terminal of its own, in a session of its own, as a login shell would have it."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.master)
            os.login_tty(self._slave)
            variables = {
                **os.environ,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "LANG": "C.UTF-8",
                **(environment or {}),
            }
            os.execve(sys.executable, [sys.executable, *arguments], variables)

    def read_until(self, found: Callable[[bytes], bool]) -> None:
        """Read until the output satisfies `found`; fails after LIMIT_S."""
        deadline = time.monotonic() + LIMIT_S
        while not found(self.output):
            assert time.monotonic() < deadline, f"not seen in {LIMIT_S} s: {self.output[-2000:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.output += os.read(self.master, 65536)

    def wait(self, flags: int = 0) -> int:
        """The wait status, while the output is read; fails after LIMIT_S."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | flags)
            if pid:
                return status
            assert time.monotonic() < deadline, "the process did not end"
            if self.master >= 0 and select.select([self.master], [], [], 0.05)[0]:
                self.output += os.read(self.master, 65536)

    def drain(self) -> None:
        while select.select([self.master], [], [], 0.1)[0]:
            self.output += os.read(self.master, 65536)

    def close_master(self) -> None:
        os.close(self.master)
        self.master = -1

    def resize(self, rows: int, columns: int) -> None:
        """As a terminal emulator does it; the kernel tells the process."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._slave)
        if self.master >= 0:
            os.close(self.master)


@pytest.fixture
def start() -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def begin(*arguments: str, program: Sequence[str] = PROGRAM, **environment: str) -> Terminal:
        terminal = Terminal(*program, *arguments, environment=environment)
        started.append(terminal)
        return terminal

    yield begin
    for terminal in started:
        terminal.close()


def modes_left_set(output: bytes) -> set[str]:
    """Private modes whose last change was to switch them on; line wrap (7) and the cursor (25) are on by default."""
    last: dict[str, bytes] = {}
    for match in SET_MODE.finditer(output):
        for mode in match[1].decode().split(";"):
            last[mode] = match[2]
    return {mode for mode, state in last.items() if state == (b"l" if mode in ("7", "25") else b"h")}


def assert_restored(terminal: Terminal) -> None:
    terminal.drain()
    assert b"\x1b[?1049h" in terminal.output, "the app never took the screen"
    assert modes_left_set(terminal.output) == set()
    assert terminal.settings() == terminal.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_stops_the_job_ends_with_128_plus_n_and_gives_the_terminal_back(
    start: Callable[..., Terminal], number: int
) -> None:
    terminal = start("job")
    terminal.read_until(lambda output: READY in output)
    os.kill(terminal.pid, number)
    assert os.waitstatus_to_exitcode(terminal.wait()) == 128 + number
    assert_restored(terminal)
    assert b"job stopped" in terminal.output


def test_an_error_inside_is_one_line_after_the_terminal_is_given_back(start: Callable[..., Terminal]) -> None:
    terminal = start("error")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 1
    assert_restored(terminal)
    after = terminal.output.rpartition(b"\x1b[?1049l")[2].decode()
    assert "planted failure" in after
    assert "Traceback" not in after
    assert len([line for line in after.splitlines() if "planted" in line]) == 1


def test_a_closed_terminal_ends_the_process(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.read_until(lambda output: READY in output)
    os.close(terminal._slave)
    terminal._slave = os.open(os.devnull, os.O_RDONLY)
    terminal.close_master()
    assert os.waitstatus_to_exitcode(terminal.wait()) in (129, -signal.SIGHUP)


def test_a_terminal_that_grows_or_shrinks_is_drawn_in_its_new_size(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.read_until(lambda output: READY in output)
    terminal.resize(rows=40, columns=120)
    terminal.read_until(lambda output: b"\x1b[40;" in output)
    terminal.resize(rows=8, columns=30)
    terminal.read_until(lambda output: b"needs 40x10" in output)
    terminal.resize(rows=24, columns=80)
    terminal.read_until(lambda output: READY in output.rpartition(b"needs 40x10")[2])
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)


def test_q_leaves_with_zero(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.read_until(lambda output: READY in output)
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)


@pytest.mark.parametrize("answer", [b"y", b"\x03"])
def test_control_c_asks_before_it_stops_a_job(start: Callable[..., Terminal], answer: bytes) -> None:
    terminal = start("job")
    terminal.read_until(lambda output: READY in output)
    os.write(terminal.master, b"\x03")
    terminal.read_until(lambda output: b"Stop it and leave?" in output)
    os.write(terminal.master, answer)
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)
    assert b"job stopped" in terminal.output


def test_control_z_suspends_with_the_terminal_given_back_and_comes_back(start: Callable[..., Terminal]) -> None:
    """All of the screen: what had not changed meanwhile stayed blank."""
    terminal = start()
    terminal.resize(40, 120)
    terminal.read_until(lambda output: READY in output and b"Overview" in output)
    os.write(terminal.master, b"\x1a")
    assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
    assert_restored(terminal)
    terminal.output = b""
    os.kill(terminal.pid, signal.SIGCONT)
    words = (b"distmon", b"Overview", b"throughput", b"nodes", b"ranks", b"events", b"output", b"quit")
    terminal.read_until(lambda output: all(word in output.partition(b"\x1b[?1049h")[2] for word in words))
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)


def test_who_was_stopped_from_outside_comes_back_with_screen_and_keys(start: Callable[..., Terminal]) -> None:
    """The terminal had two readers then, and half of the keys were lost."""
    terminal = start()
    terminal.read_until(lambda output: READY in output)
    for key, screen in ((b"\x1bOS", b"every rank"), (b"\x1bOR", b"every node"), (b"\x1bOS", b"every rank")):
        os.kill(terminal.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        terminal.output = b""
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.read_until(lambda output: all(word in output.partition(b"\x1b[?1049h")[2] for word in (b"distmon", b"quit")))
        os.write(terminal.master, key)
        terminal.read_until(lambda output, screen=screen: screen in output)  # type: ignore[misc]
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)


def test_what_goes_on_after_the_app_has_ended_takes_no_screen(start: Callable[..., Terminal]) -> None:
    terminal = start("linger")
    terminal.read_until(lambda output: READY in output)
    os.write(terminal.master, b"q")
    terminal.read_until(lambda output: b"left" in output)
    os.kill(terminal.pid, signal.SIGCONT)
    os.write(terminal.master, b"\n")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)
    assert b"\x1b[?1049h" not in terminal.output.rpartition(b"left")[2]


def test_a_locale_without_utf_8_gets_ascii_only(start: Callable[..., Terminal]) -> None:
    terminal = start(LANG="C", LC_ALL="C", LC_CTYPE="C")
    terminal.read_until(lambda output: READY in output)
    os.write(terminal.master, b"q")
    terminal.wait()
    terminal.drain()
    assert terminal.output.isascii()


def test_before_the_app_is_loaded_the_terminal_says_what_is_opened(start: Callable[..., Terminal]) -> None:
    terminal = start("replay", "--demo", program=DISTMON)
    terminal.read_until(lambda output: READY in output)
    assert terminal.output.index(b"opening the recording") < terminal.output.index(READY)
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)


def test_a_recording_without_an_index_is_read_as_far_as_the_moment_that_it_opens_at(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(encode_json(event) + b"\n" for event in session(Script(ranks=4, nodes=2, seconds=200))))
    terminal = start("replay", str(path), "--at", "step:500", program=DISTMON)
    terminal.read_until(lambda output: "‖ paused".encode() in output)
    assert b"reading the recording for the first time:" in terminal.output
    os.write(terminal.master, b"q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)
    assert {file.name for file in tmp_path.iterdir()} <= {"s.jsonl", "s.jsonl.idx"}


@pytest.mark.parametrize(
    ("words", "opening", "says"),
    [
        (["no\x1b[31mne.jsonl"], b"opening no?[31mne.jsonl", b"no such file"),
        (["--demo", "--from", "99:00"], b"opening the recording", b"lasts 2:48: give a time within that"),
    ],
)
def test_what_cannot_be_opened_is_told_once_the_terminal_is_given_back(
    start: Callable[..., Terminal], words: list[str], opening: bytes, says: bytes
) -> None:
    terminal = start("replay", *words, program=DISTMON)
    assert os.waitstatus_to_exitcode(terminal.wait()) == 1
    assert_restored(terminal)
    before, _, after = terminal.output.rpartition(b"\x1b[?1049l")
    assert opening in before
    assert says in after


def test_what_is_typed_before_the_app_is_loaded_is_not_seen_and_acts_then(start: Callable[..., Terminal]) -> None:
    terminal = start("replay", "--demo", program=DISTMON)
    terminal.read_until(lambda output: b"opening" in output)
    os.write(terminal.master, b"\x1bOR~~q")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 0
    assert_restored(terminal)
    assert b"^[OR" not in terminal.output and b"~~" not in terminal.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_before_the_app_is_loaded_gives_the_terminal_back(start: Callable[..., Terminal], number: int) -> None:
    terminal = start("replay", "--demo", program=DISTMON)
    terminal.read_until(lambda output: b"opening" in output)
    os.kill(terminal.pid, number)
    assert os.waitstatus_to_exitcode(terminal.wait()) in (-number, 128 + number)
    assert_restored(terminal)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("", "looking at this machine"),
        ("--read-only", "looking at this machine"),
        ("replay last", "opening last"),
        ("replay --demo --from 10", "opening the recording"),
        ("run -np 2 -- python train.py --help", "starting python train.py --help"),
        ("run --headless -np 2 -- python train.py", None),
        ("run --save-preset=two -np 2 -- python train.py", None),
        ("run --help", None),
        ("--version", None),
        ("report last", None),
    ],
)
def test_what_is_said_while_the_app_is_loaded(command: str, text: str | None) -> None:
    assert said(command.split()) == text


@pytest.mark.parametrize("term", ["vt100", "vt220", "xterm-mono", "linux-m"])
def test_a_terminal_without_colours_gets_none(start: Callable[..., Terminal], term: str) -> None:
    """Whatever another terminal has left in COLORTERM."""
    terminal = start(TERM=term)
    terminal.read_until(lambda output: READY in output)
    terminal.drain()
    codes = {int(code) for styles in re.findall(rb"\x1b\[([\d;]+)m", terminal.output) for code in styles.split(b";")}
    assert codes <= {0, 1, 2, 7, 22, 27, 39, 49}
