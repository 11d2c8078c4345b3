"""`distmon compare`: two recorded sessions side by side."""

from __future__ import annotations

import argparse

from distmon.replay.report.compare import compare, sections
from distmon.replay.report.render import to_markdown, to_text
from distmon.tui.cli.sessions import SESSION_HELP, load_summary, resolve, write_json, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", help=SESSION_HELP)
    parser.add_argument("other", help="the recording to hold against it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON with units in its keys (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    base, other = (load_summary(resolve(argument, demo=False)) for argument in (arguments.base, arguments.other))
    found = compare(base, other)
    if arguments.json:
        write_json(found)
    else:
        render = to_markdown if arguments.markdown else to_text
        write_text(render(sections(found)))
    return 0
