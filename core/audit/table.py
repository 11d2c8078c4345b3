"""A table of measurements as people publish them: cells with the precision that they were written in, and what a column means."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Literal, NamedTuple

from distmon.core.errors import DistmonError

_NUMBER = re.compile(r"[-+]?\d+(?:\.(\d+))?(?:[eE][-+]?\d{1,2})?")
_SIZE = re.compile(r"(num_|n_)?(workers|ranks|gpus|nodes|cards|boards|devices|world_size|np|fixed_nodes)", re.IGNORECASE)
_RATE = re.compile(r"((images|samples|examples|tokens|steps|records)_(per_)?(s|sec|second)|throughput\w*|img_s)", re.IGNORECASE)
_RATE_EACH = re.compile(
    r"(images|samples|examples|tokens|steps|records)_(per_)?(s|sec|second)_per_(gpu|worker|rank|card|node|device|board)",
    re.IGNORECASE,
)
_TIME = re.compile(r"(task|total|wall|duration|train|time|run|job)_(s|sec|seconds)|seconds", re.IGNORECASE)
_WORK = re.compile(r"(images|samples|examples|records)_per_(task|epoch|run|worker)", re.IGNORECASE)


class Cell(NamedTuple):
    """What is written. `half` is half a unit of the last digit; `value` is None for what is no plain number."""

    text: str
    value: float | None
    half: float

    @property
    def low(self) -> float:
        return (self.value or 0.0) - self.half

    @property
    def high(self) -> float:
        return (self.value or 0.0) + self.half


Row = dict[str, Cell]


class Table(NamedTuple):
    """Rows by column name, and the columns' order."""

    name: str
    columns: list[str]
    rows: list[Row]

    def matching(self, pattern: re.Pattern[str]) -> str | None:
        """The first column whose whole name matches and that holds a number."""
        return next((c for c in self.columns if pattern.fullmatch(c) and self.has_number(c)), None)

    def has_number(self, column: str) -> bool:
        return any(row[column].value is not None for row in self.rows)

    @property
    def size(self) -> str | None:
        """The column with the number of workers."""
        return self.matching(_SIZE)

    @property
    def rate(self) -> str | None:
        """The column with the throughput of all workers."""
        return self.matching(_RATE)

    @property
    def rate_each(self) -> str | None:
        """The column with the throughput of each worker."""
        return self.matching(_RATE_EACH)

    @property
    def time(self) -> str | None:
        """The column with seconds for the whole of a row."""
        return self.matching(_TIME)

    @property
    def work(self) -> str | None:
        """The column with what each worker does in that time."""
        return self.matching(_WORK)

    def groups(self) -> dict[str, list[Row]]:
        """Rows that belong together: those that agree in all columns of words; by size where there is one."""
        words = [c for c in self.columns if not self.has_number(c) and any(_is_word(row[c].text) for row in self.rows)]
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(" ".join(row[c].text for c in words), []).append(row)
        size = self.size
        if size is None:
            return found
        return {key: sorted(rows, key=lambda r: r[size].value or 0.0) for key, rows in found.items()}


Kind = Literal["agrees", "contradicts", "derived", "caution"]


class Finding(NamedTuple):
    """One thing to say. `where` names the rows."""

    kind: Kind
    where: str
    text: str


def _is_word(text: str) -> bool:
    return bool(text) and not text[0].isdigit() and text[0] not in "+-."


def parse_cell(text: str) -> Cell:
    """A number with the precision that it is written in; anything else is text."""
    text = text.strip()
    match = _NUMBER.fullmatch(text)
    if match is None or not math.isfinite(float(text)):
        return Cell(text, None, 0.0)
    exponent = int(text.lower().partition("e")[2] or 0)
    return Cell(text, float(text), 0.5 * 10.0 ** (exponent - len(match[1] or "")))


def parse_table(text: str, name: str) -> Table:
    """A CSV with a line of names. Raises DistmonError for what is none."""
    try:
        read = csv.reader(io.StringIO(text.lstrip("\ufeff")), strict=True)
        lines = [line for line in read if any(cell.strip() for cell in line)]
    except csv.Error as error:
        raise DistmonError(f"{name} is no CSV table: {error}") from None
    if len(lines) < 2:
        raise DistmonError(f"{name} holds no table: a line of column names and a row at least are needed")
    header = [column.strip() for column in lines[0]]
    if len(set(header)) != len(header) or not all(header):
        raise DistmonError(f"{name}: every column needs a name of its own in the first line")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise DistmonError(f"{name}, row {number}: {len(line)} cells under {len(header)} names")
        rows.append({column: parse_cell(cell) for column, cell in zip(header, line, strict=True)})
    return Table(name, header, rows)
