"""Every word can be read in every theme, and no state is told by colour alone."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import get_args

import pytest
import rich.color
from rich.color import ColorSystem
from textual.color import Color

from distmon.core.state import JobState, JobStatus, SessionState
from distmon.tui.glyphs import STATES, ascii_only, to_ascii
from distmon.tui.theme import HEAT_LEVELS, PALETTES, Palette
from distmon.tui.view.words import SEVERITY, job_state, node_state, rank_state

ROOT = Path(__file__).parent.parent.parent
WORDS = (
    "text", "muted", "accent", "good", "warn", "bad", "input_wait", "compute", "exposed_communication", "optimizer", "rest",
)  # fmt: skip
OWN_COLOURS = [palette for palette in PALETTES.values() if not palette.ansi]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in Color.parse(colour).rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("depth", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT], ids=lambda d: d.name)
@pytest.mark.parametrize("palette", OWN_COLOURS, ids=lambda p: p.name)
def test_words_and_heat_have_a_contrast_of_4_5(palette: Palette, depth: ColorSystem) -> None:
    """On every ground, the selected row's too; where a terminal has 256 colours, as those that stand in for ours."""
    roles = (*WORDS, *(f"series{i}" for i in range(len(palette.series))))
    roles += tuple(f"{ramp}{level}" for ramp in ("cool", "hot") for level in range(HEAT_LEVELS))
    for role, ground in itertools.product(roles, ("background", "raised", "selected")):
        colours = (palette.styles[role].color, rich.color.Color.parse(getattr(palette, ground)))
        text, behind = (colour.downgrade(depth).get_truecolor().hex for colour in colours if colour is not None)
        assert contrast(text, behind) >= 4.5, (role, ground)


def test_every_character_that_is_written_anywhere_has_a_stand_in() -> None:
    """Also the framework's sign of a search, which takes two cells."""
    missing: dict[str, set[str]] = {}
    for path in (path for room in ("tui", "core", "replay", "launcher", "agent") for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                for character in filter(str.isprintable, node.value):
                    if "?" in to_ascii(character) and character != "?":
                        missing.setdefault(character, set()).add(path.name)
    assert not missing
    assert to_ascii("🔎›") == "> >"


def test_states_differ_by_shape_and_still_do_in_ascii() -> None:
    assert len(set(STATES.values())) == len(STATES)
    assert len({to_ascii(glyph) for glyph in STATES.values()}) == len(STATES)


def test_states_of_ranks_nodes_and_jobs_differ_by_shape() -> None:
    ranks = [rank_state(state)[0] for state in ("starting", "training", "silent", "unmeasured", "ended", "stopped", "SIGKILL")]
    nodes = [node_state(state)[0] for state in ("live", "stale", "lost", "left")]
    found = [JobState(status=status) for status in get_args(JobStatus) if status != "ended"]
    ends = ((0, "finished"), (1, "failed"), (143, "stopped"))
    found += [JobState(status="ended", exit_code=code, end_reason=reason) for code, reason in ends]
    jobs = [job_state(SessionState(job=job))[0] for job in found]
    for glyphs in (ranks, nodes, jobs, [glyph for glyph, _ in SEVERITY.values()]):
        assert len(set(glyphs)) == len(glyphs)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "DISTMON_ASCII": "1"}, True),
        ({"LANG": "en_US.UTF-8", "DISTMON_ASCII": "0"}, False),
    ],
)
def test_ascii_only(environment: dict[str, str], expected: bool) -> None:
    assert ascii_only(environment) is expected


def test_to_ascii_keeps_the_width() -> None:
    assert to_ascii("● node – 日本") == "* node - ????"
    assert to_ascii("⣀⣤⣿⠉▁█╭─╮") == ".*:'_#+-+"


@pytest.mark.parametrize("palette", PALETTES.values(), ids=lambda p: p.name)
def test_words_stand_on_the_theme_s_own_ground_and_not_on_the_terminal_s(palette: Palette) -> None:
    grounds = {role: palette.style(role).bgcolor for role in palette.styles}
    assert all((ground is None) == palette.ansi for ground in grounds.values()), grounds


@pytest.mark.parametrize("palette", OWN_COLOURS, ids=lambda p: p.name)
def test_much_work_is_not_painted_as_trouble(palette: Palette) -> None:
    colours = [palette.style(f"cool{level}").color for level in range(HEAT_LEVELS)]
    work = {colour.name for colour in colours if colour is not None}
    assert work.isdisjoint({palette.bad, palette.warn})
