"""The rows of any table in the order, and through the filter, that the user asked for; and their values for a file."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from distmon.tui.view.filters import Filter, Value, told
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

K = TypeVar("K", bound=Hashable)
Record = Mapping[str, object]
"""A row as it was measured: values under names that end in their units."""
LISTED = "as listed"
"""The order in which rows come by themselves; the first of those that a table can be sorted by."""


def sorts_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """What a table of these columns can be sorted by."""
    return (LISTED, *(column.key for column in columns))


def passing(records: Mapping[K, Record], wanted: Filter) -> list[K]:
    """The keys of the rows that pass the filter, in their own order."""
    return [key for key, record in records.items() if wanted.passes({name: _value(value) for name, value in record.items()})]


def in_order(keys: Sequence[K], records: Mapping[K, Record], name: str, *, descending: bool) -> list[K]:
    """By a value of the records, or LISTED; rows without that value come last either way."""
    if name == LISTED:
        return list(reversed(keys)) if descending else list(keys)
    values = {key: _value(records[key].get(name)) for key in keys}
    known = [key for key in keys if values[key] is not None]
    known.sort(key=lambda key: _rank(values[key]), reverse=descending)
    return [*known, *(key for key in keys if values[key] is None)]


def _rank(value: Value) -> tuple[bool, float, str]:
    """Numbers before texts."""
    return (False, value, "") if isinstance(value, int | float) else (True, 0.0, str(value).lower())


def _value(value: object) -> Value:
    if value is None or isinstance(value, int | float | str):
        return value
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """All that a nest of dictionaries and lists holds, each under its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from flat(inner, f"{name}[{number}]")
    else:
        yield name, value


def matches(wanted: Filter, shown: int, total: int, *, problems: bool) -> list[Cell]:
    """What hides rows of a table, and how many pass it; or what is wrong with the filter."""
    words = told(wanted.text, problems=problems)
    if not words:
        return []
    passed = (wanted.error, "bad") if wanted.error else (f"{shown:,} of {total:,}", "text")
    note: list[Cell] = [(f" {wanted.note}", "warn")] if wanted.note else []
    return [(" ".join(words) + " ", "accent"), passed, *note]
