"""The words, glyphs and roles of states and phases: one place, so that every screen says the same."""

from __future__ import annotations

from distmon.core.measures import forming_round
from distmon.core.state import SessionState
from distmon.tui.glyphs import STATES

PHASE_NAMES = {
    "input_wait": "input wait",
    "compute": "compute",
    "exposed_communication": "exposed comm",
    "optimizer": "optimizer",
    "rest": "rest",
}

SEVERITY = {
    "info": (STATES["unknown"], "muted"),
    "warning": (STATES["warn"], "warn"),
    "error": (STATES["bad"], "bad"),
}

_RANK = {
    "starting": (STATES["busy"], "accent"),
    "forming": (STATES["busy"], "accent"),
    "training": (STATES["good"], "good"),
    "frozen": (STATES["warn"], "warn"),
    "silent": (STATES["warn"], "warn"),
    "slow": (STATES["warn"], "warn"),
    "stale": (STATES["warn"], "warn"),
    "unmeasured": (STATES["idle"], "muted"),
    "ended": (STATES["done"], "muted"),
    "stopped": (STATES["unknown"], "muted"),
}
_NODE = {
    "live": (STATES["good"], "good"),
    "starting": (STATES["busy"], "accent"),
    "stale": (STATES["warn"], "warn"),
    "slow": (STATES["warn"], "warn"),
    "trouble": (STATES["bad"], "bad"),
    "lost": (STATES["bad"], "bad"),
    "left": (STATES["idle"], "muted"),
}
_JOB = {
    "idle": (STATES["idle"], "muted", "no job yet"),
    "launching": (STATES["busy"], "accent", "launching"),
    "running": (STATES["good"], "good", "training"),
}


def rank_state(state: str) -> tuple[str, str]:
    """(glyph, role) of a rank's state; anything unknown is how it died."""
    return _RANK.get(state, (STATES["bad"], "bad"))


def node_state(state: str) -> tuple[str, str]:
    return _NODE[state]


CUT_OFF = (STATES["warn"], "warn", "cut off")
"""(glyph, role, words) of a job at the end of a recording that does not tell how it ended."""


def stage_of(state: SessionState) -> str:
    """What a launch, or a round that forms, waits for; empty where nobody tells it."""
    stage = state.job.stage.replace("_", " ")
    return stage if forming_round(state) is None else f"forming: {stage}" if stage else "forming"


def job_state(state: SessionState) -> tuple[str, str, str]:
    """(glyph, role, words) of the job."""
    job = state.job
    if job.status == "running" and forming_round(state) is not None:
        return STATES["busy"], "accent", stage_of(state)
    if job.status != "ended":
        return _JOB[job.status]
    if job.exit_code == 0:
        return STATES["done"], "good", "finished"
    glyph, role = (STATES["unknown"], "muted") if job.was_stopped else (STATES["bad"], "bad")
    return glyph, role, f"{job.end_reason or 'failed'}, exit {job.exit_code}"
