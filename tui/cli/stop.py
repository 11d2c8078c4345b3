"""`distmon stop`: end a running job, politely, and at once when asked again."""

from __future__ import annotations

import argparse
import sys

from distmon.core.printable import clean
from distmon.launcher.actions import StopJob
from distmon.launcher.control import ask, find_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="kill every rank at once")
    add_job(parser)


def add_job(parser: argparse.ArgumentParser) -> None:
    """Which job is meant, for the verbs that act on one."""
    parser.add_argument("--job", default="", help="which job, where several run here")


def run(arguments: argparse.Namespace) -> int:
    job = find_job(arguments.job)
    sys.stdout.write(f"{job.name}: {clean(ask(job, StopJob(firm=arguments.now)))}\n")
    return 0
