"""`distmon signal`: send one rank of a running job a signal, on whatever host it runs."""

from __future__ import annotations

import argparse
import sys

from distmon.core.errors import UsageError
from distmon.core.printable import clean
from distmon.launcher.actions import SIGNALS, SignalRank, signal_named
from distmon.launcher.control import ask, find_job
from distmon.tui.cli.stop import add_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "signals:\n" + "\n".join(f"  {name:<8} {effect}" for name, effect in SIGNALS.items())
    parser.add_argument("rank", type=int, metavar="RANK")
    parser.add_argument("signal", metavar="SIGNAL", help="by name or number: SIGUSR1, usr1, 10")
    add_job(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.rank < 0:
        raise UsageError(f"ranks are numbered from 0 up, not {arguments.rank}")
    action = SignalRank(arguments.rank, signal_named(arguments.signal))
    job = find_job(arguments.job)
    sys.stdout.write(f"{job.name}: {clean(ask(job, action))}\n")
    return 0
