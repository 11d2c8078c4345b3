"""`distmon hosts`: the hosts of a running elastic job, and changing them."""

from __future__ import annotations

import argparse
import sys

from distmon.core.errors import UsageError
from distmon.core.printable import clean
from distmon.launcher.actions import AddHost, DrainHost
from distmon.launcher.control import ask
from distmon.launcher.host_file import FILE_NAME, find_job, read_hosts, shown
from distmon.launcher.rundir import running_jobs

EPILOG = """\
For jobs started with --min-np and without a discovery script of their own:

  distmon hosts
  distmon hosts add node3:2
  distmon hosts remove node3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("action", nargs="?", choices=("list", "add", "remove"), default="list", help="default: list")
    parser.add_argument("host", nargs="*", help="NAME:SLOTS to add, or to give other slots; NAME to remove")
    parser.add_argument("--job", default="", help="which job, where several run here")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        _list(arguments.job)
        return 0
    if not arguments.host:
        raise UsageError(f"which host? as in: distmon hosts {arguments.action} node3{':2' * (arguments.action == 'add')}")
    job = find_job(arguments.job)
    for word in arguments.host:
        said = ask(job, AddHost(word) if arguments.action == "add" else DrainHost(word))
    sys.stdout.write(f"{job.name}: {clean(said)}\n")
    return 0


def _list(name: str) -> None:
    jobs = [find_job(name)] if name else running_jobs(FILE_NAME)
    if not jobs:
        sys.stderr.write("distmon: no elastic job runs here whose hosts distmon keeps\n")
    for job in jobs:
        sys.stdout.write(f"{job.name}: {clean(shown(read_hosts(job.folder / FILE_NAME)))}\n")
