"""Hosts are told apart on every screen, however much of their names is the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from distmon.core import events as ev
from distmon.core.codec import decode_json, encode_json
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp
from distmon.tui.view.hosts import common_parts

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, OpenApp

LONG = "training-cluster-eu-west-node-{}.internal"
EVENTS: list[AnyEvent] = [
    decode_json(re.sub(rb'"node-(\d+)"', rb'"training-cluster-eu-west-node-\1.internal"', encode_json(event)))
    for event in session(Script(ranks=8, nodes=4, seconds=20))
    if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["node-000", "node-001"], ["node-000", "node-001"]),
        ([LONG.format("001"), LONG.format("002")], ["node-001", "node-002"]),
        (["trainingworkernode-001", "trainingworkernode-002"], ["001", "002"]),
        (["ip-10-0-0-12.ec2.internal", "ip-10-0-1-7.ec2.internal"], ["0-0-12", "0-1-7"]),
        (["192.168.10.12", "192.168.10.13"], ["10.12", "10.13"]),
        (["rack-alpha.example.org", "rack-beta.example.org"], ["alpha", "beta"]),
        (["localhost", "training-cluster-node-1"], ["localhost", "training-cluster-node-1"]),
        (["training-cluster-a", "training-cluster-a-1"], ["a", "a-1"]),
        (["only-one-host.example.org"], ["only-one-host.example.org"]),
        ([], []),
    ],
)
def test_what_all_names_have_in_common_is_left_out_and_they_stay_apart(names: list[str], shown: list[str]) -> None:
    prefix, suffix = common_parts(names)
    assert [name.removeprefix(prefix).removesuffix(suffix) for name in names] == shown


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
async def test_hosts_whose_names_begin_alike_are_told_apart_on_every_screen(
    open_app: OpenApp, text_grid: Grid, size: tuple[int, int]
) -> None:
    async with open_app(EVENTS, size=size) as (app, pilot, _):
        for screen, panels in (
            ("overview", ("nodes", "ranks")), ("nodes", ("heat", "nodes")), ("ranks", ("heat", "ranks")),
            ("timeline", ("slots",)), ("logs", ("lines",)),
        ):  # fmt: skip
            app.cockpit.go(screen)
            await pilot.pause()
            for panel in panels:
                app.cockpit.page.focus_panel(panel)
                if app.cockpit.page.choices.zoomed is None:
                    await pilot.press("z")
                await pilot.pause()
                rows = text_grid(app)
                hosts = ("node-000",) if screen == "logs" else [f"node-{n:03d}" for n in range(4)]
                assert all(any(host in row for row in rows) for host in hosts), (screen, panel, rows)
                assert not any("training-cl" in row for row in rows), (screen, panel, rows)
        in_file = {row["group"] for row in heat_records(app)}
        assert "training-cluster-eu-west-node-000.internal" in in_file


def heat_records(app: DistmonApp) -> Sequence[Mapping[str, object]]:
    return app.cockpit.pages["nodes"].panels["heat"].records()
