"""`distmon report`: the numbers and plots of recorded sessions, and how a job scales."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from distmon.core.errors import UsageError
from distmon.core.printable import clean
from distmon.replay.report import model
from distmon.replay.report.render import escaped, to_markdown
from distmon.replay.report.scaling import common_sections
from distmon.replay.report.sections import sections
from distmon.replay.report.tables import Section
from distmon.tui.cli.plotted import Pictures, require_plots, write_html, write_png
from distmon.tui.cli.reported import Reported, load_reported, scaling_of, why_no_scaling
from distmon.tui.cli.sessions import SESSION_HELP, as_text, load_all, resolve, resolve_all, write_json, write_text
from distmon.tui.sweeps import read_sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="*", help=f"{SESSION_HELP}; a folder: all in it")
    parser.add_argument("--demo", action="store_true", help="the session that comes with distmon")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON with units in its keys (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")
    add_kind(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with tables and plots, which works offline")
    parser.add_argument(
        "--price", type=_price, metavar="P", help="of a node for an hour, for the cost of the run and of a sample"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="Horovod's timeline of the session; one that distmon run --timeline made is found without it",
    )
    parser.add_argument("--png", type=Path, metavar="DIR", help="write the plots into a folder, as PNG and SVG")


def add_kind(parser: argparse.ArgumentParser) -> None:
    """--strong and --weak."""
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--strong", action="store_const", dest="kind", const="strong", help="the samples of an epoch stay the same")
    kind.add_argument("--weak", action="store_const", dest="kind", const="weak", help="they grow with the ranks (default: seen)")


def _price(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no price of a node-hour: a number such as 2.50")
    return value


def run(arguments: argparse.Namespace) -> int:
    return publish(arguments, each=True)


def publish(arguments: argparse.Namespace, *, each: bool) -> int:
    """The report in the forms that were asked for; its text has a part for each session, or only what they have in common."""
    if not arguments.session and not arguments.demo:
        raise UsageError("report needs a SESSION: a file, a recording's name, or last")
    files = len(resolve_all(arguments.session)) + arguments.demo
    if each and arguments.kind is not None and files < 2:
        raise UsageError(f"--{arguments.kind} is of how a job scales: name its sessions with different numbers of ranks")
    if arguments.timeline is not None and files != 1:
        raise UsageError("--timeline is of one session; name that one alone")
    drawn = arguments.html is not None or arguments.png is not None
    if drawn:
        require_plots()

    def load(path: Path) -> Reported:
        return load_reported(path, drawn=drawn, price_per_node_hour=arguments.price, timeline=arguments.timeline)

    reported = load_all(arguments.session, load)
    if arguments.demo:
        reported.append(load(resolve(None, demo=True)))
    sweeps = [sweep for name in arguments.session if (sweep := read_sweep(Path(name))) is not None]
    sweep = sweeps[0] if len(sweeps) == 1 else None
    scaling = scaling_of(reported, arguments.kind or (sweep.kind if sweep else None))
    no_scaling = "" if scaling is not None else why_no_scaling(reported, sweep)
    pictures: Pictures | None = None
    if arguments.html is not None:
        write_html(arguments.html, reported, scaling, no_scaling)
        sys.stderr.write(f"distmon: wrote {clean(str(arguments.html))}\n")
    if arguments.png is not None:
        pictures = write_png(arguments.png, reported, scaling)
        sys.stderr.write(f"distmon: wrote {pictures.files} files into {clean(str(arguments.png))}\n")
    if arguments.json:
        write_json(model.Report(sessions=[one.session for one in reported], scaling=scaling, no_scaling=no_scaling))
    elif arguments.markdown or not drawn or not each:
        chosen = reported if each or not (len(reported) > 1 or scaling) else []
        common = common_sections([(one.name, one.session) for one in reported], scaling, no_scaling)
        if arguments.markdown:
            write_text(_markdown(common, reported, chosen, pictures))
        else:
            blocks = [common, *(sections(one.session) for one in chosen)]
            write_text("\n\n".join(as_text(block) for block in blocks if block))
    return 0


def _markdown(common: list[Section], reported: list[Reported], chosen: list[Reported], pictures: Pictures | None) -> str:
    """What sessions have in common, then each by itself under its name, with links to the plots where they were written."""
    blocks = [to_markdown(common)] if common else []
    if pictures and pictures.scaling:
        blocks.append(_links(pictures.scaling))
    for one in chosen:
        blocks.append(f"# {escaped(clean(Path(one.session.file).name))}\n\n{to_markdown(sections(one.session))}")
        if pictures:
            blocks.append(_links(pictures.each[reported.index(one)]))
    return "\n".join(blocks)


def _links(pictures: list[tuple[str, Path]]) -> str:
    return "\n\n".join(f"![{escaped(title)}](<{path}.svg>)" for title, path in pictures) + "\n"
