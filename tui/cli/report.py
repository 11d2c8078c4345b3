"""`distmon report`: the numbers of recorded sessions."""

from __future__ import annotations

import argparse

from distmon.core.errors import UsageError
from distmon.replay.report import model
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.sections import sections
from distmon.tui.cli.sessions import SESSION_HELP, load_summary, resolve, write_json, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="*", help=SESSION_HELP)
    parser.add_argument("--demo", action="store_true", help="the session that comes with distmon")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON with units in its keys (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.session and not arguments.demo:
        raise UsageError("report needs a SESSION: a file, a recording's name, or last")
    paths = [resolve(argument, demo=False) for argument in arguments.session]
    if arguments.demo:
        paths.append(resolve(None, demo=True))
    found = [load_summary(path) for path in paths]
    if arguments.json:
        write_json(model.Report(sessions=found))
    elif arguments.markdown:
        titled = (f"# {path.name}\n\n{to_markdown(sections(session))}" for path, session in zip(paths, found, strict=True))
        write_text("\n".join(titled))
    else:
        write_text("\n\n".join(to_text(sections(session)) for session in found))
    return 0
