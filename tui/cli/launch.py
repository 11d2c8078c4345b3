"""`distmon launch`: the form that starts a job, on the screen that watches this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from distmon.launcher.form import form_of
from distmon.launcher.settings import load_settings
from distmon.tui.cli.watch import watch

EPILOG = """\
The form begins with what is given here as for distmon run, none of which is needed:

  distmon launch
  distmon launch --preset digits
  distmon launch -np 4 -H node1:2,node2:2 -- python train.py
"""
_HELP = ("--help", "-h", "--debug")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon launch [--preset NAME] [flags of distmon run] [-- COMMAND ...]"
    parser.epilog = EPILOG


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Help, and all the rest, which the form takes apart."""
    flags = words[: words.index("--")] if "--" in words else words
    own = [word for word in flags if word in _HELP]
    return own, [word for word in flags if word not in _HELP] + words[len(flags) :]


def run(arguments: argparse.Namespace) -> int:
    return watch(("launch", form_of(arguments.words, load_settings(Path.cwd()).presets)))
