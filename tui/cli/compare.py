"""`distmon compare`: two recorded sessions side by side, or two groups of repeated runs, or two sweeps."""

from __future__ import annotations

import argparse
from pathlib import Path

from distmon.core.comparison import run_values
from distmon.core.epoch_comparison import epoch_run
from distmon.core.errors import DistmonError
from distmon.replay.report.compare import Compared, compare, sections
from distmon.replay.report.render import to_markdown
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state
from distmon.tui.cli.sessions import SESSION_HELP, as_text, load_all, resolve, warn, write_json, write_text

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
    base, other = runs_of(arguments.base), runs_of(arguments.other)
    _check_apart(base, other)
    found = compare(base, other)
    if arguments.json:
        write_json(found)
    else:
        render = to_markdown if arguments.markdown else as_text
        write_text(render(sections(found)))
    return 0


def runs_of(argument: str) -> list[Compared]:
    """The recordings that an argument means; a folder has one that came to a good end. Raises DistmonError."""
    runs = load_all([argument], _load)
    if resolve(argument, demo=False).is_dir() and not any(one.ended_well for one in runs):
        raise DistmonError(f"{argument} holds no run that came to a good end")
    return runs


def _check_apart(base: list[Compared], other: list[Compared]) -> None:
    """Raises DistmonError where both sides are the same sessions, whatever their files are called."""
    ours, theirs = ({one.session.session_id for one in side} for side in (base, other))
    if ours == theirs and "" not in ours:
        what = f"the same session, {ours.pop()}" if len(ours) == 1 else f"the same {len(ours)} sessions"
        raise DistmonError(f"base and other are {what}: there is nothing to compare; name another run")


def _load(path: Path) -> Compared:
    state, notes = load_state(path)
    return Compared(summarise(state, str(path), warn(path, notes)), run_values(state), epoch_run(state))
