"""Makes the pictures of the documentation from the demo session: `make pictures`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from distmon.replay.paths import demo_session
from distmon.replay.player import Player
from distmon.replay.session_file import open_session
from distmon.tui.app import DistmonApp

DOCS = Path(__file__).parent
AT_S = 104.0
"""A moment of the demo at which there is something to see."""
SIZE = (120, 36)


async def overview(path: Path, session: Path) -> None:
    """The overview as an SVG."""
    player = Player(open_session(session))
    player.seek(AT_S)
    player.pause()
    app = DistmonApp(player, player, environment={"COLORTERM": "truecolor", "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.6)
        path.write_text(app.export_screenshot(title="distmon"), encoding="utf-8")
    player.close()


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else demo_session()
    asyncio.run(overview(DOCS / "overview.svg", chosen))
