"""The filter language of every table and log: words, fields, regular expressions, fuzzy letters, each of them inverted at will.

    node-003            rows with the text in them, whatever its case
    "epoch 3"           a phrase: the text with its blanks, also as what a field is compared with
    late>5 host=gpu     a field against a number or a part of a text: = != < <= > >=, and ~ for a regular expression
    host==gpu01         all of a text
    /oom|killed/        a regular expression on the whole row
    ~nd3                its letters in this order, other letters between them
    !ended              not this one; goes before any of the others

All terms must hold. What is not a field of the rows is looked for as text, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

LANGUAGE = (
    ("node-003", "rows with the text in them, whatever its case"),
    ('"epoch 3"', "a phrase, with its blanks; also behind host="),
    ("late>5 host=gpu", "a field: = != < <= > >=, and ~ for an expression"),
    ("host==gpu01", "all of a text, where = asks for a part of it"),
    ("/oom|killed/", "a regular expression on the whole row"),
    ("~nd3", "its letters in this order, others between them"),
    ("!ended", "not this one; before any of the others"),
)
"""For the help: an example of each kind of term, and what passes it."""
Value = float | int | str | None
Fields = Mapping[str, Value]
_Test = Callable[[Fields, str], bool]
_FIELD = re.compile(r"([a-z_]+)(!=|<=|>=|==|=|<|>|~)(.*)", re.IGNORECASE)
_COMPARISONS = "= == != < <= > >= ~"
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
    note: str = ""
    """How it was understood, where that may not be what was meant."""
    of_text: bool = True
    """Whether any of it is of the row's text, and not all of its fields."""

    def passes(self, fields: Fields, text: str = "") -> bool:
        """Whether a row passes; `text` is what there is of it besides its fields."""
        if not self.tests:
            return True
        whole = "\n".join([text, *[v for v in fields.values() if isinstance(v, str)]]).lower() if self.of_text else ""
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
    words = _words(text, names)
    of_text = not all((field := _FIELD.fullmatch(word.lstrip("!"))) and field[1].lower() in names for word in words)
    try:
        return Filter(text, tuple(_term(word, names) for word in words), note=_note(text, names), of_text=of_text)
    except _NoComparison as error:
        return Filter(text, error=str(error))
    except re.error as error:
        return Filter(text, error=f"{error}: a regular expression")


class _NoComparison(Exception):
    """What a field is compared with is missing, or no number where it must be one, or how is not known, in words."""


def _note(text: str, names: tuple[str, ...]) -> str:
    """What is looked for as text though it is written like a field, or a part of a term."""
    words = _words(text, names)
    fields = (match for word in words if (match := _FIELD.fullmatch(word.removeprefix("!"))))
    unknown = [match[1] for match in fields if match[3] and match[1].lower() not in names]
    parts = [word for word in words if word in ("!", "~") or word.startswith(("=", "!=", "<", ">"))]
    notes = [f"{', '.join(unknown)}: no field of these rows, looked for as text"] if unknown else []
    return "; ".join([*notes, *([f"{', '.join(parts)}: looked for as text"] if parts else [])])


def literal_words(text: str, names: tuple[str, ...] = ()) -> tuple[tuple[str, ...], ...]:
    """Words, in small letters, of which every row that passes has one of each in its text or in one of its fields of text."""
    found = list[tuple[str, ...]]()
    for term in _words(text, names):
        field = _FIELD.fullmatch(term)
        if term[0] in "!~" or (field and field[1].lower() in names):
            continue
        if _is_expression(term):
            found += _words_of_expression(term[1:-1])
        elif term.isascii() and _is_telling(_unquoted(term)):
            found.append((_unquoted(term).lower(),))
    return tuple(found)


def _is_expression(term: str) -> bool:
    return len(term) > 2 and term.startswith("/") and term.endswith("/")


def _is_telling(word: str) -> bool:
    """Whether it is written in a recording as it is here, and is not a time of day, which is written otherwise."""
    return not set(word) & {'"', "\\"} and any(c.isalpha() for c in word)


_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[^}]*\}|.", re.DOTALL)
_CLASSES = tuple(rf"\{letter}" for letter in "dDsSwWbBAZ")


