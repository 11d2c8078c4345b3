"""distmon.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from distmon.core.errors import UsageError
from distmon.launcher.settings import Settings, completed, hosts_flags, load_settings

TEXT = """
hosts = ["node1:2", "me@node2:2"]
agent = "/opt/distmon/bin/distmon-agent"
flags = ["--gloo-timeout-seconds", "60"]

[presets]
big = ["-np", "4", "--headless"]
"""


def test_the_file_gives_hosts_flags_and_presets(tmp_path: Path) -> None:
    (tmp_path / "distmon.toml").write_text(TEXT)
    settings = load_settings(tmp_path)
    own, horovod, command = completed(["--preset", "big", "-np", "2", "--", "x"], settings)
    assert own == ["--headless", "--preset", "big"] and command == ["x"]
    words = [word for flag in horovod for word in flag.words]
    assert words == ["--gloo-timeout-seconds", "60", "-np", "4", "-np", "2", "-H", "node1:2,me@node2:2"]
    assert hosts_flags(["-np"], settings) == ["-H", "node1:2,me@node2:2"]
    assert settings.agent == "/opt/distmon/bin/distmon-agent"


@pytest.mark.parametrize("flag", ["-H", "--hostfile", "--host-discovery-script"])
def test_hosts_of_the_command_line_count_alone(flag: str) -> None:
    assert hosts_flags([flag], Settings(hosts=["a:1"])) == []


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert load_settings(tmp_path) == Settings()
    assert hosts_flags([], Settings()) == [] and hosts_flags([], Settings(hostfile="h")) == ["--hostfile", "h"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts = 3", "Expected `array`"),
        ("host = []", "unknown field"),
        ("hosts = [", "wrong"),
        ("[alerts]\non = ['error']", "alerts.on.0.: Invalid enum value 'error'; it may be errors, warnings, verdicts"),
        ("[alerts]\nbel = true", "alerts: .*`bel`; there may be on, bell, desktop, command"),
        ("host = []", "`host`; there may be hosts, hostfile,"),
        ("hosts=['a:1']\nhostfile='h'", "both"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "distmon.toml").write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        load_settings(tmp_path)
    assert "\n" not in str(caught.value) and "distmon.toml" in str(caught.value) and "docs/" not in str(caught.value)


def test_an_unknown_preset_is_named_with_those_that_are_there() -> None:
    with pytest.raises(UsageError, match="no preset 'small'; it has big"):
        completed(["--preset", "small"], Settings(presets={"big": []}))


def test_a_preset_may_hold_the_command_which_the_users_own_replaces() -> None:
    settings = Settings(presets={"digits": ["-np", "2", "--", "python", "train.py", "--epochs", "3"]})
    assert completed(["--preset=digits"], settings).command == ["python", "train.py", "--epochs", "3"]
    assert completed(["--preset", "digits", "--", "python", "other.py"], settings).command == ["python", "other.py"]
    assert completed(["-np", "1", "x"], settings).command == ["x"]
