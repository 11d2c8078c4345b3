"""Telling distmon's own flags from the launcher's, and the launcher's from the user's command.

Horovod parses its own flags later; here only their names and their numbers of values are known, so that the command is found
and a misspelt flag is named before anything starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from distmon.core.errors import UsageError
from distmon.launcher.spec import LOST_AFTER_S, JobSpec

# Of horovodrun 0.28: every spelling of a flag -> its first spelling here; and how many values it takes.
_SPELLINGS = {
    "-np": ("-np", "--num-proc"),
    "-H": ("-H", "--hosts"),
    "--hostfile": ("-hostfile", "--hostfile"),
    "--min-np": ("--min-np", "--min-num-proc"),
    "--max-np": ("--max-np", "--max-num-proc"),
    "--ssh-port": ("-p", "--ssh-port"),
    "--ssh-identity-file": ("-i", "--ssh-identity-file"),
    "--prefix-output-with-timestamp": ("-prefix-timestamp", "--prefix-output-with-timestamp"),
}
# fmt: off
_WITHOUT_VALUE = [
    "--disable-cache", "--verbose", "--gloo", "--mpi", "--jsrun", "--tcp", "--autotune", "--no-autotune",
    "--hierarchical-allreduce", "--no-hierarchical-allreduce", "--hierarchical-allgather",
    "--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce", "--timeline-mark-cycles",
    "--no-timeline-mark-cycles", "--no-stall-check", "--stall-check", "--mpi-threads-disable",
    "--no-mpi-threads-disable", "--log-with-timestamp", "--log-without-timestamp", "--prefix-output-with-timestamp",
    "--log-hide-timestamp", "--no-log-hide-timestamp",
]
_WITH_VALUE = [
    "-np", "-H", "--hostfile", "--host-discovery-script", "--min-np", "--max-np", "--start-timeout",
    "--network-interface", "--network-interfaces", "--output-filename", "--config-file", "--ssh-port",
    "--ssh-identity-file", "--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--autotune-log-file",
    "--autotune-warmup-samples", "--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples",
    "--autotune-gaussian-process-noise", "--slots-per-host", "--elastic-timeout", "--reset-limit",
    "--timeline-filename", "--stall-check-warning-time-seconds", "--stall-check-shutdown-time-seconds", "--mpi-args",
    "--binding-args", "--num-nccl-streams", "--thread-affinity", "--gloo-timeout-seconds", "--log-level",
]
# fmt: on
HOROVOD_FLAGS: Mapping[str, int] = {
    **dict.fromkeys(_WITHOUT_VALUE, 0),
    **dict.fromkeys(_WITH_VALUE, 1),
    "--blacklist-cooldown-range": 2,
}
"""Flag -> number of values."""

_BY_SPELLING = {name: name for name in HOROVOD_FLAGS} | {
    spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings
}

_OWN_WITHOUT_VALUE = ("--headless", "--check", "--no-check", "--summaries", "--debug", "--help", "-h")
_OWN_WITH_VALUE = ("--record", "--backend", "--preset", "--lost-after", "--samples-per-step", "--cycle", "--against")
OWN_FLAGS: Mapping[str, int] = dict.fromkeys(_OWN_WITHOUT_VALUE, 0) | dict.fromkeys(_OWN_WITH_VALUE, 1) | {"--timeline": 0}
"""Of `distmon run` itself -> number of values. That of --timeline is optional: behind =, or a word that ends in .json."""
PRESET_FLAGS: Mapping[str, int] = {"--save-preset": 1, "--delete-preset": 1}
"""Of `distmon run` where nothing is to run: not part of a job, and so neither of a preset, a form or a sweep."""
_DEFAULT_FUSION_BYTES = 128 << 20


class Flag(NamedTuple):
    """One flag as given. `name` is its first spelling, `words` what stood on the command line."""

    name: str
    values: list[str]
    words: list[str]


class RunArguments(NamedTuple):
    """The words after `distmon run`, told apart."""

    own: list[str]
    """For distmon's own parser, in order."""
    horovod: list[Flag]
    command: list[str]


def split_arguments(arguments: Sequence[str], own: Mapping[str, int]) -> RunArguments:
    """Take the words apart; `own` holds distmon's flags and how many values each takes.

    The command begins after `--`, or at the first word that is neither a flag nor a flag's value. Raises UsageError.
    """
    result = RunArguments([], [], [])
    rest = list(arguments)
    while rest and rest[0] != "--" and rest[0].startswith("-"):
        word, equals, value = rest.pop(0).partition("=")
        is_own = word in own
        name = word if is_own else _resolve(word, own)
        wanted = own[word] if is_own else HOROVOD_FLAGS[name]
        if name == "--timeline" and (equals or any(word.endswith(".json") for word in rest[:1])):
            wanted = 1
        values = [value] if equals else rest[:wanted]
        if not equals:
            del rest[:wanted]
        if len(values) != wanted or (not equals and "--" in values):
            raise UsageError(f"{word} takes {_count(wanted)}")
        words = [f"{word}={values[0]}"] if equals or (name == "--timeline" and values) else [word, *values]
        if is_own:
            result.own.extend(words)
        else:
            result.horovod.append(Flag(name, values, words))
    result.command.extend(rest[1:] if rest[:1] == ["--"] else rest)
    return result


