"""`distmon export`: a recording in a form that other tools read."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from distmon.core.errors import DistmonError
from distmon.replay.export import KINDS
from distmon.replay.session_file import Notes, open_session
from distmon.tui.cli.sessions import SESSION_HELP, resolve, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help=SESSION_HELP)
    parser.add_argument("--to", choices=KINDS, required=True, help="csv: a row per step and rank; chrome: a trace for Perfetto")
    parser.add_argument("-o", dest="out", required=True, metavar="FILE", help="the file to make; - for standard output")


def run(arguments: argparse.Namespace) -> int:
    path = resolve(arguments.session, demo=False)
    session, notes = open_session(path), Notes()
    with _output(arguments.out) as out:
        KINDS[arguments.to](session.events(notes), session.header.at, out)
    warn(path, notes)
    return 0


@contextmanager
def _output(name: str) -> Iterator[TextIO]:
    """A new file, removed again if it could not be written in full; or standard output."""
    if name == "-":
        yield sys.stdout
        return
    path = Path(name)
    try:
        out = path.open("x", encoding="utf-8", newline="")
    except FileExistsError:
        raise DistmonError(f"{path} is there already; give -o another name") from None
    except OSError as error:
        raise DistmonError(f"{path} cannot be written: {os.strerror(error.errno or 0)}") from None
    try:
        with out:
            yield out
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise DistmonError(f"{path} cannot be written: {error.strerror}") from None
        raise
