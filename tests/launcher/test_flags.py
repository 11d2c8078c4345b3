"""Taking `distmon run`'s words apart."""

import importlib
import re

import pytest

from distmon.core.errors import UsageError
from distmon.launcher.flags import _BY_SPELLING, HOROVOD_FLAGS, OWN_FLAGS, RunArguments, job_spec, split_arguments
from distmon.launcher.form import form_of, words_of
from distmon.launcher.spec import JobSpec

OWN = {"--headless": 0, "--record": 1}


def spec_of(*words: str) -> JobSpec:
    return job_spec(split_arguments(words, OWN), backend="horovod", cwd="/w", environment={"PATH": "/bin"})


def test_own_flags_horovods_flags_and_the_command_are_told_apart() -> None:
    ours = ["-np", "2", "--record", "f", "--verbose", "--headless"]
    taken = split_arguments([*ours, "--", "python", "-u", "train.py", "--", "-np"], OWN)
    assert taken.own == ["--record", "f", "--headless"]
    assert [flag.words for flag in taken.horovod] == [["-np", "2"], ["--verbose"]]
    assert taken.command == ["python", "-u", "train.py", "--", "-np"]


def test_without_dashes_the_first_other_word_starts_the_command() -> None:
    taken = split_arguments(["-np", "2", "--blacklist-cooldown-range", "2", "8", "python", "--headless"], OWN)
    assert taken.command == ["python", "--headless"]
    assert taken.horovod[1].values == ["2", "8"]


def test_abbreviations_equal_signs_and_second_spellings_are_understood() -> None:
    words = ["--num-p", "4", "--min-n=2", "--max-num-proc", "6", "--host-d", "./hosts.sh", "--network-interface=eth0"]
    spec = spec_of(*words, "--", "x")
    assert (spec.np, spec.min_np, spec.max_np, spec.discovery_script) == (4, 2, 6, "./hosts.sh")
    assert spec.network_interfaces == ["eth0"]
    assert spec.elastic
    assert spec.flags == words


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["--timeline", "-np", "2", "--", "train.py"], ["--timeline"]),
        (["--timeline", "t.json", "-np", "2", "train.py"], ["--timeline=t.json"]),
        (["-np", "2", "--timeline=out", "train.py"], ["--timeline=out"]),
        (["-np", "2", "--timeline", "train.py"], ["--timeline"]),
    ],
)
def test_the_file_of_a_timeline_may_be_left_out(words: list[str], own: list[str]) -> None:
    taken = split_arguments(words, OWN_FLAGS)
    assert (taken.own, taken.command) == (own, ["train.py"])
    form = form_of(words)
    assert form.options == own[0] and split_arguments(words_of(form), OWN_FLAGS) == taken


def test_the_job_knows_where_its_timeline_is_and_how_large_the_fusion_buffer() -> None:
    def known(*words: str, **environment: str) -> tuple[str, int | None]:
        spec = job_spec(
            split_arguments(["-np", "2", *words, "--", "x"], {}), backend="horovod", cwd="/w", environment=environment
        )
        return spec.timeline, spec.fusion_threshold_bytes

    assert known() == ("", 128 << 20)
    assert known("--timeline-filename", "t.json", "--fusion-threshold-mb", "2") == ("/w/t.json", 2 << 20)
    assert known(HOROVOD_TIMELINE="/t", HOROVOD_FUSION_THRESHOLD="512") == ("/t", 512)
    assert known("--autotune", HOROVOD_TIMELINE="DYNAMIC") == ("", None)
    assert spec_of("-np", "1", "--", "x").writing_timeline("/w/t").flags == ["-np", "1", "--timeline-filename", "/w/t"]


def test_a_hosts_file_is_left_to_the_plan() -> None:
    spec = spec_of("-np", "1", "-hostfile", "h", "--verbose", "--", "x")
    assert (spec.hostfile, spec.flags) == ("h", ["-np", "1", "--verbose"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-np", "2"], "there is no command"),
        (["-np", "2", "--"], "there is no command"),
        (["--", "x"], "how many ranks"),
        (["-np", "0", "--", "x"], "-np takes a number of ranks from 1 up, not '0'"),
        (["-np", "two", "--", "x"], "not 'two'"),
        (["-np"], "-np takes one value"),
        (["-np", "--", "x"], "-np takes one value"),
        (["--verbose=1", "-np", "1", "--", "x"], "--verbose takes no value"),
        (["--hedless", "-np", "1", "--", "x"], "there is no flag --hedless; did you mean --headless?"),
        (["--zzz", "-np", "1", "--", "x"], "flags of the command itself go behind --"),
        (["--num", "1", "--", "x"], "--num could be --num-nccl-streams or --num-proc; write it out"),
        (["-np", "1", "-H", "a:1", "--hostfile", "f", "--", "x"], "-H and --hostfile both say which hosts to use"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        spec_of(*words)
    assert "\n" not in str(raised.value)


def test_the_table_holds_every_flag_of_the_installed_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own parser is the truth: spellings and numbers of values."""
    argparse = importlib.import_module("argparse")
    actions = []
    original = argparse.ArgumentParser.parse_args

    def parse_args(self: object, *args: object, **kwargs: object) -> object:
        actions.extend(self._actions)  # type: ignore[attr-defined]
        return original(self, *args, **kwargs)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr("sys.argv", ["horovodrun", "-np", "1", "true"])
    importlib.import_module("horovod.runner.launch").parse_args()
    questions = {"-h", "--help", "-v", "--version", "-cb", "--check-build"}
    theirs = {
        spelling: 1 if action.nargs is None else action.nargs
        for action in actions
        for spelling in action.option_strings
        if spelling not in questions
    }
    assert theirs == {spelling: HOROVOD_FLAGS[name] for spelling, name in _BY_SPELLING.items()}


def test_nothing_is_taken_from_no_words() -> None:
    assert split_arguments([], OWN) == RunArguments([], [], [])
