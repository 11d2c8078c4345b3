"""`distmon horovod build`: Horovod, built for the frameworks of a Python environment and kept as a wheel."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from distmon.launcher.horovod_build import build, default_cache, gpu_note, install
from distmon.launcher.long_command import show_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    chosen = actions.add_parser("build", help="build the wheel, or take it from the cache, and install it")
    chosen.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the Python that trains; built for its PyTorch and TensorFlow"
    )
    chosen.add_argument("--no-install", action="store_true", help="print the wheel's path instead of installing it")
    chosen.add_argument("--cache", type=Path, default=None, help=f"where wheels are kept (default {default_cache()})")


def run(arguments: argparse.Namespace) -> int:
    note = gpu_note(arguments.python)
    if note is not None:
        sys.stderr.write(f"distmon: {note}\n")
    with show_progress(sys.stderr) as report:
        wheel = build(arguments.python, report, arguments.cache)
        if not arguments.no_install:
            install(arguments.python, wheel, report)
    if arguments.no_install:
        sys.stdout.write(f"{wheel}\n")
    return 0