def own_flags(own: Sequence[str], counts: Mapping[str, int] = OWN_FLAGS) -> list[Flag]:
    """Distmon's own flags one by one; `counts` says how many values each of them takes."""
    found, rest = list[Flag](), list(own)
    while rest:
        name, equals, value = rest[0].partition("=")
        words = rest[: 1 if equals else 1 + counts[name]]
        found.append(Flag(name, [value] if equals else words[1:], words))
        del rest[: len(words)]
    return found


def job_spec(
    arguments: RunArguments, *, backend: str, cwd: str, environment: Mapping[str, str], lost_after_s: float = LOST_AFTER_S
) -> JobSpec:
    """The job that the words ask for. Raises UsageError for what cannot be meant."""
    if not arguments.command:
        raise UsageError("there is no command to run; write it after --, as in: distmon run -np 2 -- python train.py")
    last = {flag.name: flag.values[-1] for flag in arguments.horovod if flag.values}
    if "-np" not in last:
        raise UsageError("how many ranks? say it with -np, as in: distmon run -np 2 -- python train.py")
    sources = [name for name in ("-H", "--hostfile", "--host-discovery-script") if name in last]
    if len(sources) > 1:
        raise UsageError(f"{sources[0]} and {sources[1]} both say which hosts to use; give one of them")
    nics = [
        nic
        for flag in arguments.horovod
        if flag.name in ("--network-interface", "--network-interfaces")
        for nic in flag.values[0].split(",")
    ]
    return JobSpec(
        command=list(arguments.command),
        np=_positive("-np", last["-np"]),
        min_np=_positive("--min-np", last["--min-np"]) if "--min-np" in last else None,
        max_np=_positive("--max-np", last["--max-np"]) if "--max-np" in last else None,
        hosts=last.get("-H", ""),
        hostfile=last.get("--hostfile", ""),
        discovery_script=last.get("--host-discovery-script", ""),
        network_interfaces=nics,
        ssh_port=_positive("--ssh-port", last["--ssh-port"], "a port") if "--ssh-port" in last else None,
        ssh_identity_file=last.get("--ssh-identity-file"),
        flags=[word for flag in arguments.horovod if flag.name not in ("-H", "--hostfile") for word in flag.words],
        timeline=_timeline(last, cwd, environment),
        fusion_threshold_bytes=_fusion_threshold_bytes({flag.name for flag in arguments.horovod}, last, environment),
        backend=backend,
        cwd=cwd,
        environment=dict(environment),
        lost_after_s=lost_after_s,
    )


def _timeline(last: Mapping[str, str], cwd: str, environment: Mapping[str, str]) -> str:
    """The file; empty where there is none, or where the script itself says it later."""
    named = last.get("--timeline-filename") or environment.get("HOROVOD_TIMELINE", "")
    return "" if named in ("", "DYNAMIC") else str(Path(cwd, named))


def _fusion_threshold_bytes(flags: Set[str], last: Mapping[str, str], environment: Mapping[str, str]) -> int | None:
    if "--autotune" in flags or "--config-file" in flags or environment.get("HOROVOD_AUTOTUNE", "0") != "0":
        return None
    megabytes, plain = last.get("--fusion-threshold-mb"), environment.get("HOROVOD_FUSION_THRESHOLD")
    if megabytes is not None:
        return int(megabytes) << 20 if megabytes.isdecimal() else None
    if plain is not None:
        return int(plain) if plain.isdecimal() else None
    return _DEFAULT_FUSION_BYTES


def _resolve(word: str, own: Mapping[str, int]) -> str:
    """The flag that a word spells or abbreviates."""
    if word in _BY_SPELLING:
        return _BY_SPELLING[word]
    known = [*_BY_SPELLING, *own]
    meant = sorted(name for name in _BY_SPELLING if word.startswith("--") and name.startswith(word))
    targets = {_BY_SPELLING[name] for name in meant}
    if len(targets) == 1:
        return targets.pop()
    if targets:
        raise UsageError(f"{word} could be {_either(meant)}; write it out")
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "flags of the command itself go behind --, after its name"
    raise UsageError(f"there is no flag {word}; {hint}")


def _positive(name: str, text: str, what: str = "a number of ranks") -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{name} takes {what} from 1 up, not {text!r}")
    return int(text)


def _either(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else names[0]


def _count(wanted: int) -> str:
    return ("no value", "one value", "two values")[wanted]
