"""The `distmon` command: finds the verb and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from distmon.core.errors import DistmonError, UsageError, told
from distmon.tui import splash
from distmon.tui.rights import READ_ONLY
from distmon.tui.terminal import can_show_app

VERBS = {
    "run": ("distmon.tui.cli.run", "launch a training job and watch it"),
    "launch": ("distmon.tui.cli.launch", "fill in a form: command, hosts, ranks; see the plan; start it"),
    "serve": ("distmon.tui.cli.serve", "the same screens in a browser, read-only unless asked"),
    "sweep": ("distmon.tui.cli.sweep", "the same job with several numbers of ranks, and how it scales"),
    "record": ("distmon.tui.cli.record", "follow agents and record all that they have, without a screen"),
    "stop": ("distmon.tui.cli.stop", "end a running job: politely, then at once"),
    "restart": ("distmon.tui.cli.restart", "stop a running job and run the same command again"),
    "signal": ("distmon.tui.cli.signal_", "send one rank of a running job a signal"),
    "hosts": ("distmon.tui.cli.hosts", "the hosts of a running elastic job: list, add, remove"),
    "pull": ("distmon.tui.cli.pull", "all that an agent's journal holds, at full rate, into a recording"),
    "replay": ("distmon.tui.cli.replay", "show a recorded session on the same screens"),
    "report": ("distmon.tui.cli.report", "the numbers and plots of recorded sessions: text, Markdown, JSON, HTML, PNG"),
    "compare": ("distmon.tui.cli.compare", "two recorded sessions side by side"),
    "audit": ("distmon.tui.cli.audit", "a published table of measurements against itself"),
    "timeline": ("distmon.tui.cli.timeline", "what a Horovod timeline says of communication, and who was waited for"),
    "export": ("distmon.tui.cli.export", "a recorded session for other tools: CSV or a Chrome trace"),
    "import": ("distmon.tui.cli.import_", "a log of another program as a session: tegrastats"),
    "overhead": ("distmon.tui.cli.overhead", "what distmon's timing costs your own job"),
    "keys": ("distmon.tui.cli.keys", "who may follow agents over the network: init, add, list, revoke, show"),
    "doctor": ("distmon.tui.cli.doctor", "what would break a job here, or on the hosts that are named, and how to mend it"),
    "horovod": ("distmon.tui.cli.horovod", "build Horovod for a Python environment"),
}

SCREEN_FLAGS = {"--slow-link": "DISTMON_SLOW_LINK", "--read-only": READ_ONLY}


class Verb(Protocol):
    """What the module of a verb offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...


    def run(self, arguments: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Usage errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0, 1 for failure, 2 for wrong usage, 130 for Ctrl-C, else its own or a job's."""
    gc.set_threshold(50_000, 20, 100)  # looking for garbage while everything is loaded takes a tenth of that
    words = _without_screen_flags(list(sys.argv[1:] if argv is None else argv))
    debug = "--debug" in words[: words.index("--")] if "--" in words else "--debug" in words
    try:
        return _dispatch_and_flush(words)
    except DistmonError as error:
        if debug:
            raise
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_unwritten()  # the reader of the pipe has what it wanted
        return 0
    except OSError as error:
        _drop_unwritten()
        if debug:
            raise
        _say(told(error))
        return 1


def _say(text: str) -> None:
    """On standard error, in one line. What it quotes, the name of a file or a host, may hold what a terminal would obey."""
    from distmon.core.printable import clean  # only where something is wrong

    sys.stderr.write(f"distmon: {clean(text)}\n")


def _without_screen_flags(words: list[str]) -> list[str]:
    """Flags that go with every verb that has a screen, which is told of them through the environment."""
    own = words[: words.index("--")] if "--" in words else words
    os.environ.update({SCREEN_FLAGS[word]: "1" for word in own if word in SCREEN_FLAGS})
    return [word for word in own if word not in SCREEN_FLAGS] + words[len(own) :]


def _dispatch_and_flush(words: list[str]) -> int:
    """Standard output is written out here, where its failure can still be told."""
    first = splash.said(words)
    if first is not None and can_show_app() and "TEXTUAL_DRIVER" not in os.environ:
        splash.show(first)
    try:
        code = _dispatch(words)
    except SystemExit:  # of help and version
        sys.stdout.flush()
        raise
    finally:
        splash.take_down()
    sys.stdout.flush()
    return code


def _drop_unwritten() -> None:
    """What cannot be written would fail once more at exit, with a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] not in VERBS:
        return _top_level(words)
    name, rest = words[0], words[1:]
    module, help_text = VERBS[name]
    verb = cast(Verb, importlib.import_module(module))
    parser = Parser(
        prog=f"distmon {name}",
        description=help_text[0].upper() + help_text[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    verb.add_arguments(parser)
    if hasattr(verb, "split_words"):
        own, others = verb.split_words(rest)
        return verb.run(parser.parse_args(own, argparse.Namespace(words=others)))
    return verb.run(parser.parse_args(rest))


def _top_level(words: list[str]) -> int:
    from importlib.metadata import version  # which takes as long to load as all the rest here

    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in VERBS.items())
    parser = Parser(
        prog="distmon",
        usage="distmon [--version] [--help] [COMMAND ...]",
        description="The cockpit for distributed training. Without a command: watch this machine.",
        epilog=f"commands:\n{verbs}\n\n`distmon COMMAND --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"distmon {version('distmon')}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--slow-link", action="store_true", help="draw new data every 2 seconds; goes with run and replay too")
    parser.add_argument("--read-only", action="store_true", help="a screen that acts on nothing; goes with run and replay too")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.command is not None:
        raise UsageError(f"there is no command {arguments.command!r}; commands are {', '.join(VERBS)}")
    from distmon.tui.cli.watch import watch

    return watch()


if __name__ == "__main__":
    sys.exit(main())
