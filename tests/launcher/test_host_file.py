"""The hosts of a running job that distmon keeps, and those that come and go."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import LaunchProgressed, MembershipChanged, WorkerStarted
from distmon.launcher.actions import AddHost, AnyAction, DrainHost
from distmon.launcher.control import ControlSocket
from distmon.launcher.cycle import Cycle, CycleSpec, cycle_hosts, parse_cycle
from distmon.launcher.host_file import FILE_NAME, change_hosts, find_job, read_hosts, with_host, without_host, write_hosts
from distmon.launcher.living import LivingRanks
from distmon.launcher.rundir import running_jobs
from distmon.tui.cli.main import main
from tests.launcher.driving import python, run

StartJob = Callable[[int, dict[str, int]], Path]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's runtime folder for distmon; its path is short, because a socket's has a limit."""
    folder = tempfile.mkdtemp(prefix="dm-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    yield Path(folder, "distmon")
    shutil.rmtree(folder)


@pytest.fixture
def job(runtime: Path) -> Iterator[StartJob]:
    """Starts what a running job has: its hosts, and the socket through which they are changed."""
    sockets = []

    def start(number: int, hosts: dict[str, int]) -> Path:
        folder = runtime / f"job-{os.getpid()}-{number:06x}"
        folder.mkdir(parents=True, mode=0o700)
        write_hosts(folder / "hosts", hosts)

        def act(action: AnyAction) -> str:
            assert isinstance(action, AddHost | DrainHost)
            return change_hosts(folder / "hosts", action, LivingRanks())

        sockets.append(ControlSocket(folder, act))
        return folder / "hosts"

    yield start
    for socket in sockets:
        socket.close()


def test_hosts_are_added_and_removed_by_the_command(job: StartJob, capsys: pytest.CaptureFixture[str]) -> None:
    file = job(1, {"a": 1})
    assert main(["hosts", "add", "b:2", "c"]) == 0
    assert read_hosts(file) == {"a": 1, "b": 2, "c": 1}
    assert main(["hosts", "add", "b:4"]) == 0
    assert main(["hosts", "remove", "a"]) == 0
    assert read_hosts(file) == {"b": 4, "c": 1}
    capsys.readouterr()
    assert main(["hosts"]) == 0
    assert capsys.readouterr().out == f"{file.parent.name}: b:4, c:1\n"


def test_what_cannot_be_meant_is_said(job: StartJob, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hosts", "add", "b"]) == 1
    assert "no elastic job" in capsys.readouterr().err
    job(1, {"a": 1})
    assert main(["hosts", "remove", "x"]) == 2 and main(["hosts", "add", "x:0"]) == 2 and main(["hosts", "add"]) == 2
    assert "has no host x; it has a" in capsys.readouterr().err
    second = job(2, {"z": 1})
    assert main(["hosts", "add", "b"]) == 2
    assert "--job" in capsys.readouterr().err
    assert find_job(second.parent.name).folder == second.parent


def test_no_other_host_joins_a_job_on_the_loopback(job: StartJob, capsys: pytest.CaptureFixture[str]) -> None:
    file = job(1, {"localhost": 1})
    write_hosts(file, {"localhost": 1}, alone=True)
    assert main(["hosts", "add", "node9.invalid:1"]) == 2
    assert "--network-interface" in capsys.readouterr().err
    assert main(["hosts", "add", "localhost:2"]) == 0 and main(["hosts", "add", "node9.invalid:1"]) == 2
    assert read_hosts(file) == {"localhost": 2}


def test_jobs_that_have_gone_are_not_listed(runtime: Path) -> None:
    (runtime / "job-999999999-abc").mkdir(parents=True)
    (runtime / "job-999999999-abc" / "hosts").write_text("a:1\n")
    assert running_jobs(FILE_NAME) == []
    with pytest.raises(DistmonError, match="has ended"):
        read_hosts(runtime / "job-1-gone" / "hosts")


def test_hosts_change_as_they_are_asked_to() -> None:
    assert with_host({"a": 1}, "b") == {"a": 1, "b": 1}
    assert without_host({"a": 1, "b": 2}, "a") == {"b": 2}
    with pytest.raises(UsageError, match="a is the job's only host, and without it the job ends"):
        without_host({"a": 2}, "a")


def test_of_a_host_without_a_rank_none_is_promised_to_follow_and_a_barred_one_gets_none(tmp_path: Path) -> None:
    file, living = tmp_path / "hosts", LivingRanks()
    write_hosts(file, {"a": 1, "b": 1, "c": 1})
    living.observe(WorkerStarted(at=1.0, host="c", local_rank=0, rank=0))
    living.observe(MembershipChanged(at=2.0, change="host_blacklisted", host="b"))
    assert change_hosts(file, DrainHost("b"), living) == "a:1, c:1; no rank ran there"
    assert change_hosts(file, DrainHost("c"), living) == "a:1; the ranks follow at their next commit"
    with pytest.raises(UsageError, match="b is barred for the rest of the job"):
        change_hosts(file, AddHost("b:2"), living)
    assert change_hosts(file, AddHost("d:1"), living) == "a:1, d:1; the ranks follow at their next commit"


def test_an_elastic_job_without_a_script_reads_its_hosts_from_distmons_file() -> None:
    code = "import os; print(os.environ['HOROVOD_SIZE'])"
    ran = run("-np", "1", "--min-np", "1", "-H", "localhost:1", *python(code))
    assert ran.exit_code == 0, ran.ended
    assert ran.lines(0) == ["1"]


@pytest.mark.parametrize("text", ["", "4", "4:4", "0:4@10m", "4:0@10m", "4:4@0s", "4:4@10", "4:4@ten"])
def test_a_cycle_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--cycle takes"):
        parse_cycle(text)


def test_hosts_come_and_go_at_the_pace_of_the_cycle(tmp_path: Path) -> None:
    assert parse_cycle("4:4@10m") == CycleSpec(4, 4, 600.0)
    write_hosts(tmp_path / "hosts", {"a": 2, "b": 2, "c": 2, "d": 2})
    cycle = Cycle(parse_cycle("1:2@10s"), tmp_path / "hosts")
    everyone, fixed = {"a": 2, "b": 2, "c": 2}, {"a": 2}
    assert read_hosts(tmp_path / "hosts") == everyone
    assert cycle.turn(1e9) == []
    cycle.see([LaunchProgressed(at=100.0, stage="rendezvous"), LaunchProgressed(at=105.0, stage="first_step")])
    seen = []
    for now in range(100, 140):
        seen += [(now, action.detail) for action in cycle.turn(float(now))]
        wanted = fixed if 115 <= now < 125 or now >= 135 else everyone
        assert read_hosts(tmp_path / "hosts") == wanted, now
    assert seen == [(115, "b:2, c:2 leave"), (125, "b:2, c:2 come back"), (135, "b:2, c:2 leave")]


def test_a_cycle_of_one_machine_is_of_its_slots() -> None:
    assert cycle_hosts(CycleSpec(1, 1, 1.0), {"localhost": 2}) == ({"localhost": 2}, {"localhost": 1})
    with pytest.raises(UsageError, match="takes 4 hosts or slots, but localhost has 2"):
        cycle_hosts(CycleSpec(2, 2, 1.0), {"localhost": 2})
    with pytest.raises(UsageError, match="takes 3 hosts, but the job has 2"):
        cycle_hosts(CycleSpec(1, 2, 1.0), {"a": 1, "b": 1})
