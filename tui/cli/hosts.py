"""`distmon hosts`: the hosts of a running elastic job, and changing them."""

from __future__ import annotations

import argparse
import sys

from distmon.core.errors import UsageError
from distmon.launcher.facts import is_local
from distmon.launcher.host_file import find_job, is_alone, read_hosts, running_jobs, with_host, without_host, write_hosts

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
    hosts = read_hosts(job.file)
    for word in arguments.host:
        if arguments.action == "add" and is_alone(job.file) and not is_local(word.partition(":")[0]):
            raise UsageError(f"{word} cannot join: the job talks over the loopback; start it with --network-interface NAME")
        hosts = with_host(hosts, word) if arguments.action == "add" else without_host(hosts, word)
    write_hosts(job.file, hosts)
    sys.stdout.write(f"{job.name}: {_shown(hosts)}; the ranks follow at their next commit\n")
    return 0


def _list(name: str) -> None:
    jobs = [find_job(name)] if name else running_jobs()
    if not jobs:
        sys.stderr.write("distmon: no elastic job runs here whose hosts distmon keeps\n")
    for job in jobs:
        sys.stdout.write(f"{job.name}: {_shown(read_hosts(job.file))}\n")


def _shown(hosts: dict[str, int]) -> str:
    return ", ".join(f"{name}:{slots}" for name, slots in hosts.items()) or "no host"
