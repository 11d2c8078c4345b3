"""The bars of efficiency: above what is ideal, and before there are steps enough."""

from __future__ import annotations

from dataclasses import replace

from distmon.core.against import program_of
from distmon.core.state import SessionState
from distmon.core.steady import SteadySpeed, steps_so_far
from distmon.core.synthetic import Script, session
from distmon.tui.screens.scaling import _speed
from distmon.tui.theme import DARK
from distmon.tui.view.scaling import LIVE, Run, bar_lines, cells, records
from tests.tui.conftest import folded

WIDTH = 70


def rows(live: Run, *efficiencies: float) -> list[str]:
    """Bars against a run with one rank; the others have two."""
    runs = {LIVE: live, "base": Run("base", SteadySpeed(ranks=1, samples_per_s=100.0), "")}
    for number, efficiency in enumerate(efficiencies):
        runs[str(number)] = Run(str(number), SteadySpeed(ranks=2, samples_per_s=200.0 * efficiency), "")
    return [line.strip(WIDTH, DARK.style("text")).text for line in bar_lines(runs, "base", DARK, WIDTH, 20)]


def test_a_bar_above_ideal_is_longer_than_an_ideal_one_and_none_leaves_its_panel() -> None:
    live = Run("this session", SteadySpeed(ranks=2, samples_per_s=500.0))
    head, base, *others = rows(live, 1.0, 0.5)
    above = next(row for row in others if "250%" in row)
    just = next(row for row in others if " 100%" in row)
    half = next(row for row in others if " 50%" in row)
    assert "full is 250%, │ is ideal" in head
    places = {row.index("│") for row in (base, above, just, half)}
    assert len(places) == 1, "the mark of what is ideal is at one place"
    ideal = places.pop()
    assert above.count("━") + 1 > 2.4 * just.count("━") and just.count("━") == ideal - 8 and half.count("━") < just.count("━")
    assert "2.00x" in just and "5.00x" in above and all(row == row.rstrip().ljust(WIDTH) for row in (above, just, half))


def test_where_no_run_is_above_ideal_the_full_width_is_ideal() -> None:
    head, base, *_ = rows(Run("this session", SteadySpeed(ranks=2, samples_per_s=150.0)))
    assert "full is ideal" in head and "│" not in base and base.count("━") == WIDTH - 15 - len("1.00x")


def test_a_run_of_another_program_has_no_speedup_but_the_reason() -> None:
    """The recording of one script was drawn as 19 % of the efficiency of another, without a word."""
    speed = SteadySpeed(ranks=2, samples_per_s=38.0)
    ours = Run("this session", speed, program=program_of(["python", "-u", "examples/torch_digits.py", "--seconds", "30"]))
    runs = {
        LIVE: ours,
        "base": replace(ours, name="base", program=program_of(["python3.11", "/x/torch_digits.py", "--seconds", "30"])),
        "more": replace(ours, name="more", program=program_of(["torch_digits.py", "--seconds", "60"])),
        "mine": replace(ours, name="mine", program=program_of(["python", "my_torch.py"])),
        "module": replace(ours, name="module", program=program_of(["python", "-m", "pack.train", "my_torch.py"])),
        "old": replace(ours, name="old", program=()),
    }
    bars = [line.strip(WIDTH, DARK.style("text")).text.rstrip() for line in bar_lines(runs, "base", DARK, WIDTH, 20)]
    assert sum("1.00x" in row for row in bars) == 4
    assert bars[-2:] == ["mine: other program: my_torch.py", "module: other program: pack.train"]
    shown = {key: [text for text, _ in cells(runs, "base", key)] for key in runs}
    assert shown["mine"][3] == "38.0" and shown["mine"][5:] == ["–", "–", "–", "other program: my_torch.py"]
    assert shown[LIVE][5:] == ["1.00x", "1.00x", "100%", ""] == shown["old"][5:]
    assert shown["more"][5:] == ["1.00x", "1.00x", "100%", "other arguments"]
    told = records(runs, "base")
    assert told["mine"]["speedup"] is None and told["mine"]["state"] == "other program: my_torch.py"


def test_too_few_steps_are_counted() -> None:
    script = Script(ranks=2, nodes=1, seconds=12, step_s=1.0)
    state = folded(session(script))
    few = steps_so_far(state)
    assert few is not None and 0 < few[0] < few[1]
    speed, why = _speed(state)
    assert speed is None and why == f"too few steps yet: {few[0]} of {few[1]}"
    assert f"this session: {why}" in rows(Run("this session", None, why))[-1]
    assert _speed(SessionState())[1] == f"too few steps yet: 0 of {few[1]}"
    many = folded(session(Script(ranks=2, nodes=1, seconds=60)))
    assert steps_so_far(many) is None and _speed(many)[0] is not None
