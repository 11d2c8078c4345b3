"""`distmon timeline`: what a Horovod timeline says of communication."""

from __future__ import annotations

import argparse
from pathlib import Path

from distmon.replay.report import model
from distmon.replay.report.render import to_markdown
from distmon.replay.report.timeline import read_horovod_timeline, summarise_timeline, timeline_sections
from distmon.tui.cli.sessions import as_text, write_json, write_text

FORMAT = 1
EPILOG = """\
Horovod writes the timeline itself, on rank 0: distmon run --timeline -np 2 -- CMD. Times are what the clock showed
while at least one tensor was in that state: pieces nest and tensors overlap, so they do not add up.

  distmon timeline timeline.json
"""


class Report(model.HorovodTimeline, kw_only=True):
    format: int = FORMAT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="TIMELINE.json", help="as HOROVOD_TIMELINE or distmon run --timeline made it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="as Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    found = summarise_timeline(read_horovod_timeline(arguments.file), str(arguments.file))
    if arguments.json:
        write_json(Report(**{name: getattr(found, name) for name in found.__struct_fields__}))
    else:
        write_text((to_markdown if arguments.markdown else as_text)(timeline_sections(found)))
    return 0
