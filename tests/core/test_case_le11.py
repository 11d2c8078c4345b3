"""Case LE-11: which nodes live, by when the viewer itself heard of them, whatever their clocks say."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.measures import node_status
from distmon.core.state import SessionState

CASE = Path(__file__).parents[1] / "data/cases/LE-11"
MESSAGES = [json.loads(line) for line in (CASE / "messages.jsonl").read_text().splitlines()]
EXPECTED = json.loads((CASE / "expected.json").read_text())
EPOCH = 1000.0
"""The case's clock of the viewer at `rx` 0."""
OFFSETS = {"node-ahead": -120.0, "node-behind": 120.0}


def event(message: dict[str, Any]) -> ev.AnyEvent:
    node, at = message["node"], float(message["ts"])
    stream = f"{node}/{message['boot']}/node"
    if message["kind"] == "hello":
        return ev.NodeJoined(at=at, stream=stream, node=node, host=node, boot=message["boot"])
    if message["kind"] == "bye":
        return ev.NodeLeft(at=at, stream=stream, node=node)
    return ev.NodeSampled(at=at, stream=stream, node=node, interval_s=1.0, cpu_percent=message.get("util"))


def states() -> dict[int, dict[str, Any]]:
    """What each node is at the seconds that matter, after what came in it and the viewer's own tick."""
    arrived = defaultdict(list)
    for message in MESSAGES:
        arrived[message["rx"]].append(event(message))
    state = SessionState()
    for node, offset in OFFSETS.items():
        apply(state, ev.ClockOffsetEstimated(at=EPOCH, node=node, offset_s=offset, round_trip_s=0.01))
    seen: dict[int, dict[str, Any]] = {}
    wanted = {row["t"] for row in EXPECTED["states"]}
    for second in range(max(arrived) + 1):
        for one in arrived[second]:
            apply(state, one)
        apply(state, ev.Ticked(at=EPOCH + second))
        if second in wanted:
            seen[second] = {name: node_status(state, node) for name, node in state.nodes.items()}
            sample = state.nodes["node-paused"].sample
            seen[second]["node-paused util"] = sample.cpu_percent if sample else None
    return seen


def test_nodes_are_what_the_viewer_heard_of_them() -> None:
    seen = states()
    for row in EXPECTED["states"]:
        found = seen[row["t"]]
        if "all" in row:
            assert {found[name] for name in found if not name.endswith("util")} == {row["all"]}, row
        for name, right in row.items():
            if name not in ("t", "all"):
                assert found[name] == (right.split(" ")[0] if isinstance(right, str) else right), (row["t"], name)
