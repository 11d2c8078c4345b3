"""A table of measurements as people publish them: cells with the precision that they were written in, and what a column means."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Literal, NamedTuple

from distmon.core.audit.names import RATE, RATE_EACH, SETTING, SIZE, TIME, WORK, plain_name
from distmon.core.errors import DistmonError

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.(\d*))?|\.(\d+))(?:[eE][-+]?\d{1,2})?")
_TIMES_OR_PERCENT = re.compile(r"\s*[x×%]$", re.IGNORECASE)
_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_GROUPED_BY_POINTS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+(,\d*)?")
_DECIMAL_COMMA = re.compile(r"[-+]?(\d+,(\d{1,2}|\d{4,})|0,\d+|\d{1,3}(\.\d{3})+,\d+)")
_DECIMAL_POINT = re.compile(r"[-+]?(\d*\.(\d{1,2}|\d{4,})|0\.\d+|\d{4,}\.\d+|\d{1,3}(,\d{3})+\.\d+)")
_COMMA = re.compile(r"[-+]?\d+,\d+")


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

Kind = Literal["agrees", "contradicts", "derived", "caution"]


class Finding(NamedTuple):
    """One thing to say. `where` names the rows; `checked` is how many printed numbers it speaks of."""

    kind: Kind
    where: str
    text: str
    checked: int = 1


class Table(NamedTuple):
    """Rows by the name under which a column is understood, the columns' order, and how each is written."""

    name: str
    columns: list[str]
    rows: list[Row]
    written: dict[str, str]
    notes: list[Finding]
    """What had to be assumed when it was read."""

    def matching(self, pattern: re.Pattern[str]) -> str | None:
        """The first column whose whole name matches and that holds a number."""
        return next(iter(self.all_matching(pattern)), None)

    def all_matching(self, pattern: re.Pattern[str]) -> list[str]:
        return [c for c in self.columns if pattern.fullmatch(c) and self.has_number(c)]

    def has_number(self, column: str) -> bool:
        return any(row[column].value is not None for row in self.rows)

    @property
    def size(self) -> str | None:
        """The column with the number of workers; of several, as nodes and GPUs, the one that tells most rows apart."""
        found = self.all_matching(SIZE)
        return max(found, key=lambda c: len({row[c].value for row in self.rows}), default=None)

    @property
    def rate(self) -> str | None:
        """The column with the throughput of all workers."""
        return self.matching(RATE)

    @property
    def rate_each(self) -> str | None:
        """The column with the throughput of each worker."""
        return self.matching(RATE_EACH)

    @property
    def time(self) -> str | None:
        """The column with seconds for the whole of a row."""
        return self.matching(TIME)

    @property
    def work(self) -> str | None:
        """The column with what each worker does in that time."""
        return self.matching(WORK)

    def is_events(self) -> bool:
        return {"run", "event", "seconds"} <= set(self.columns)

    def groups(self) -> dict[str, list[Row]]:
        """Rows that belong together, by size where there is one: those that agree in all columns of words.

        Also in the batch or image size, where rows with as many workers differ in it.
        """
        words = [c for c in self.columns if not self.has_number(c) and any(_is_word(row[c].text) for row in self.rows)]
        found = _by_key([(" ".join(row[c].text for c in words), row) for row in self.rows])
        size = self.size
        if size is None:
            return found
        settings = [c for c in self.columns if SETTING.fullmatch(c)]
        if settings and any(len({row[size].value for row in rows}) < len(rows) for rows in found.values()):
            said = [(key, ", ".join(f"{c} {row[c].text}" for c in settings), row) for key, rows in found.items() for row in rows]
            found = _by_key([(f"{key}, {setting}".lstrip(", "), row) for key, setting, row in said])
        return {key: sorted(rows, key=lambda r: r[size].value or 0.0) for key, rows in found.items()}


