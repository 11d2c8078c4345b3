"""Hosts that come and go at a fixed pace, as elastic benchmarks have them: `--cycle 4:4@10m`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distmon.core.errors import UsageError
from distmon.core.events import ActionTaken, AnyEvent, LaunchProgressed
from distmon.launcher.host_file import read_hosts, write_hosts

_FORM = re.compile(r"(\d+):(\d+)@(\d+(?:\.\d+)?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class CycleSpec:
    """`fixed` hosts stay; `elastic` more are there for `period_s`, then away for as long, and so on."""

    fixed: int
    elastic: int
    period_s: float


def parse_cycle(text: str) -> CycleSpec:
    """FIXED:ELASTIC@PERIOD. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None or not int(match[1]) or not int(match[2]) or not float(match[3]):
        raise UsageError(f"--cycle takes fixed hosts:elastic hosts@period, as in --cycle 4:4@10m, not {text!r}")
    return CycleSpec(int(match[1]), int(match[2]), float(match[3]) * _SECONDS[match[4]])


def cycle_hosts(spec: CycleSpec, hosts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """(all hosts, those that stay), from the job's hosts in their order; of a single host, its slots come and go.

    Raises UsageError where the job has fewer.
    """
    wanted, takes = spec.fixed + spec.elastic, f"--cycle {spec.fixed}:{spec.elastic} takes"
    if len(hosts) == 1:
        ((name, slots),) = hosts.items()
        if slots < wanted:
            raise UsageError(f"{takes} {wanted} hosts or slots, but {name} has {slots} slots")
        return {name: wanted}, {name: spec.fixed}
    if len(hosts) < wanted:
        raise UsageError(f"{takes} {wanted} hosts, but the job has {len(hosts)}; name them with -H")
    named = list(hosts.items())
    return dict(named[:wanted]), dict(named[: spec.fixed])


class Cycle:
    """Turns a job's hosts over. The clock starts when all ranks have met for the first time."""

    def __init__(self, spec: CycleSpec, file: Path) -> None:
        """Raises UsageError, or DistmonError where the job keeps no hosts file."""
        self._spec = spec
        self._file = file
        self._all, self._fixed = cycle_hosts(spec, read_hosts(file))
        write_hosts(file, self._all)
        self._turn_at: float | None = None
        self._here = True

    def see(self, events: Iterable[AnyEvent]) -> None:
        """Events of the launcher, in order."""
        for event in events:
            if self._turn_at is None and isinstance(event, LaunchProgressed) and event.stage == "first_step":
                self._turn_at = event.at + self._spec.period_s

    def turn(self, now: float) -> list[ActionTaken]:
        """Lets the elastic hosts come or go when it is time, and tells of it."""
        if self._turn_at is None or now < self._turn_at:
            return []
        self._turn_at += self._spec.period_s
        self._here = not self._here
        write_hosts(self._file, self._all if self._here else self._fixed)
        moved = ", ".join(f"{name}:{slots}" for name, slots in self._all.items() if self._fixed.get(name) != slots)
        return [ActionTaken(at=now, action="cycle", detail=f"{moved} {'come back' if self._here else 'leave'}")]