def _words_of_expression(pattern: str) -> list[tuple[str, ...]]:
    """Likewise of a regular expression: words that it spells out, one of each alternative. None of one that has groups."""
    alternatives = [list[str]()]
    run = ""
    for token in [*_TOKEN.findall(pattern), "|"]:
        if token.startswith("(") or (token[0] == "\\" and token[1:].isalnum() and token not in _CLASSES):
            return []
        literal = token.removeprefix("\\") if token not in _CLASSES else ""
        if len(literal) == 1 and (token[0] == "\\" or token not in "^$.*+?|") and " " < literal < "\x7f" and literal not in '"\\':
            run += literal.lower()
            continue
        if token in "*?" or token[0] == "{":
            run = run[:-1]  # may not be there
        alternatives[-1].append(run)
        run = ""
        if token == "|":
            alternatives.append([])
    told = [[word for word in words if _is_telling(word)] for words in alternatives[:-1]]
    if len(told) == 1:
        return [(word,) for word in told[0]]
    return [tuple(max(words, key=len) for words in told)] if all(told) else []


_WORD = re.compile(
    r"""!?/(?:[^/\\]|\\.)*/                                        # an expression
    | (?:!?|!?[a-z_]+(?:!=|<=|>=|==|=|<|>|~))"[^"]+(?:"(?!\S)|$)  # a phrase, which may still be typed
    | \S+""",
    re.IGNORECASE | re.VERBOSE,
)


def _unquoted(word: str) -> str:
    """A phrase without its quotes; a quote within a word stays."""
    inner = word[1:].removesuffix('"')
    return inner if word.startswith('"') and inner and '"' not in inner else word


def _words(text: str, names: tuple[str, ...]) -> list[str]:
    """At blanks, but not within /.../ and "..."; a field may be written as the head of its column is, with blanks."""
    for name in names:
        if "_" in name:
            text = re.sub(rf"\b{name.replace('_', ' ')}(?=[!=<>~])", name, text, flags=re.IGNORECASE)
    return [match.group() for match in _WORD.finditer(text)]


def _term(word: str, names: tuple[str, ...]) -> _Test:
    if word.startswith("!") and len(word) > 1 and not word.startswith("!="):
        test = _term(word[1:], names)
        return lambda fields, whole: not test(fields, whole)
    if _is_expression(word):
        pattern = re.compile(word[1:-1], re.IGNORECASE | re.MULTILINE)
        return lambda fields, whole: pattern.search(whole) is not None
    if word.startswith("~") and len(word) > 1:
        letters = re.compile(".*?".join(map(re.escape, word[1:].lower())))
        return lambda fields, whole: letters.search(whole) is not None
    match = _FIELD.fullmatch(word)
    if match and match.group(1).lower() in names:
        return _compared(match.group(1).lower(), match.group(2), _unquoted(match.group(3)))
    wanted = _unquoted(word).lower()
    return lambda fields, whole: wanted in whole


def _compared(name: str, operator: str, wanted: str) -> _Test:
    if not wanted:
        raise _NoComparison(f"{name}{operator}: nothing to compare with")
    if wanted[0] in "=<>~!" and operator != "~":
        raise _NoComparison(f"{name}{operator}{wanted}: the comparisons are {_COMPARISONS}")
    if operator == "~":
        pattern = re.compile(wanted, re.IGNORECASE)
        return lambda fields, whole: pattern.search(str(fields.get(name) or "")) is not None
    number = _number(wanted)
    if operator in _ORDER:
        if number is None:
            raise _NoComparison(f"{name}{operator}{wanted}: {wanted} is no number")
        order, limit = _ORDER[operator], number
        return lambda fields, whole: (v := _number(fields.get(name))) is not None and order(v, limit)
    inverse, whole_of_it = operator == "!=", operator == "=="
    return lambda fields, whole: _equal(fields.get(name), wanted.lower(), number, whole_of_it) is not inverse


def _equal(value: Value, wanted: str, number: float | None, whole_of_it: bool) -> bool:
    """Whether a number is the one that is wanted, or a text has it in it, whatever its case, or is all of it."""
    if number is not None and isinstance(value, int | float):
        return value == number
    text = "" if value is None else str(value).lower()
    return text == wanted if whole_of_it else wanted in text


def _number(value: Value) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(value) if value else None
    except ValueError:
        return None
