"""From a job and facts to what will be started."""

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.facts import Facts
from distmon.launcher.hosts import Host, parse_discovered, parse_hostfile, parse_hosts
from distmon.launcher.plan import Places, Plan, make_plan
from distmon.launcher.spec import JobSpec

PLACES = Places(job="job-1", driver="/d/main.py", probe_site="/p/site", probe_shim="/p/shim", rings="/r")


def plan(spec: JobSpec, *hosts: Host, local: tuple[str, ...] = ("localhost",), missing: str = "") -> Plan:
    facts = Facts(python="/t/python", hosts=list(hosts), local_hosts=frozenset(local), loopback="lo", missing_script=missing)
    return make_plan(spec, facts, PLACES)


def spec(**changes: object) -> JobSpec:
    base: dict[str, object] = {"command": ["python", "train.py"], "np": 2, "cwd": "/w", "environment": {}, "flags": ["-np", "2"]}
    return JobSpec(**{**base, **changes})  # type: ignore[arg-type]


def test_a_static_job_needs_no_interface() -> None:
    made = plan(spec(), Host("localhost", 2))
    assert made.driver == ["/t/python", "/d/main.py"]
    assert made.flags == ["-np", "2", "--disable-cache"]
    assert (made.hosts, made.network_interface, made.notices) == ("localhost:2", "", [])
    assert made.worker_environment == {"DISTMON_RING_DIR": "/r", "PYTHONPATH": "/p/site:/p/shim"}


def test_the_users_path_stays_behind_the_probes() -> None:
    assert plan(spec(environment={"PYTHONPATH": "/a:/b"})).worker_environment["PYTHONPATH"] == "/p/site:/p/shim:/a:/b"


def test_elastic_on_this_machine_alone_gets_the_loopback_interface() -> None:
    made = plan(spec(discovery_script="x"), Host("localhost", 2), Host("me", 1), local=("localhost", "me"))
    assert made.flags[-2:] == ["--network-interface", "lo"]
    assert made.network_interface == "lo" and "no other host can join" in made.notices[0].text
    assert made.hosts == ""


def test_an_interface_that_the_user_gives_is_kept() -> None:
    made = plan(spec(discovery_script="x", network_interfaces=["eth0", "eth1"]), Host("localhost", 2), Host("far", 2))
    assert (made.flags, made.network_interface) == (["-np", "2", "--disable-cache"], "eth0,eth1")


def test_an_interface_that_horovod_would_refuse_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="Horovod takes lo alone, not eth0; leave the flag out"):
        plan(spec(network_interfaces=["eth0"]), Host("localhost", 2))
    assert plan(spec(network_interfaces=["lo"]), Host("localhost", 2)).network_interface == "lo"


def test_slots_that_np_does_not_want_are_told_of() -> None:
    (notice,) = plan(spec(), Host("localhost", 2), Host("far", 2)).notices
    assert notice.severity == "warning" and "each of the 4 slots, not 2" in notice.text
    assert plan(spec(min_np=1), Host("a", 2), Host("b", 2)).notices == []


def test_elastic_with_one_other_host_warns_and_with_two_says_nothing() -> None:
    one = plan(spec(min_np=1), Host("far", 2))
    assert one.network_interface == "" and "second host" in one.notices[0].text
    assert plan(spec(min_np=1), Host("far", 2), Host("localhost", 1)).notices == []


def test_a_hosts_file_becomes_a_list() -> None:
    made = plan(spec(hostfile="h"), Host("a", 2), Host("b", 1))
    assert made.flags == ["-np", "2", "-H", "a:2,b:1", "--disable-cache"]


def test_a_missing_script_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no script train\.py in /w"):
        plan(spec(), missing="train.py")


def test_a_hosts_file_may_hold_comments_and_blank_lines() -> None:
    assert parse_hostfile("# ours\n\nnode1 slots=4\nnode2  slots = 2  # old\n", "h") == [Host("node1", 4), Host("node2", 2)]


@pytest.mark.parametrize("text", ["node1\n", "node1 slots=x\n", "node1:4\n", "a b slots=1\n", "", "# none\n"])
def test_a_wrong_hosts_file_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^h"):
        parse_hostfile(text, "h")


@pytest.mark.parametrize("text", ["", "a", "a:", ":2", "a:x", "a:1,,b:1", "[::1]:2"])
def test_wrong_hosts_are_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^-H: "):
        parse_hosts(text)


def test_hosts_are_read_in_order() -> None:
    assert parse_hosts("b:2, a:1") == [Host("b", 2), Host("a", 1)]
    assert parse_discovered("b:2\n\na\n") == [Host("b", 2), Host("a", None)]
    with pytest.raises(DistmonError, match="'# x'"):
        parse_discovered("# x\n")
