"""The rows of any table in the order, and through the filter, that the user asked for; and their values for a file."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from distmon.tui.view.filters import Filter, Value

K = TypeVar("K", bound=Hashable)
Record = Mapping[str, object]
"""A row as it was measured: values under names that end in their units."""
LISTED = "as listed"
"""The order in which rows come by themselves, among the columns to sort by."""


def passing(records: Mapping[K, Record], wanted: Filter) -> list[K]:
    """The keys of the rows that pass the filter, in their own order."""
    return [key for key, record in records.items() if wanted.passes({name: _value(value) for name, value in record.items()})]


def in_order(keys: Sequence[K], records: Mapping[K, Record], column: str, descending: bool) -> list[K]:
    """By a column, which is a name of the records; rows without a value come last either way."""
    if column == LISTED:
        return list(reversed(keys)) if descending else list(keys)
    values = {key: _value(records[key].get(column)) for key in keys}
    numbers = [key for key in keys if isinstance(values[key], int | float)]
    texts = [key for key in keys if isinstance(values[key], str)]
    numbers.sort(key=lambda key: values[key], reverse=descending)  # type: ignore[arg-type,return-value]
    texts.sort(key=lambda key: str(values[key]).lower(), reverse=descending)
    return [*numbers, *texts, *(key for key in keys if values[key] is None)]


def _value(value: object) -> Value:
    return value if value is None or isinstance(value, int | float | str) else " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
