"""A job as a form has it: a text per field, to the words of `distmon run` and back, and what is wrong with each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec import Struct

from distmon.core.errors import UsageError
from distmon.launcher.flags import OWN_FLAGS, job_spec, own_flags, split_arguments
from distmon.launcher.hosts import parse_hosts

_FIELD_OF = {"-np": "np", "--min-np": "min_np", "--max-np": "max_np", "-H": "hosts", "--network-interface": "interface"}
"""Flags that have a field of their own; all others stand among the options."""
BACKENDS = ("horovod", "torchrun")
NO_PRESETS: Mapping[str, Sequence[str]] = MappingProxyType({})


class Form(Struct, frozen=True, kw_only=True):
    """As the user wrote it. `hosts` is as in -H, `options` are further flags of distmon run or horovodrun."""

    command: str = ""
    np: str = "1"
    min_np: str = ""
    max_np: str = ""
    hosts: str = ""
    backend: str = BACKENDS[0]
    interface: str = ""
    options: str = ""


FIELDS = Form.__struct_fields__


def words_of(form: Form) -> list[str]:
    """What follows `distmon run`. Raises UsageError where a quotation mark is not closed."""
    words = []
    for flag, name in _FIELD_OF.items():
        if text := getattr(form, name).strip():
            words += [flag, text]
    if form.backend != BACKENDS[0]:
        words += ["--backend", form.backend]
    return [*words, *_split(form.options, "the options"), "--", *_split(form.command, "the command")]


def form_of(words: Sequence[str], presets: Mapping[str, Sequence[str]] = NO_PRESETS) -> Form:
    """The form whose words mean the same; of a flag that stands there more than once, the last counts.

    One of `presets` that the words name is what they begin with. Raises UsageError.
    """
    split = split_arguments(words, OWN_FLAGS)
    begin, options = Form(), list[str]()
    fields = {"command": shlex.join(split.command)} if split.command else {}
    for flag in split.horovod:
        if flag.name in _FIELD_OF:
            fields[_FIELD_OF[flag.name]] = flag.values[-1]
        else:
            options += flag.words
    for flag in own_flags(split.own):
        if flag.name == "--backend":
            fields["backend"] = flag.values[0]
        elif flag.name == "--preset" and flag.values[0] in presets:
            begin = form_of(presets[flag.values[0]])
        else:
            options += flag.words
    fields["options"] = " ".join(part for part in (begin.options, shlex.join(options)) if part)
    return msgspec.structs.replace(begin, **fields)


def wrong_fields(form: Form) -> dict[str, str]:
    """Field -> what is wrong with it, in one line, as far as its text tells."""
    numbers = {name: _number(form, name) for name in ("np", "min_np", "max_np")}
    wrong = {name: text for name, text in numbers.items() if text}
    for name, judge in (("command", _command), ("hosts", _hosts), ("options", _options), ("backend", _backend)):
        try:
            judge(form)
        except UsageError as error:
            wrong[name] = str(error).removeprefix("-H: ")
    if not wrong:
        try:
            job_spec(split_arguments(words_of(form), OWN_FLAGS), backend=form.backend, cwd="", environment={})
        except UsageError as error:
            wrong["options"] = str(error)
    return wrong | ({} if wrong else _sizes(form))


def _number(form: Form, name: str) -> str:
    text = getattr(form, name).strip()
    if not text:
        return "how many ranks?" if name == "np" else ""
    good = text.isascii() and text.isdigit() and int(text) > 0
    return "" if good else f"a number from 1 up, not {text!r}"


def _command(form: Form) -> None:
    if not _split(form.command, "the command"):
        raise UsageError("what is to run? as in: python train.py --epochs 3")


def _hosts(form: Form) -> None:
    if form.hosts.strip():
        parse_hosts(form.hosts.strip())


def _options(form: Form) -> None:
    found = split_arguments(_split(form.options, "the options"), OWN_FLAGS)
    if found.command:
        raise UsageError(f"{found.command[0]!r} is no flag; the command has a field of its own")
    twice = [flag.name for flag in found.horovod if flag.name in _FIELD_OF]
    if twice:
        raise UsageError(f"{twice[0]} has a field of its own")


def _backend(form: Form) -> None:
    if form.backend not in BACKENDS:
        raise UsageError(f"there are {' and '.join(BACKENDS)}, not {form.backend}")


def _sizes(form: Form) -> dict[str, str]:
    """What the numbers say of one another."""
    np = int(form.np)
    if form.min_np.strip() and int(form.min_np) > np:
        return {"min_np": f"min {form.min_np.strip()} is more than {np} ranks"}
    if form.max_np.strip() and int(form.max_np) < np:
        return {"max_np": f"max {form.max_np.strip()} is less than {np} ranks"}
    slots = sum(host.slots or 0 for host in parse_hosts(form.hosts.strip())) if form.hosts.strip() else np
    if slots < np and not form.min_np.strip():
        return {"hosts": f"{slots} slot{'s' * (slots != 1)} for {np} ranks"}
    return {}


def _split(text: str, what: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what}: {str(error).lower()}") from None
