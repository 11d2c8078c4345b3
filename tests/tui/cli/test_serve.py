"""`distmon serve`: who is let in, what a browser shows, and that it acts on nothing unless asked."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual_serve", reason="needs distmon's extra [serve]: make test sets it up")
import aiohttp

from distmon.core import events as ev
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder
from distmon.tui.cli.main import main
from distmon.tui.served import is_loopback
from tests.tui.terminal_model import Terminal

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FIRST_LIMIT_S = 60.0
"""On a machine that is busy with other tests."""
BEGUN_SEQUENCE = re.compile(r"\x1b(?:\[[^@-~]*|\][^\x07\x1b]*\x1b?)?$")
"""An escape sequence whose end is in the next message."""


class Served:
    """A `distmon serve` of its own process, with its address."""

    def __init__(self, folder: Path, *words: str) -> None:
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder), "LANG": "C.UTF-8"}
        environment.pop("NO_COLOR", None)
        self.errors = folder / "errors"
        with self.errors.open("wb") as errors:
            command = [sys.executable, "-m", "distmon.tui.cli.main", "serve", "--port", "0", *words]
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().decode().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.errors.read_text()
        self.websocket = self.address.replace("http", "ws", 1) + "ws"

    def end(self, by: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(by)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short, because a socket's path has a limit."""
    made = Path(tempfile.mkdtemp(prefix="dm-"))
    with Recorder(made / "run.jsonl") as recorder:
        for event in session(Script(ranks=2, nodes=1, seconds=20)):
            recorder.write(event)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    served = Served(folder, "replay", "run.jsonl", "--from", "10")
    yield served
    assert served.end() == 130


@asynccontextmanager
async def screen(served: Served, **headers: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(f"{served.websocket}?width=100&height=30", headers=headers) as websocket,
    ):
        yield websocket


