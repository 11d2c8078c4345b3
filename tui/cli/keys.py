"""`distmon keys`: who may follow agents over the network, in plain words."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.wire.addresses import check_address
from distmon.wire.keys import (
    AGENTS,
    VIEWERS,
    Entry,
    checked_key,
    checked_name,
    create_own,
    entries,
    keys_folder,
    load_own,
    save_entries,
)

EPILOG = """\
  distmon keys init                                 a key for this user; once on each machine
  distmon keys show                                 the public key, to give to others
  distmon keys add anna KEY                         on an agent's machine: Anna's viewer may follow its agents
  distmon keys add node1 KEY --agent tcp://node1:7070   on a viewer's machine: this agent is node1's
  distmon keys list
  distmon keys revoke anna                          works within a second, on live connections too
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--dir", type=Path, metavar="DIR", help="the folder of keys (this user's own)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("init", help="make a key for this user")
    actions.add_parser("show", help="print the public key")
    add = actions.add_parser("add", help="let a viewer in, or get to know an agent")
    add.add_argument("name", help="a name of yours for it")
    add.add_argument("key", help="its public key, as its `distmon keys show` prints it")
    add.add_argument("--agent", metavar="ADDRESS", help="the key is that of the agent at tcp://HOST:PORT")
    actions.add_parser("list", help="whom this user's agents let in, and which agents it knows")
    revoke = actions.add_parser("revoke", help="let a viewer in no longer, or forget an agent")
    revoke.add_argument("name", help="its name, or its key")


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.dir or keys_folder()
    lines = {
        "init": lambda: _init(folder),
        "show": lambda: [load_own(folder).public],
        "add": lambda: _add(folder, arguments.name, arguments.key, arguments.agent),
        "list": lambda: _list(folder),
        "revoke": lambda: _revoke(folder, arguments.name),
    }[arguments.action]()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _init(folder: Path) -> list[str]:
    pair = create_own(folder)
    return [f"made a key in {folder}; its public part, which others may know:", pair.public]


def _add(folder: Path, name: str, key: str, agent: str | None) -> list[str]:
    name, key = checked_name(name), checked_key(key)
    if agent is not None and not agent.startswith("tcp://"):
        raise UsageError(f"{agent!r} needs no key: only agents at tcp://HOST:PORT have one")
    entry = Entry(key, name, check_address(agent, binding=False, keyed=True) if agent else "")
    which = AGENTS if agent else VIEWERS
    listed = entries(folder, which)
    for known in listed:
        if known.name == name or known.key == key or (agent and known.address == agent):
            raise DistmonError(
                f"{known.name} is there already, with key {known.key}; first: distmon keys revoke {known.name}"
            )
    save_entries(folder, which, [*listed, entry])
    return [f"{name} at {agent} is known now" if agent else f"{name} may follow this user's agents now"]


def _list(folder: Path) -> list[str]:
    viewers, agents = entries(folder, VIEWERS), entries(folder, AGENTS)
    lines = [f"viewer  {entry.key}  {entry.name}" for entry in viewers]
    lines += [f"agent   {entry.key}  {entry.name}  {entry.address}" for entry in agents]
    return lines or ["nobody yet; distmon keys add NAME KEY lets a viewer in"]


def _revoke(folder: Path, name: str) -> list[str]:
    said: list[str] = []
    for which, text in ((VIEWERS, "may follow this user's agents no longer"), (AGENTS, "is no agent known here any more")):
        listed = entries(folder, which)
        rest = [entry for entry in listed if name not in (entry.name, entry.key)]
        if len(rest) < len(listed):
            save_entries(folder, which, rest)
            said.append(f"{name} {text}")
    if not said:
        raise DistmonError(f"there is no {name} here; to see who is: distmon keys list")
    return said
