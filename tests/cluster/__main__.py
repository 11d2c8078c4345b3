"""A cluster to play with by hand: `python -m tests.cluster up 3`. See README.md."""

from __future__ import annotations

import argparse
import cmd
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import ROOT, Attached, Cluster
from tests.cluster.requirements import why_not


class Console(cmd.Cmd):
    """One line, one deed."""

    prompt = "cluster> "

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster

    def do_in(self, line: str) -> None:
        """in HOST [COMMAND ...]: run a command, or a shell, on a host."""
        name, *command = shlex.split(line) or [""]
        if name not in self.cluster.hosts or not self.cluster.hosts[name].alive:
            self._say(f"there is no host {name!r} up; see: list")
            return
        host = self.cluster.hosts[name]
        host.popen(*(command or [os.environ.get("SHELL", "sh")]), cwd=ROOT).wait()

    def do_up(self, line: str) -> None:
        """up HOST ...: start hosts."""
        self.cluster.up(*line.split())

    def do_join(self, line: str) -> None:
        """join HOST [SLOTS]: start a host if it is not up, and list it for discovery scripts."""
        name, *slots = line.split()
        self.cluster.join(name, *(int(number) for number in slots))

    def do_leave(self, line: str) -> None:
        """leave HOST: take a host off the list; it stays up."""
        self.cluster.leave(line)

    def do_cut(self, line: str) -> None:
        """cut HOST: take its link down."""
        self.cluster.cut(line)

    def do_heal(self, line: str) -> None:
        """heal HOST: bring its link up again."""
        self.cluster.heal(line)

    def do_kill(self, line: str) -> None:
        """kill HOST: end every process of a host."""
        self.cluster.kill(line)

    def do_lose(self, line: str) -> None:
        """lose HOST: the host is gone without a word."""
        self.cluster.lose(line)

    def do_list(self, line: str) -> None:
        """list: the hosts and what runs on them."""
        for name, host in self.cluster.hosts.items():
            self._say(f"{name}  {host.address}  {'up' if host.alive else 'gone'}")
            for pid, words in host.processes().items():
                self._say(f"    {pid}  {' '.join(words)[:100]}")

    def do_quit(self, line: str) -> bool:
        """quit: end everything."""
        return True

    do_EOF = do_quit

    def emptyline(self) -> bool:
        return False

    def onecmd(self, line: str) -> bool:
        """A deed that cannot be done is told, and ends nothing."""
        try:
            return super().onecmd(line)
        except (KeyError, ValueError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            self._say(f"cannot do that: {error!r}; see: help")
            return False

    def _say(self, text: str) -> None:
        self.stdout.write(text + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start hosts node1, node2, ... and read commands for them")
    up.add_argument("hosts", type=int, help="how many")
    deeds = {"in": "run a command, or a shell, on a host", "cut": "take its link down", "heal": "bring it up again"}
    for verb, words in deeds.items():
        other = verbs.add_parser(verb, help=f"from another terminal: {words}")
        other.add_argument("--cluster", type=Path, metavar="FOLDER", help="where there is more than one (default: the youngest)")
        other.add_argument("host")
        if verb == "in":
            other.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    reason = why_not()
    try:
        if not reason and options.verb != "up":
            return from_elsewhere(options)
    except RuntimeError as error:
        reason = str(error)
    if reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    return up_and_play(options.hosts)


def from_elsewhere(options: argparse.Namespace) -> int:
    """A deed on the cluster that another terminal has up."""
    cluster = Attached(options.cluster)
    if options.verb == "in":
        return cluster.run(options.host, *(options.command or [os.environ.get("SHELL", "sh")]))
    cluster.set_link(options.host, up=options.verb == "heal")
    return 0


def up_and_play(hosts: int) -> int:
    """A cluster for as long as commands come."""
    names = [f"node{number}" for number in range(1, hosts + 1)]
    with Cluster() as cluster:
        cluster.up(*names)
        for name in names:
            cluster.join(name)
        sys.stdout.write(f"{', '.join(names)} are up; all see {cluster.shared}\n")
        sys.stdout.flush()
        sys.stdout.write(f"cat {cluster.listed} is a discovery script; help lists the commands; in node1 opens a shell\n")
        try:
            Console(cluster).cmdloop()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
