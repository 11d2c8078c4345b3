"""Times in which training hung, or a host did not answer, for a report."""

from __future__ import annotations

from collections.abc import Callable

from distmon.core.hangs import describe
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.replay.report import model


def summarise_hangs(state: SessionState, since: Callable[[float], float]) -> list[model.Hang]:
    """`since` gives the report's time of a moment: seconds since the job's start."""
    return [
        model.Hang(
            from_s=since(hang.since),
            found_at_s=since(hang.found),
            to_s=None if hang.ended is None else since(hang.ended),
            missing=hang.missing,
            waiting=hang.waiting,
            collective=clean(hang.collective),
            groups=[
                model.StackGroup(ranks=group.ranks, waits_in=clean(group.waits_in), frames=[clean(line) for line in group.frames])
                for group in hang.groups
            ],
            text=clean(describe(hang)),
        )
        for hang in state.hang_watch.hangs
    ]


def summarise_host_silences(state: SessionState, since: Callable[[float], float]) -> list[model.HostSilence]:
    """`since` as above."""
    return [
        model.HostSilence(
            host=clean(past.host),
            ranks=past.ranks,
            from_s=since(past.since),
            to_s=None if past.until is None else since(past.until),
        )
        for past in state.host_silences
    ]
