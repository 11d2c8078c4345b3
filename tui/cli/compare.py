"""`distmon compare`: two recorded sessions side by side, or two groups of repeated runs, or two sweeps."""

from __future__ import annotations

import argparse
from pathlib import Path

from distmon.core.comparison import run_values
from distmon.core.epoch_comparison import epoch_run
from distmon.core.errors import DistmonError
from distmon.replay.report.compare import Compared, compare, sections
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state
from distmon.tui.cli.sessions import SESSION_HELP, resolve_all, warn, write_json, write_text
from distmon.tui.sweeps import read_sweep

EPILOG = """\
A folder stands for the runs in it: name two folders of three runs or more, or two sweeps, to tell a difference from chance.

  distmon compare before.jsonl.zst after.jsonl.zst
  distmon compare sweep-before/ sweep-after/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("base", help=f"{SESSION_HELP}; a folder: the runs in it")
    parser.add_argument("other", help="what to hold against it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON with units in its keys (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    found = compare(runs_of(arguments.base), runs_of(arguments.other))
    if arguments.json:
        write_json(found)
    else:
        render = to_markdown if arguments.markdown else to_text
        write_text(render(sections(found)))
    return 0


def runs_of(argument: str) -> list[Compared]:
    """The recordings that an argument means; of a sweep only those that came to a good end. Raises DistmonError."""
    swept = read_sweep(Path(argument)) is not None
    runs = [(one, code) for one, code in map(_load, resolve_all([argument])) if not swept or code == 0]
    if not runs:
        raise DistmonError(f"{argument} holds no run that came to a good end")
    return [one for one, _ in runs]


def _load(path: Path) -> tuple[Compared, int | None]:
    state, notes = load_state(path)
    summary = summarise(state, str(path), warn(path, notes))
    return Compared(summary, run_values(state), epoch_run(state)), state.job.exit_code
