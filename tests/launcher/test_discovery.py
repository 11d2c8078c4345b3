"""Asking a host discovery script that fails, hangs or says odd things: case LE-01."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from distmon.launcher.driver import discovery
from distmon.launcher.driver.discovery import DiscoveryError, ScriptDiscovery, parse_discovered
from tests.launcher.driving import CASES, alive, within

CASE = CASES / "LE-01"
EXPECTED = json.loads((CASE / "expected.json").read_text())
DEFAULT_SLOTS = 7


@pytest.mark.parametrize("name", sorted(EXPECTED["parse"]))
def test_an_answer_is_read_strictly(name: str) -> None:
    output, right = (CASE / "output" / name).read_bytes(), EXPECTED["parse"][name]
    if right == "error":
        with pytest.raises(DiscoveryError):
            parse_discovered(output)
        return
    hosts = parse_discovered(output)
    assert hosts == {host: None if slots == "default slots" else slots for host, slots in right.items()}
    assert list(hosts) == EXPECTED["order"].get(name, list(hosts))


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(DiscoveryError, match="no text"):
        parse_discovered(b"node-\xff:1\n")


def test_a_script_that_fails_and_hangs_costs_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call as Horovod makes it, until the script's own run of that number has been judged."""
    told: list[tuple[str, int, str]] = []
    monkeypatch.setattr(discovery, "LIMIT_S", 1.0)
    monkeypatch.setenv("DISCOVER_STATE", str(tmp_path / "calls"))
    pid_file = tmp_path / "pids"
    script = f"echo $$ >> {pid_file}; exec sh {shlex.quote(str(CASE / 'discover_flaky.sh'))}"
    found = ScriptDiscovery(script, None, lambda *told_now: told.append(told_now))
    for row in EXPECTED["flaky"]:
        before = len(told)
        hosts = _ask_until_judged(found)
        assert list(hosts) == row["hosts"], row
        said = {"discovery failing": "failing", "discovery timed out": "timed_out", "ok": "ok"}.get(row.get("status", ""))
        if told[before:]:
            assert told[-1][0] == said, row
        if "count" in row:
            assert told[-1][1] == row["count"]
    assert [status for status, _, _ in told] == ["failing", "ok", "timed_out", "failing", "failing", "ok"]
    assert found.order == EXPECTED["flaky"][-1]["hosts"]
    pids = [int(line) for line in pid_file.read_text().split()]
    assert len(pids) == 7 and within(5, lambda: not any(map(alive, pids)))


def _ask_until_judged(found: ScriptDiscovery) -> dict[str, int]:
    hosts: dict[str, int] = {}

    def judged() -> bool:
        nonlocal hosts
        hosts = found.find_available_hosts_and_slots()
        return found._answer is None

    assert within(20, judged)
    return hosts


def test_a_script_that_takes_its_time_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "PATIENCE_S", 0.05)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"test -e {tmp_path}/first && cat {gate}; touch {tmp_path}/first; echo a:1"
    found = ScriptDiscovery(script, None, lambda *_: None)
    assert found.find_available_hosts_and_slots() == {"a": 1}
    assert found.find_available_hosts_and_slots() == {"a": 1} and found._answer is not None
    gate.write_text("b:2\n")
    assert _ask_until_judged(found) == {"b": 2, "a": 1}


def test_a_first_answer_that_is_bad_ends_the_job_with_its_reason() -> None:
    found = ScriptDiscovery("echo no scheduler >&2; exit 4", None, lambda *_: None)
    with pytest.raises(DiscoveryError, match=r"ended with 4: no scheduler"):
        found.find_available_hosts_and_slots()


def test_slots_that_are_not_said_come_from_the_flag() -> None:
    def of(slots: int | None) -> Any:
        return ScriptDiscovery("echo a", slots, lambda *_: None).find_available_hosts_and_slots()

    assert (of(DEFAULT_SLOTS), of(None)) == ({"a": DEFAULT_SLOTS}, {"a": 1})