class Shown:
    """What a page's terminal shows: only cells that changed are written, so a text may come in pieces."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket
        self._terminal = Terminal()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    async def until(self, *texts: str) -> None:
        """Returns once all of the texts stand on the screen."""
        end = asyncio.get_running_loop().time() + FIRST_LIMIT_S
        while not all(text in self._terminal.text() for text in texts):
            try:
                async with asyncio.timeout_at(end):
                    message = await self._websocket.receive()
            except TimeoutError:
                pytest.fail(f"no {texts} within {FIRST_LIMIT_S:.0f} s:\n{self._terminal.text()}")
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), self._terminal.text()
            if isinstance(message.data, bytes):
                self._write(self._rest + self._decoder.decode(message.data))

    def _write(self, data: str) -> None:
        cut = BEGUN_SEQUENCE.search(data)
        whole = cut.start() if cut else len(data)
        self._terminal.write(data[:whole])
        self._rest = data[whole:]


async def test_who_has_the_address_sees_the_screen(served: Served) -> None:
    async with screen(served) as websocket:
        page = Shown(websocket)
        await page.until("distmon", "throughput", "train.py")


@pytest.mark.parametrize("path", ["", "ws", "static/js/textual.js", "download/x", "nothing"])
async def test_a_wrong_or_missing_token_is_refused_before_anything_is_served(served: Served, path: str) -> None:
    root, token = served.address.rstrip("/").rsplit("/", 1)
    async with aiohttp.ClientSession() as client:
        for start in (f"{root}/", f"{root}/{token[:-1]}/", f"{root}/{token}x/", f"{root}/%00/", f"{root}//{token}/"):
            async with client.get(start + path) as answer:
                assert answer.status == 403 and "whole address" in await answer.text(), start
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with aiohttp.ClientSession() as client, client.ws_connect(f"{root.replace('http', 'ws', 1)}/{path}"):
            pass
    assert refused.value.status == 403


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
async def test_other_names_and_other_pages_are_refused(served: Served, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession() as client, client.get(served.address, headers=headers) as answer:
        assert answer.status == 403
    with pytest.raises(aiohttp.WSServerHandshakeError):
        async with screen(served, **headers):
            pass


async def test_the_page_loads_nothing_from_elsewhere_and_works_through_a_tunnel(served: Served) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.get(served.address, headers={"Host": "localhost:9999"}) as answer:
            page = await answer.text()
            assert answer.status == 200 and "ws://localhost:9999/" in page
            asked = re.findall(r'(?:href|src)="(?:https?:)?//([^/"]+)', page)
            assert set(asked) == {"localhost:9999"}
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        async with client.get(f"{served.address}static/js/textual.js") as answer:
            assert answer.status == 200 and len(await answer.read()) > 10_000


async def test_keys_act_on_nothing(served: Served) -> None:
    """Neither on a job, nor by starting one, nor on files; other recordings are not shown."""
    async with screen(served) as websocket:
        page = Shown(websocket)
        await page.until("throughput")
        for key, says in (("K", "read-only"), ("J", "not started from a browser"), ("o", "only this session"), ("e", "no file")):
            await websocket.send_json(["stdin", key])
            await page.until(says)


async def test_what_is_no_message_ends_its_own_page_alone(served: Served) -> None:
    async with screen(served) as websocket:
        await websocket.send_str('{"no": "list"}')
        async with asyncio.timeout(FIRST_LIMIT_S):
            while (await websocket.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                pass
    async with screen(served) as websocket:
        page = Shown(websocket)
        await page.until("throughput")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "0.0.0.0"], "--expose"),
        (["--port", "99999"], "from 0 to 65535"),
        (["replay", "none.jsonl"], "no such file"),
        (["run", "-np", "2"], "no command to run"),
        (["run", "-np", "1", "--record", "x.jsonl", "--", "true"], "give no --record"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISTMON_SERVED", "DISTMON_READ_ONLY"):
        monkeypatch.setenv(name, "")
    port = [] if "--port" in words else ["--port", "0"]
    assert main(["serve", *port, *words]) != 0
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("evil.example", False)],
)
def test_addresses_of_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


# --- with a job -------------------------------------------------------------------------------------------------------

JOB = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)\n"


async def test_a_job_is_shown_acted_on_where_allowed_and_ends_with_the_server() -> None:
    pytest.importorskip("horovod.runner", reason="needs Horovod: make test sets it up")
    folder = Path(tempfile.mkdtemp(prefix="dm-"))
    (folder / "wait.py").write_text(JOB)
    served = Served(folder, "--allow-actions", "run", "-np", "2", "--", sys.executable, "wait.py")
    try:
        async with screen(served) as websocket:
            page = Shown(websocket)
            await page.until("wait.py", "begun")
            await websocket.send_json(["stdin", "K"])
            await page.until("Stop the job?")
            await websocket.send_json(["stdin", "y"])
            await page.until("an operator stopped the job; exit code 143")
        assert served.process.poll() is None  # what happened can still be looked at
        assert served.end() == 143
        (recording,) = (folder / "state" / "distmon" / "sessions").glob("*.zst")
        from distmon.replay.session_file import Notes, open_session

        actions = [e.action for e in open_session(recording).events(Notes()) if isinstance(e, ev.ActionTaken)]
        assert actions == ["stop"]
    finally:
        served.end(signal.SIGKILL)
        shutil.rmtree(folder)


# --- in a browser -----------------------------------------------------------------------------------------------------


class Browser:
    """A page of a headless Chromium, through its own protocol."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket, self._number = websocket, 0
        self.told = ""
        """What the page's own websocket brought, since it was opened."""
        self.opened = 0
        """Websockets: one for each time the page was loaded."""
        self.requested: list[str] = []

    async def do(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._websocket.send_json({"id": number, "method": method, "params": params})
        while (message := await self._next()).get("id") != number:
            pass
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def until(self, *texts: str, opened: int = 1) -> None:
        async with asyncio.timeout(FIRST_LIMIT_S):
            while self.opened < opened or not all(text in self.told for text in texts):
                await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self._websocket.receive()).data)
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            data = frame["payloadData"]
            self.told += base64.b64decode(data).decode("utf-8", "replace") if frame["opcode"] == 2 else data
        elif message.get("method") == "Network.webSocketCreated":
            self.told, self.opened = "", self.opened + 1
        elif message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    profile = tempfile.mkdtemp(prefix="dm-chromium-")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    process = subprocess.Popen([str(CHROMIUM), *flags, "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    try:
        line = b""
        while b"DevTools listening" not in line:
            line = process.stderr.readline()
            assert line, "chromium did not start"
        port = line.decode().split("127.0.0.1:")[1].split("/")[0]
        async with aiohttp.ClientSession() as client:
            async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [page for page in await answer.json(content_type=None) if page["type"] == "page"]
            async with client.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as websocket:
                yield Browser(websocket)
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
        shutil.rmtree(profile, ignore_errors=True)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
async def test_in_a_headless_browser(served: Served) -> None:
    async with browser() as page:
        await page.do("Network.enable")
        await page.do("Page.enable")
        await page.do("Page.navigate", url=served.address)
        await page.until("distmon", "throughput", "train.py")
        seen = "document.body.classList.contains('-first-byte') && document.querySelector('.xterm') !== null"
        async with asyncio.timeout(FIRST_LIMIT_S):
            while not (await page.do("Runtime.evaluate", expression=seen))["result"].get("value"):
                pass
        page.told = ""
        focused = "document.activeElement.className"
        assert (await page.do("Runtime.evaluate", expression=focused))["result"]["value"] == "xterm-helper-textarea"
        for kind in ("keyDown", "keyUp"):
            await page.do("Input.dispatchKeyEvent", type=kind, key="K", code="KeyK", text="K" if kind == "keyDown" else "")
        await page.until("read-only")
        await page.do("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        for key in "4y":
            await page.do("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        read, copied = "navigator.clipboard.readText()", ""
        async with asyncio.timeout(FIRST_LIMIT_S):
            while "node-000" not in copied:
                copied = (await page.do("Runtime.evaluate", expression=read, awaitPromise=True))["result"].get("value", "")
        await page.do("Page.captureScreenshot")
        own = served.address.split("/", 3)[2]
        fetched = [url for url in page.requested if not url.startswith(("data:", "blob:", "about:")) and own not in url]
        assert not fetched


async def _says(page: Browser, words: str) -> None:
    """Returns once the page's own dialog says so."""
    shown = "document.body.classList.contains('-closed') ? document.querySelector('.closed-dialog .message').textContent : ''"
    async with asyncio.timeout(FIRST_LIMIT_S):
        while words not in (await page.do("Runtime.evaluate", expression=shown))["result"].get("value", ""):
            await asyncio.sleep(0.05)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
async def test_a_page_outlives_a_reload_and_says_what_to_do_once_the_server_is_gone(folder: Path) -> None:
    served = Served(folder, "replay", "run.jsonl", "--from", "10")
    port = served.address.split(":")[2].split("/")[0]
    async with browser() as page:
        await page.do("Network.enable")
        await page.do("Page.navigate", url=served.address)
        await page.until("throughput")
        await page.do("Page.reload")
        await page.until("throughput", opened=2)
        served.end()
        await _says(page, "has ended, or cannot be reached")
        again = Served(folder, "--port", port, "replay", "run.jsonl")
        try:
            await _says(page, "open the address that it has printed")
        finally:
            again.end()
