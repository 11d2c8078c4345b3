"""What a form's job would be, before anything is started: the plan, the command line, and what is wrong with which field."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from distmon.core.errors import DistmonError, told
from distmon.launcher.facts import gather, training_python
from distmon.launcher.flags import job_spec
from distmon.launcher.form import Form, words_of, wrong_fields
from distmon.launcher.horovod import decide
from distmon.launcher.plan import Notice, Plan
from distmon.launcher.settings import Settings, completed
from distmon.launcher.spec import JobSpec


class Preview(Struct, frozen=True, kw_only=True):
    """`wrong` is empty where `plan` is there."""

    form: Form
    wrong: dict[str, str]
    """Field -> what is wrong with it, in one line."""
    plan: Plan | None = None


def command_line(form: Form) -> str:
    """What does the same in a shell. Raises UsageError where a quotation mark is not closed."""
    return shlex.join(["distmon", "run", *words_of(form)])


def preview(form: Form, settings: Settings, cwd: str, environment: Mapping[str, str]) -> Preview:
    """Looks up what planning needs: host names, the training's Python. May take seconds.

    A discovery script is not run: it may be written only in part.
    """
    wrong = wrong_fields(form)
    if wrong:
        return Preview(form=form, wrong=wrong)
    field = "options"
    try:
        words = completed(words_of(form), settings)
        spec = job_spec(words, backend=form.backend, cwd=cwd, environment=environment)
        field = "command"
        training_python(spec)
        field = "hosts"
        return _planned(form, spec)
    except DistmonError as error:
        return Preview(form=form, wrong={field: str(error).removeprefix("-H: ")})
    except OSError as error:  # a name that is too long, a folder that is closed
        return Preview(form=form, wrong={"command": told(error)})


def _planned(form: Form, spec: JobSpec) -> Preview:
    """Raises DistmonError for hosts that cannot be known."""
    facts = gather(spec, ask_script=False)
    if facts.missing_script:
        return Preview(form=form, wrong={"command": f"there is no script {facts.missing_script} here"})
    try:
        plan = decide(spec, facts, Path("job"))
    except DistmonError as error:
        field = "backend" if form.backend == "torchrun" else "interface"
        return Preview(form=form, wrong={field: str(error)})
    unknown = [Notice("info", "the hosts are those that the discovery script names when the job starts")]
    notices = [*(unknown if spec.discovery_script else []), *plan.notices]
    return Preview(form=form, wrong={}, plan=msgspec.structs.replace(plan, notices=notices))
