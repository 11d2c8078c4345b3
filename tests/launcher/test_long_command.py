"""Long commands: what is logged, what is reported, how failure reads."""

import io
import sys
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError
from distmon.launcher.long_command import Progress, clock, first_error, run_long, show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_output_goes_to_the_log_and_its_last_line_to_the_report(tmp_path: Path) -> None:
    seen: list[Progress] = []
    log = tmp_path / "log"
    run_long([sys.executable, "-c", "print('one'); print('two')"], "Counting", log, seen.append)
    assert log.read_text() == "one\ntwo\n"
    assert seen[0] == Progress("Counting", 0.0, "")
    assert seen[-1].detail == "two"


def test_bytes_that_are_no_text_are_logged_as_they_are(tmp_path: Path) -> None:
    command = [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff\n')"]
    run_long(command, "Writing", tmp_path / "log", lambda _: None)
    assert (tmp_path / "log").read_bytes() == b"\xff\n"


def test_a_failure_names_the_stage_the_first_error_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old.cc:1: error: of an earlier command\n")
    script = "import sys; print('a.cc:3: error: no such type\\nmake: *** [all] Error 2'); sys.exit(7)"
    with pytest.raises(DistmonError) as caught:
        run_long([sys.executable, "-c", script], "Compiling", log, lambda _: None)
    expected = f"Compiling failed (exit code 7): a.cc:3: error: no such type. Its whole output is in {log}"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("fine\nx.cc: fatal error: torch.h: No such file\nmore", "x.cc: fatal error: torch.h: No such file."),
        ("CMake Error at CMakeLists.txt:9", "CMake Error at CMakeLists.txt:9."),
        ("-- checking\nterrorist: 5\nlast words", "last words."),
        ("", "no output."),
    ],
)
def test_the_first_line_that_names_an_error_is_the_reason(output: str, reason: str) -> None:
    assert first_error(output) == reason


def test_in_a_pipe_a_stage_is_a_line_and_then_one_every_half_minute() -> None:
    stream = io.StringIO()
    with show_progress(stream, in_pipe=True) as report:
        for elapsed, detail in ((0.0, ""), (1.0, "a"), (29.9, "b"), (30.5, "c"), (59.0, "d")):
            report(Progress("Compiling", elapsed, detail))
        report(Progress("Installing", 0.0, ""))
    assert stream.getvalue() == "Compiling 0:00\nCompiling 0:30  c\nInstalling 0:00\n"


def test_on_a_terminal_one_line_is_rewritten_without_its_control_characters() -> None:
    stream = Terminal()
    with show_progress(stream) as report:
        report(Progress("Compiling", 61.0, "\x1b[31mred"))
        report(Progress("Installing", 0.0, ""))
    assert stream.getvalue() == "\r\x1b[KCompiling 1:01  red\n\r\x1b[KInstalling 0:00  \n"


def test_a_pipe_is_left_in_peace_unless_it_is_asked_for() -> None:
    stream = io.StringIO()
    with show_progress(stream) as report:
        report(Progress("Compiling", 61.0, "a"))
    assert stream.getvalue() == ""


def test_the_clock_counts_minutes_past_the_hour() -> None:
    assert clock(3725.9) == "62:05"
