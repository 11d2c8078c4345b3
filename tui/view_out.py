"""The view as a file: the screen as SVG, HTML or text, or the data of its focused panel as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from pathlib import Path

from rich.style import Style
from textual.strip import Strip

from distmon.core.errors import DistmonError
from distmon.core.printable import clean
from distmon.tui.theme import Palette

Records = Sequence[Mapping[str, object]]
KINDS = ("svg", "html", "text", "csv", "json")
_ENDINGS = {"text": "txt"}


def as_text(lines: Iterable[Strip]) -> str:
    """The screen's characters, without blanks at the right."""
    return "".join(line.text.rstrip() + "\n" for line in lines)


def as_html(lines: Iterable[Strip], palette: Palette, title: str) -> str:
    """A page of its own that looks as the screen does."""
    plain = palette.ansi
    text, ground = ("#d7dde6", "#0e1116") if plain else (palette.text, palette.background)
    rows = ["".join(_span(str(segment.text), segment.style) for segment in line) for line in lines]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f'<body style="background:{ground};color:{text}"><pre style="font-family:monospace;line-height:1.2">'
        + "\n".join(rows)
        + "</pre></body></html>\n"
    )


def _span(text: str, style: Style | None) -> str:
    if style is None or not style:
        return escape(text)
    css = style.get_html_style()
    return f'<span style="{css}">{escape(text)}</span>' if css else escape(text)


def as_csv(records: Records, names_of_none: Sequence[str] = ()) -> str:
    """A line of names, which without a record are `names_of_none`, then one per record."""
    names = list(dict.fromkeys(name for record in records for name in record)) or list(names_of_none)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records)
    return out.getvalue()


def _cell(value: object) -> object:
    """What a list holds, with blanks between."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def as_json(records: Records) -> str:
    return json.dumps(list(records), indent=1, ensure_ascii=False) + "\n"


def as_tsv(records: Records) -> str:
    """For the clipboard: what a spreadsheet takes, and a terminal into which it is pasted does not obey.

    Above several rows stand the names of their columns.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_copied(record.get(name)) for name in names] for record in records]
    heads = [names] * (len(rows) > 1 and len(names) > 1)
    return "".join("\t".join(row) + "\n" for row in [*heads, *rows])


def _copied(value: object) -> str:
    """Figures without what arithmetic leaves behind their ninth decimal."""
    if isinstance(value, float):
        return f"{Decimal(repr(round(value, 9) + 0.0)):f}"
    return "" if value is None else clean(str(_cell(value)))


def save(kind: str, name: str, write: Callable[[], str], folder: Path) -> Path:
    """Writes a new file `name` with the ending of its kind; never over another. Raises DistmonError."""
    ending = _ENDINGS.get(kind, kind)
    for number in range(1, 1000):
        path = folder / (f"{name}.{ending}" if number == 1 else f"{name}-{number}.{ending}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise DistmonError(f"the view cannot be saved in {folder}: {error.strerror}") from None
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(write())
        return path
    raise DistmonError(f"{folder} has 999 views of this name already")
