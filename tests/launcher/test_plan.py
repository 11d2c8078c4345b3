"""From a job and facts to what will be started."""

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.facts import Facts
from distmon.launcher.hosts import Host, merged, parse_discovered, parse_hostfile, parse_hosts
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


def test_a_job_on_other_hosts_gets_the_interface_that_the_check_finds() -> None:
    made = plan(spec(min_np=1), Host("far", 2), Host("localhost", 1))
    assert (made.network_interface, made.notices) == ("", [])
    over = made.over("eth1")
    assert (over.network_interface, over.flags[-2:]) == ("eth1", ["--network-interface", "eth1"])


def test_which_rank_runs_where_is_told() -> None:
    static = plan(spec(np=3), Host("localhost", 2), Host("far", 1))
    assert static.places() == ["localhost (this machine): ranks 0-1", "far: rank 2"]
    elastic = plan(spec(np=2, min_np=1), Host("a", 2), Host("b", 1))
    assert elastic.places() == ["a: ranks 0-1", "b: no rank at first"]


def test_hosts_listed_twice_are_one_host_with_all_their_slots() -> None:
    hosts, repeated = merged([Host("a", 1), Host("b", 2), Host("a", 2)])
    assert (hosts, repeated) == ([Host("a", 3), Host("b", 2)], ["a"])
    with pytest.raises(UsageError, match="a is listed twice with another user or port"):
        merged([Host("a", 1), Host("a", 1, "me")])


def test_a_hosts_file_becomes_a_list() -> None:
    made = plan(spec(hostfile="h"), Host("a", 2), Host("b", 1))
    assert made.flags == ["-np", "2", "-H", "a:2,b:1", "--disable-cache"]


def test_a_missing_script_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no script train\.py in /w"):
        plan(spec(), missing="train.py")


def test_a_hosts_file_may_hold_comments_and_blank_lines() -> None:
    assert parse_hostfile("# ours\n\nnode1 slots=4\nnode2  slots = 2  # old\n", "h") == [Host("node1", 4), Host("node2", 2)]


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("node1", [Host("node1", 1)]),
        ("node1:20", [Host("node1", 20)]),
        ("\ufeffme@node1:2222\tslots=2\r", [Host("node1", 2, "me", 2222)]),
        ("node1 slots=2 port=22 max_slots=4", [Host("node1", 2, port=22)]),
        ("cn[8-10,12]x:2", [Host(f"cn{n}x", 2) for n in (8, 9, 10, 12)]),
        ("n[09-10],login slots=1", [Host("n09", 1), Host("n10", 1), Host("login", 1)]),
    ],
)
def test_hosts_files_of_other_launchers_are_read(line: str, hosts: list[Host]) -> None:
    assert parse_hostfile(line + "\n", "h") == hosts


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[::1]:2", "IPv4 alone"),
        ("fe80::1 slots=1", "IPv4 alone"),
        ("-oProxyCommand=x slots=1", "not of the form"),
        ("n[3-1]", "range 3-1"),
        ("n[1-3", "not of the form"),
        ("n[a]", "where a number"),
        ("n slots=0", "no slot"),
        ("n:99999 slots=1", "ssh port 99999"),
        ("n colour=red slots=1", "'colour=red'"),
    ],
)
def test_a_line_that_cannot_be_meant_says_why(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"^h, line 2: ") as caught:
        parse_hostfile(f"\n{line}\n", "h")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["node1 slots=x\n", "a b slots=1\n", "", "# none\n"])
def test_a_wrong_hosts_file_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^h"):
        parse_hostfile(text, "h")


@pytest.mark.parametrize("text", ["", "a", "a:", ":2", "a:x", "a:1,,b:1", "[::1]:2"])
def test_wrong_hosts_are_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^-H: "):
        parse_hosts(text)


def test_hosts_are_read_in_order() -> None:
    assert parse_hosts("b:2, a:1") == [Host("b", 2), Host("a", 1)]
    assert parse_discovered(b"b:2\n\na\n") == [Host("b", 2), Host("a", None)]
    with pytest.raises(DistmonError, match="'a b'"):
        parse_discovered(b"a b\n")
