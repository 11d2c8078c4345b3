"""The launch form: to the words of distmon run and back, and what is said of each field."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.errors import UsageError
from distmon.launcher.form import Form, form_of, words_of, wrong_fields
from distmon.launcher.preview import command_line, preview
from distmon.launcher.settings import Settings

FILLED = Form(
    command="python train.py --name 'a b'",
    np="4",
    min_np="2",
    max_np="8",
    hosts="node1:2,me@node2:2",
    interface="eth0",
    options="--ssh-port 2222 --record run.jsonl --no-check",
)


def test_the_words_are_those_of_the_command_line() -> None:
    hosts = ["-np", "4", "--min-np", "2", "--max-np", "8", "-H", "node1:2,me@node2:2", "--network-interface", "eth0"]
    options = ["--ssh-port", "2222", "--record", "run.jsonl", "--no-check"]
    assert words_of(FILLED) == [*hosts, *options, "--", "python", "train.py", "--name", "a b"]
    assert command_line(Form(command="python a.py", backend="torchrun")) == "distmon run -np 1 --backend torchrun -- python a.py"


NUMBERS = st.integers(1, 99).map(str)
WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8), min_size=1, max_size=4)
FORMS = st.builds(
    lambda command, options, **fields: Form(command=command, options=options, **fields),
    command=WORDS.filter(lambda words: not words[0].startswith("-")).map(shlex.join),
    options=st.sampled_from(["", "--no-check", "--record 'a b.jsonl'", "--blacklist-cooldown-range 1 2"]),
    np=NUMBERS,
    min_np=st.one_of(st.just(""), NUMBERS),
    max_np=st.one_of(st.just(""), NUMBERS),
    hosts=st.sampled_from(["", "a:1", "a:1,b:2"]),
    backend=st.sampled_from(["horovod", "torchrun"]),
    interface=st.sampled_from(["", "lo", "eth0,ib0"]),
)


@given(form=FORMS)
def test_a_form_comes_back_from_its_words(form: Form) -> None:
    assert words_of(form_of(words_of(form))) == words_of(form)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"command": ""}, "command", "what is to run"),
        ({"command": "python 'a"}, "command", "no closing quotation"),
        ({"np": ""}, "np", "how many ranks"),
        ({"np": "two"}, "np", "a number from 1 up"),
        ({"np": "²"}, "np", "a number from 1 up"),
        ({"min_np": "0"}, "min_np", "a number from 1 up"),
        ({"min_np": "5"}, "min_np", "more than 4 ranks"),
        ({"max_np": "3"}, "max_np", "less than 4 ranks"),
        ({"hosts": "node1"}, "hosts", "is not of the form name:slots"),
        ({"hosts": "node1:2", "min_np": ""}, "hosts", "2 slots for 4 ranks"),
        ({"options": "--gloo-timeout"}, "options", "takes one value"),
        ({"options": "--recrod x"}, "options", "did you mean --record?"),
        ({"options": "-np 3"}, "options", "-np has a field of its own"),
        ({"options": "python"}, "options", "'python' is no flag"),
        ({"options": "--host-discovery-script ./find"}, "options", "both say which hosts"),
    ],
)
def test_what_is_wrong_is_said_of_its_field(changes: dict[str, str], field: str, says: str) -> None:
    form = Form(**{**{name: getattr(FILLED, name) for name in Form.__struct_fields__}, **changes})
    wrong = wrong_fields(form)
    assert list(wrong) == [field] and says in wrong[field]
    assert "\n" not in wrong[field]


def test_a_filled_form_has_nothing_wrong_with_it() -> None:
    assert wrong_fields(FILLED) == {}


def test_a_preset_is_what_the_words_begin_with() -> None:
    presets = {"digits": ["-np", "2", "--no-check", "--", "python", "train.py"]}
    form = form_of(["--preset", "digits", "-np", "3", "--verbose"], presets)
    assert form == Form(command="python train.py", np="3", options="--no-check --verbose")
    assert form_of(["--preset", "other"], presets).options == "--preset other"


def test_words_that_are_no_flags_of_a_run_make_no_form() -> None:
    with pytest.raises(UsageError, match="no flag --nonsense"):
        form_of(["--nonsense"])


@pytest.mark.parametrize(
    ("form", "field", "says"),
    [
        (Form(command="no-such-program"), "command", "there is no command"),
        (Form(command=f"{sys.executable} none.py"), "command", "there is no script"),
        (Form(command=f"{sys.executable} a.py", interface="eth7"), "interface", "leave the flag out"),
        (Form(command=f"{sys.executable} a.py", backend="torchrun", min_np="1"), "backend", "leave hosts and elastic flags out"),
        (Form(command=f"{sys.executable} a.py", options="--hostfile none"), "hosts", "cannot read the hosts file"),
        (Form(command=f"{sys.executable} a.py", options="--preset none"), "options", "no preset 'none'"),
    ],
)
def test_what_only_looking_shows_is_said_of_its_field_too(tmp_path: Path, form: Form, field: str, says: str) -> None:
    (tmp_path / "a.py").write_text("")
    found = preview(form, Settings(), str(tmp_path), os.environ)
    assert list(found.wrong) == [field] and says in found.wrong[field] and found.plan is None


def test_a_discovery_script_is_not_run_while_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    options = "--host-discovery-script 'touch ran'"
    found = preview(Form(command=f"{sys.executable} a.py", options=options), Settings(), str(tmp_path), os.environ)
    assert found.plan is not None and found.plan.places() == [] and not (tmp_path / "ran").exists()
    assert any("discovery script" in notice.text for notice in found.plan.notices)


@pytest.mark.parametrize(
    "form",
    [
        Form(command=f"{sys.executable} {'x' * 300}.py"),
        Form(command="x" * 5000),
        Form(command=f"{sys.executable} -c 1", hosts="ü" * 80 + ":1"),
        Form(command=f"{sys.executable} -c 1", hosts=".".join(["a"] * 200) + ":1"),
        Form(command=f"{sys.executable} ~nobody-there/x.py"),
    ],
    ids=["long script", "long command", "long name", "many names", "home"],
)
def test_odd_words_are_told_of_and_break_nothing(tmp_path: Path, form: Form) -> None:
    found = preview(form, Settings(), str(tmp_path), os.environ)
    assert found.plan is not None or all("\n" not in text for text in found.wrong.values())


def test_the_plan_says_which_rank_runs_where(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    settings = Settings(hosts=["localhost:3"])
    found = preview(Form(command=f"{sys.executable} a.py", np="3"), settings, str(tmp_path), os.environ)
    assert found.wrong == {} and found.plan is not None
    assert found.plan.places() == ["localhost (this machine): ranks 0-2"]
    assert not list(tmp_path.glob("job*")) and not Path("job").exists()
