"""The filter language: words, fields, regular expressions, fuzzy letters, and each of them inverted."""

from __future__ import annotations

import random

import pytest

from distmon.tui.view.filters import Fields, literal_words, read_filter

NAMES = ("rank", "host", "late", "state")
PARTS = ("a", "b", "B", " ", ".", "*", "?", "+", "|", "[ab]", "{2}", "\\d", "\\.", "^", "$")
ROW: Fields = {"rank": 12, "host": "node-003", "late": 29.9, "state": "slow"}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("NODE-003", True),
        ("node-004", False),
        ("node slow", True),
        ("node ended", False),
        ("rank=12", True),
        ("rank!=12", False),
        ("rank=1", False),
        ("late>29", True),
        ("late>=29.9", True),
        ("late<29.9", False),
        ("late<=30", True),
        ("host=NODE-003", True),
        ("host=node-0", True),
        ("host=node-1", False),
        ("host!=node", False),
        ("host!=node-1", True),
        ("host==NODE-003", True),
        ("host==node-00", False),
        ("!host==node-00", True),
        ("rank==12", True),
        ("rank==1", False),
        ("host~^node-00[34]$", True),
        ("host~^gpu", False),
        ("/n.de-0+3/", True),
        ("/a or b/", False),
        ("/^12$/", True),  # each field, and the text, is a line of its own
        ("/^node-003$/", True),
        ("/12$/ /^slow/", True),
        ("/12 node/", False),
        ("~nd3", True),
        ("~3dn", False),
        ("!slow", False),
        ("!ended", True),
        ("!late>50 !/gpu/ ~ode", True),
        ("!rank=12", False),
        ('"a b" node', True),
        ('"A b', True),  # still being typed
        ('"b a"', False),
        ('!"a b"', False),
        ('host="node-003"', True),
        ('host="node 003"', False),
        ('host=="node-003"', True),
        ('"slow"', True),
        ('"slow":', False),  # a quote within a word is a part of it
        ("weight=3", False),  # no field of these rows: looked for as text
    ],
)
def test_terms(text: str, passes: bool) -> None:
    assert read_filter(text, NAMES).passes(ROW, "12 a b" if "a b" in text.lower() else "12") is passes


def test_a_field_without_a_value_passes_no_comparison_but_its_inverse() -> None:
    row: Fields = {"late": None}
    assert not read_filter("late>0", NAMES).passes(row)
    assert read_filter("late!=0", NAMES).passes(row)


def test_what_is_wrong_with_an_expression_is_told_and_hides_nothing() -> None:
    found = read_filter("/(/", NAMES)
    assert "regular expression" in found.error
    assert found.passes(ROW)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("OOM late>5 x=1 !gone ~fz", (("oom",), ("x=1",))),
        ('"CUDA error" !"x y" host="a b"', (("cuda error",),)),
        ("/illegal .* access/", (("illegal",), ("access",))),
        ("/oom|killed by/", (("oom", "killed"),)),
        (r"/cuda\.error: \d+ab?c/", (("cuda.error:",), ("a",), ("c",))),
        ("/colou?r[rgb]x{0,3}y+z/", (("colo",), ("r",), ("y",), ("z",))),
        ("/oom|.*/", ()),
        (r"/(a|b)c \x41bc/", ()),
        (r'/12:30 "x" \\y/', (("x",), ("y",))),
    ],
)
def test_words_that_every_line_has(text: str, words: tuple[tuple[str, ...], ...]) -> None:
    assert literal_words(text, NAMES) == words


def test_what_is_no_number_is_told_and_what_is_no_field_is_looked_for_as_text_and_told() -> None:
    for text in ("late>x", "!late<=many", "slow late>1,5"):
        found = read_filter(text, NAMES)
        assert "is no number" in found.error and found.passes(ROW), text
    found = read_filter("foo=3 !bar>1 late>5", NAMES)
    assert found.note == "foo, bar: no field of these rows, looked for as text" and not found.error
    assert not found.passes(ROW) and found.passes(ROW, "foo=3")
    for plain in ("late>5 host=a", "node-003", "/a=b/", "~nd", "foo="):
        assert not read_filter(plain, NAMES).note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host==", "host==: nothing to compare with"),
        ("!late>", "late>: nothing to compare with"),
        ("host===x", "host===x: the comparisons are"),
        ("late=>5", "late=>5: the comparisons are"),
        ("slow host=~x", "host=~x: the comparisons are"),
    ],
)
def test_a_comparison_that_is_none_is_told_and_hides_nothing(text: str, words: str) -> None:
    found = read_filter(text, NAMES)
    assert found.error.startswith(words) and found.passes(ROW)


@pytest.mark.parametrize("text", ["=x", "slow ==", "!", "~", ">5", "!=a"])
def test_what_is_left_of_a_term_is_looked_for_as_text_and_told(text: str) -> None:
    found = read_filter(text, NAMES)
    assert found.note == f"{text.removeprefix('slow ')}: looked for as text" and not found.error and not found.passes(ROW)


def test_a_field_is_also_found_by_the_head_of_its_column() -> None:
    names = ("step_ms", "late")
    for text in ("step ms>100 late<5", "!Step ms<=100", "step_ms>100"):
        assert read_filter(text, names).passes({"step_ms": 120.0, "late": 1.0}), text
        assert not read_filter(text, names).passes({"step_ms": 90.0, "late": 1.0}), text
    assert literal_words("step ms>100 oom", names) == (("oom",),)


def test_what_lacks_the_words_passes_no_expression() -> None:
    dice, passed = random.Random(7), 0
    for _ in range(3_000):
        pattern = "".join(dice.choices(PARTS, k=4))
        wanted, words = read_filter(f"/{pattern}/"), literal_words(f"/{pattern}/")
        for line in ("".join(dice.choices("abB .1", k=5)) for _ in range(0 if wanted.error else 20)):
            if wanted.passes({}, line):
                passed += bool(words)
                assert all(any(word in line.lower() for word in either) for either in words), (pattern, line, words)
    assert passed > 1_000
