"""What is wrong with a job's hosts, found in what they say."""

from __future__ import annotations

import pytest

from distmon.launcher.reports import CheckedJob, Finding, HostFacts, HostReport, table
from distmon.launcher.rules import findings, usable_interfaces

JOB = CheckedJob(python="/t/python", cwd="/w", script="/w/train.py", frameworks=["torch"])
PACKAGES = {"horovod": "0.28.1", "torch": "2.13.0", "setuptools": "75"}


def facts(number: int, **changes: object) -> HostFacts:
    base: dict[str, object] = {
        "host_name": f"n{number}",
        "own_address": f"10.0.0.{number}",
        "python": "3.11.2",
        "packages": PACKAGES,
        "built_with": {"torch": "2.13.0"},
        "extensions": ["torch"],
        "script_digest": "abc",
        "interfaces": {"lo": "127.0.0.1", "eth0": f"10.0.0.{number}", "eth1": f"10.1.0.{number}"},
        "agent": "/opt/distmon-agent",
    }
    return HostFacts(**{**base, **changes})  # type: ignore[arg-type]


def hosts(*changed: dict[str, object], reach: str = "") -> list[HostReport]:
    """This machine and others, one for each of `changed`; `reach` is what the first says of eth0 to the second."""
    reports = [HostReport(host="n1", slots=1, facts=facts(1))]
    for number, changes in enumerate(changed or ({},), 2):
        reports.append(HostReport(host=f"n{number}", slots=1, ssh_target=f"me@n{number}", facts=facts(number, **changes)))
        reports[-1].clock_offset_s, reports[-1].round_trip_s = 0.0, 0.01
    for report in reports:
        report.reach = {other.host: {"eth0": "", "eth1": ""} for other in reports if other is not report}
    reports[0].reach["n2"] = {"eth0": reach, "eth1": ""}
    return reports


def found(reports: list[HostReport], job: CheckedJob = JOB, severity: str = "error") -> list[Finding]:
    return [finding for finding in findings(job, reports) if finding.severity == severity]


def one(reports: list[HostReport], job: CheckedJob = JOB, severity: str = "error") -> Finding:
    (finding,) = found(reports, job, severity)
    return finding


def test_hosts_without_fault_have_no_finding_but_the_plain_network() -> None:
    (finding,) = findings(JOB, hosts({}, {}))
    assert (finding.severity, finding.check) == ("info", "network")
    assert findings(JOB, hosts()[:1]) == []


@pytest.mark.parametrize(
    ("changes", "check", "text", "mend"),
    [
        ({"python_found": False}, "python", "there is no /t/python", "same path"),
        ({"packages": {}}, "horovod", "no Horovod", "distmon horovod build --python /t/python"),
        ({"extensions": ["tensorflow"]}, "framework", "built without torch", "build it again"),
        ({"packages": {"horovod": "0.28.1"}}, "framework", "needs torch", "install torch"),
        ({"packages": {**PACKAGES, "horovod": "0.27.0"}}, "horovod", "horovod 0.27.0, where others have 0.28.1", "same version"),
        ({"folder_found": False}, "folder", "no folder /w", "share it"),
        ({"script_digest": None}, "script", "no /w/train.py", "copy it"),
        ({"own_error": "Name or service not known"}, "name", "n2 has no IPv4 address", "add to its /etc/hosts: 10.0.0.2 n2"),
        ({"versions_error": "it hangs"}, "python", "it hangs", "start"),
    ],
)
def test_what_would_break_the_job(changes: dict[str, object], check: str, text: str, mend: str) -> None:
    finding = one(hosts(changes))
    assert (finding.host, finding.check) == ("n2", check)
    assert text in finding.text and mend in finding.mend


@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        ({"agent": ""}, "agent", "not measured"),
        ({"packages": {**PACKAGES, "torch": "2.12.0"}, "built_with": {}}, "framework", "torch 2.12.0, where others have 2.13.0"),
        ({"built_with": {"torch": "2.1.0"}}, "framework", "built for torch 2.1.0, and 2.13.0 is installed"),
        ({"python": "3.9.1"}, "python", "Python 3.9, where others have 3.11"),
        ({"script_digest": "other"}, "script", "another one than elsewhere"),
        ({"free_bytes": {"/w": 1 << 20}}, "disk", "/w has 1 MiB left"),
    ],
)
def test_what_may_go_wrong(changes: dict[str, object], check: str, text: str) -> None:
    finding = one(hosts(changes), severity="warning")
    assert (finding.host, finding.check) == ("n2", check) and text in finding.text and finding.mend


