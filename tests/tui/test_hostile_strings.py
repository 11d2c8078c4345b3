"""Whatever a host, a script, a log or a file is called, a terminal obeys none of it: on no screen, in no output, in no error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from distmon.replay.recorder import Recorder
from distmon.tui.cli.main import main
from distmon.tui.widgets.launch_form import CommandSuggester, completed_path
from tests.hostile import BAD, RAW, hostile_session

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, FakePlayer, Grid, OpenApp

EVENTS = hostile_session()
PAGES = [f"f{number}" for number in range(2, 10)] + ["o", "J"]
LOOKED_AT = (["down", "enter"], ["i"], ["escape", "v"], ["escape", "tab", "down", "enter"], ["escape", "X"], ["escape"])
FILE = "ev\x1b[2Jil[red]\u202e.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The session under a harmless name, one like it with another id, and in the folder of recordings under one that is not."""
    for name, first in (("good.jsonl", EVENTS[0]), ("other.jsonl", structs.replace(EVENTS[0], session_id=BAD + "2"))):
        with Recorder(tmp_path / name) as recorder:
            for event in (first, *EVENTS[1:]):
                recorder.write(event)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    sessions = tmp_path / "distmon" / "sessions"
    sessions.mkdir(parents=True)
    shutil.copy(tmp_path / "good.jsonl", sessions / FILE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.mark.parametrize(("size", "live"), [((200, 60), True), ((80, 24), False)])
async def test_on_the_screens(
    open_app: OpenApp,
    text_grid: Grid,
    fake_job: type[FakeJob],
    fake_player: type[FakePlayer],
    folder: Path,
    size: tuple[int, int],
    live: bool,
) -> None:
    (folder / "distmon.toml").write_text('[presets."[red]p\\u001b[2J"]\ncommand = "python x.py"\n')
    seen: set[str] = set()
    player = None if live else fake_player(EVENTS)
    async with open_app(EVENTS[:-20], size=size, player=player, job=fake_job() if live else None) as (app, pilot, source):
        source.waiting.extend(EVENTS[-20:])  # errors among them, which call
        app.frame()
        for page in PAGES:
            for keys in ([page], *LOOKED_AT):
                await pilot.press(*keys)
                text = "\n".join(text_grid(app))
                assert not RAW.search(text), (page, keys, RAW.sub("!", text))
                seen.update({page} if "evil[red" in text or "evil?" in text else ())
    assert [page for page in PAGES if page not in seen] == [], "markup was obeyed, or nothing was shown"


async def test_what_is_offered_to_be_run_holds_nothing_of_the_kind(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J.py").touch()
    assert completed_path(tmp_path, "a") is None
    suggester = CommandSuggester(tmp_path)
    suggester.history = ["python a\x1b[2J.py", "python good.py"]
    assert await suggester.get_suggestion("python") == "python good.py"


WORDS = [
    ["replay", "FILE"],
    *(["report", name, *form] for name in ("FILE", "good.jsonl") for form in ([], ["--markdown"], ["--json"])),
    ["report", "good.jsonl", "FILE"],
    ["report", "FILE", "--html", "x\x1b.html"],
    ["compare", "FILE", "other.jsonl"],
    ["compare", "FILE", "other.jsonl", "--json"],
    ["compare", "FILE", "good.jsonl"],
    ["audit", "FILE"],
    ["timeline", "FILE"],
    ["import", "tegrastats", "FILE", "-o", "new.jsonl"],
    ["import", "tegrastats", "board\x1b[2J.log", "-o", "new\x1b[2J.jsonl"],
    ["replay", "FILEx"],
    ["keys", "revoke", BAD],
    ["keys", "add", BAD, "00" * 32],
    ["record", "new.jsonl", "--connect", f"tcp://{BAD}:1"],
    ["stop", BAD],
    [BAD],
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words[:1]))
def test_in_what_commands_say(folder: Path, words: list[str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (folder / "board\x1b[2J.log").write_text("RAM 1/2MB CPU [5%@1] VDD_IN 5000mW/1mW\nodd\x1b[2J\n")
    file = str(folder / "distmon" / "sessions" / FILE)
    with suppress(SystemExit):
        main([word.replace("FILE", file) for word in words])
    said = capfdbinary.readouterr()
    for text in (said.out.decode(), said.err.decode()):
        assert not RAW.search(text), text
    assert said.out or said.err


def test_a_name_that_is_no_text_is_told_all_the_same(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy("good.jsonl", os.fsdecode(b"b\xff.jsonl"))
    assert main(["report", os.fsdecode(b"b\xff.jsonl"), "--markdown"]) == 0
    assert main(["import", "tegrastats", os.fsdecode(b"b\xff.jsonl"), "-o", "x.jsonl"]) == 1
    assert "Traceback" not in capfd.readouterr().err
