"""`distmon restart`: stop a running job and start the same command again, with a recording of its own."""

from __future__ import annotations

import argparse
import sys

from distmon.core.printable import clean
from distmon.launcher.actions import RestartJob
from distmon.launcher.control import ask, find_job
from distmon.tui.cli.stop import add_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job(parser)


def run(arguments: argparse.Namespace) -> int:
    job = find_job(arguments.job)
    sys.stdout.write(f"{job.name}: {clean(ask(job, RestartJob()))}\n")
    return 0