def _by_key(rows: list[tuple[str, Row]]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for key, row in rows:
        found.setdefault(key, []).append(row)
    return found


def _is_word(text: str) -> bool:
    return bool(text) and not text[0].isdigit() and text[0] not in "+-."


def parse_cell(text: str, *, decimal_comma: bool = False) -> Cell:
    """A number with the precision that it is written in, also as 1,024.5 or with x or % behind it; anything else is text."""
    text = text.strip()
    plain = _TIMES_OR_PERCENT.sub("", text).replace("\u2212", "-")
    if decimal_comma:
        plain = (plain.replace(".", "") if _GROUPED_BY_POINTS.fullmatch(plain) else plain).replace(",", ".")
    elif _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    match = _NUMBER.fullmatch(plain)
    if match is None or not math.isfinite(float(plain)):
        return Cell(text, None, 0.0)
    exponent = int(plain.lower().partition("e")[2] or 0)
    return Cell(text, float(plain), 0.5 * 10.0 ** (exponent - len(match[1] or match[2] or "")))


def parse_table(text: str, name: str) -> Table:
    """Cells apart by commas, semicolons or tabs under a line of names. Raises DistmonError for what is no table."""
    delimiter, lines = _cells(text.lstrip("\ufeff"), name)
    if len(lines) < 2:
        raise DistmonError(f"{name} holds no table: a line of column names and a row at least are needed")
    header = [column.strip() for column in lines[0]]
    if (number := next((cell for cell in header if parse_cell(cell).value is not None), None)) is not None:
        names = "a first line of names is needed, as gpus,images_per_s; numbers of workers stand in a column, one in each row"
        raise DistmonError(f"{name}: {number} in the first line is a number and no column name: {names}")
    if len(set(header)) != len(header) or not all(header):
        raise DistmonError(f"{name}: every column needs a name of its own in the first line")
    for row, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            cells = f"{len(line)} cells under {len(header)} names{_remedy(line, header, delimiter)}"
            raise DistmonError(f"{name}, row {row}: {cells}")
    columns = _names(header)
    decimal_comma, notes = _decimal_comma([cell for line in lines[1:] for cell in line], delimiter)
    if len(header) == 1:
        text = "one column only: cells are told apart by commas, semicolons or tabs, and by nothing else"
        notes.append(Finding("caution", "all rows", text))
    rows = [
        {column: parse_cell(cell, decimal_comma=decimal_comma) for column, cell in zip(columns, line, strict=True)}
        for line in lines[1:]
    ]
    return Table(name, columns, rows, dict(zip(columns, header, strict=True)), notes)


def _cells(text: str, name: str) -> tuple[str, list[list[str]]]:
    """Apart by what gives the most columns in the first line; by commas where nothing does."""
    found: list[tuple[str, list[list[str]]]] = []
    refused = None
    for delimiter in ",;\t":
        try:
            read = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
            found.append((delimiter, [line for line in read if any(cell.strip() for cell in line)]))
        except csv.Error as error:
            refused = refused or error
    if not found:
        raise DistmonError(f"{name} is no CSV table: {refused}")
    return max(found, key=lambda one: len(one[1][0]) if one[1] else 0)


def _remedy(line: list[str], header: list[str], delimiter: str) -> str:
    if len(header) == 1:
        return "; cells are told apart by commas, semicolons or tabs, the same in all lines"
    if len(line) > len(header) and delimiter == ",":
        return '; a number with a comma in it needs quotes, as "1,024.5"'
    return ""


def _names(header: list[str]) -> list[str]:
    """The name under which each column is understood. Of several that mean the same the first has it, others stay as written."""
    names: list[str] = []
    for written in header:
        name = plain_name(written)
        names.append(written if name in names or (name != written and name in header) else name)
    return names


def _decimal_comma(cells: list[str], delimiter: str) -> tuple[bool, list[Finding]]:
    """Whether 1,5 is one and a half, and what is said where that had to be assumed."""
    plain = [_TIMES_OR_PERCENT.sub("", cell.strip()) for cell in cells]
    if delimiter == "," or any(_DECIMAL_POINT.fullmatch(cell) for cell in plain):
        return False, []
    if any(_DECIMAL_COMMA.fullmatch(cell) for cell in plain):
        return True, []
    unclear = next((cell for cell in plain if _COMMA.fullmatch(cell)), None)
    if unclear is None or delimiter != ";":
        return False, []
    read = f"{unclear} is read as {unclear.replace(',', '.')}, with a decimal comma, since cells are apart by semicolons"
    return True, [Finding("caution", "all rows", f"{read}; write thousands without a mark if they are meant")]
