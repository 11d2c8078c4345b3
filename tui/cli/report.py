"""`distmon report`: the numbers and plots of recorded sessions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from distmon.core.errors import UsageError
from distmon.replay.report import model
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.sections import overview, sections
from distmon.tui.cli.plotted import Reported, load_reported, write_html, write_png
from distmon.tui.cli.sessions import SESSION_HELP, label, load_summary, resolve, resolve_all, write_json, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="*", help=f"{SESSION_HELP}; a folder: all in it")
    parser.add_argument("--demo", action="store_true", help="the session that comes with distmon")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON with units in its keys (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with tables and plots, which works offline")
    parser.add_argument("--png", type=Path, metavar="DIR", help="write the plots into a folder, as PNG and SVG")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.session and not arguments.demo:
        raise UsageError("report needs a SESSION: a file, a recording's name, or last")
    paths = resolve_all(arguments.session)
    if arguments.demo:
        paths.append(resolve(None, demo=True))
    if arguments.html is not None or arguments.png is not None:
        found = _plotted(paths, arguments.html, arguments.png)
        if not (arguments.json or arguments.markdown):
            return 0
    else:
        found = [load_summary(path) for path in paths]
    if arguments.json:
        write_json(model.Report(sessions=found))
        return 0
    blocks = [sections(session) for session in found]
    if len(found) > 1:
        summary = overview([(label(path), session) for path, session in zip(paths, found, strict=True)])
        write_text((to_markdown(summary) if arguments.markdown else to_text(summary)) + "\n")
    if arguments.markdown:
        titled = (f"# {path.name}\n\n{to_markdown(block)}" for path, block in zip(paths, blocks, strict=True))
        write_text("\n".join(titled))
    else:
        write_text("\n\n".join(to_text(block) for block in blocks))
    return 0


def _plotted(paths: list[Path], html: Path | None, png: Path | None) -> list[model.Session]:
    reported: list[Reported] = [load_reported(path) for path in paths]
    if html is not None:
        write_html(html, reported)
        sys.stderr.write(f"distmon: wrote {html}\n")
    if png is not None:
        written = write_png(png, reported)
        sys.stderr.write(f"distmon: wrote {len(written)} files into {png}\n")
    return [one.session for one in reported]
