"""The filter language of every table and log: words, fields, regular expressions, fuzzy letters, each of them inverted at will.

    node-003            rows with the text in them, whatever its case
    late>5 host=gpu01   a field against a number or a text: = != < <= > >=, and ~ for a regular expression
    /oom|killed/        a regular expression on the whole row
    ~nd3                its letters in this order, other letters between them
    !ended              not this one; goes before any of the others

All terms must hold. What is not a field of the rows is looked for as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

LANGUAGE = (
    ("node-003", "rows with the text in them, whatever its case"),
    ("late>5 host=gpu01", "a field: = != < <= > >=, and ~ for an expression"),
    ("/oom|killed/", "a regular expression on the whole row"),
    ("~nd3", "its letters in this order, others between them"),
    ("!ended", "not this one; before any of the others"),
)
"""For the help: an example of each kind of term, and what passes it."""
Value = float | int | str | None
Fields = Mapping[str, Value]
_Test = Callable[[Fields, str], bool]
_FIELD = re.compile(r"([a-z_]+)(!=|<=|>=|=|<|>|~)(.+)", re.IGNORECASE)
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Filter:
    """A filter that was read. Where `error` says what is wrong with it, everything passes."""

    text: str
    tests: tuple[_Test, ...] = ()
    error: str = ""

    def passes(self, fields: Fields, text: str = "") -> bool:
        """Whether a row passes; `text` is what there is of it besides its fields."""
        if not self.tests:
            return True
        whole = f"{text} {' '.join(str(value) for value in fields.values() if isinstance(value, str))}".lower()
        return all(test(fields, whole) for test in self.tests)

    def __bool__(self) -> bool:
        return bool(self.text)


def told(text: str, *, problems: bool = False, rank: int | None = None) -> list[str]:
    """In words what hides rows: the filter, and what else limits them."""
    return [f"rank {rank}"] * (rank is not None) + [f"/{text}"] * bool(text) + ["problems only"] * problems


def all_hidden(words: Sequence[str]) -> str:
    """What a panel says whose rows are all hidden by what was `told`; empty where nothing hides any."""
    return f"no row passes the filter: {', '.join(words)}" if words else ""


@lru_cache(64)
def read_filter(text: str, names: tuple[str, ...] = ()) -> Filter:
    """The filter that a user typed, for rows with these fields."""
    text = text.strip()
    try:
        return Filter(text, tuple(_term(word, names) for word in _words(text)))
    except re.error as error:
        return Filter(text, error=f"{error}: a regular expression")


def literal_words(text: str, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Words of a filter, in small letters, that are in the text of every row that passes or in one of its fields of text."""
    plain = [word.lower() for word in _words(text) if word[0] not in "!/~" and word.isascii()]
    fields = {word for word in plain if (match := _FIELD.fullmatch(word)) and match[1] in names}
    return tuple(w for w in plain if w not in fields and not set(w) & {'"', "\\"} and any(c.isalpha() for c in w))


def _words(text: str) -> list[str]:
    """At blanks, but not within /.../."""
    return [match.group() for match in re.finditer(r"!?/(?:[^/\\]|\\.)*/|\S+", text)]


def _term(word: str, names: tuple[str, ...]) -> _Test:
    if word.startswith("!") and len(word) > 1 and not word.startswith("!="):
        test = _term(word[1:], names)
        return lambda fields, whole: not test(fields, whole)
    if len(word) > 2 and word.startswith("/") and word.endswith("/"):
        pattern = re.compile(word[1:-1], re.IGNORECASE)
        return lambda fields, whole: pattern.search(whole) is not None
    if word.startswith("~") and len(word) > 1:
        letters = re.compile(".*?".join(map(re.escape, word[1:].lower())))
        return lambda fields, whole: letters.search(whole) is not None
    match = _FIELD.fullmatch(word)
    if match and match.group(1).lower() in names:
        return _compared(match.group(1).lower(), match.group(2), match.group(3))
    wanted = word.lower()
    return lambda fields, whole: wanted in whole


def _compared(name: str, operator: str, wanted: str) -> _Test:
    if operator == "~":
        pattern = re.compile(wanted, re.IGNORECASE)
        return lambda fields, whole: pattern.search(str(fields.get(name) or "")) is not None
    number = _number(wanted)
    if operator in _ORDER:
        order = _ORDER[operator]
        return lambda fields, whole: number is not None and (v := _number(fields.get(name))) is not None and order(v, number)
    inverse = operator == "!="
    return lambda fields, whole: _equal(fields.get(name), wanted, number) is not inverse


def _equal(value: Value, wanted: str, number: float | None) -> bool:
    if number is not None and isinstance(value, int | float):
        return value == number
    return value is not None and str(value).lower() == wanted.lower()


def _number(value: Value) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(value) if value else None
    except ValueError:
        return None