def test_gpus_are_counted_against_slots_and_between_hosts() -> None:
    reports = hosts({"gpus": 1})
    reports[0].facts = facts(1, gpus=2)
    reports[1].slots = 4
    assert "4 ranks share 1 GPU" in one(reports, severity="warning").text
    reports[1].facts, reports[1].slots = facts(2), 1
    assert "has no GPU" in one(reports, severity="warning").text


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ("me@n2: Permission denied (publickey,password).", "ssh-copy-id me@n2"),
        ("Host key verification failed.", "accept its key: ssh me@n2"),
        ("timed out: no answer in time", "firewall"),
        ("distmon: there is no Python on this host", "install Python"),
        ("something new", "try: ssh me@n2"),
    ],
)
def test_a_host_that_ssh_does_not_reach_has_its_reason_and_its_mend(said: str, mend: str) -> None:
    reports = hosts()
    reports[1].facts, reports[1].error = None, said
    finding = one(reports)
    assert (finding.host, finding.check, finding.text) == ("n2", "ssh", said) and mend in finding.mend


def test_a_clock_counts_as_wrong_beyond_what_the_round_trip_leaves_open() -> None:
    reports = hosts()
    reports[1].clock_offset_s, reports[1].round_trip_s = -1.4, 1.0
    assert found(reports, severity="warning") == []
    reports[1].round_trip_s = 0.1
    assert "1.4 s behind" in one(reports, severity="warning").text


def test_one_interface_that_joins_all_is_enough_unless_another_is_wanted() -> None:
    reports = hosts(reach="no answer in 3 s")
    assert found(reports) == []
    assert usable_interfaces(reports) == ["eth1"]
    wanted = CheckedJob(python="/t/python", interfaces=["eth0"])
    finding = one(reports, wanted)
    assert (finding.host, finding.check) == ("n1", "route")
    assert "does not reach n2 at 10.0.0.2 (eth0): no answer in 3 s" in finding.text
    reports[0].reach["n2"]["eth1"] = "refused"
    assert [finding.check for finding in found(reports)] == ["route", "route"]


def test_the_launchers_usual_interface_comes_first() -> None:
    reports = hosts()
    assert usable_interfaces(reports) == ["eth0", "eth1"]
    reports[0].facts = facts(1, own_address="10.1.0.1")
    assert usable_interfaces(reports) == ["eth1", "eth0"]


def test_interfaces_must_have_one_name() -> None:
    reports = hosts({"interfaces": {"enp3s0": "10.0.0.2"}})
    assert "n2 enp3s0" in one(reports).text and one(reports).check == "interface"
    wanted = CheckedJob(python="/t/python", interfaces=["eth0"])
    assert ("n2", "interface") in [(finding.host, finding.check) for finding in found(reports, wanted)]


def test_one_machine_under_two_names_is_told() -> None:
    reports = hosts({"host_name": "n1", "interfaces": {"eth0": "10.0.0.1", "eth1": "10.1.0.1"}})
    assert "same machine as n1" in one(reports, severity="warning").text


def test_variables_that_no_program_can_get() -> None:
    job = CheckedJob(python="/t/python", largest_variable="BIG", largest_variable_bytes=200 << 10, environment_bytes=201 << 10)
    assert one(hosts()[:1], job).mend == "run: unset BIG"
    job = CheckedJob(python="/t/python", largest_variable="A", largest_variable_bytes=100 << 10, environment_bytes=200 << 10)
    assert found(hosts()[:1], job) == [] and "200 KiB" in one(hosts()[:1], job, "info").text


def test_setuptools_is_needed_here_alone_and_by_new_pythons() -> None:
    changes: dict[str, object] = {"python": "3.12.1", "packages": {"horovod": "0.28.1", "torch": "2.13.0"}}
    reports = hosts(changes)
    reports[0].facts = facts(1, **changes)
    assert (one(reports).host, "setuptools" in one(reports).text) == ("n1", True)


def test_the_table_is_aligned() -> None:
    rows = [
        Finding(host="n1", check="ssh", severity="error", text="no", mend="do"),
        Finding(host="", check="network", severity="warning", text="plain"),
    ]
    assert table(rows) == ["n1   ssh      error    no; do", "job  network  warning  plain"]
