"""What would break a job, or blind distmon, found in what its hosts said: pure, and the same for the launch and for `doctor`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from distmon.core.places import is_loopback
from distmon.launcher.reports import CheckedJob, Finding, HostFacts, HostReport, Severity, common_interfaces

CLOCK_LIMIT_S = 1.0
CACHE_LIFE_S = 3600
"""horovodrun believes its own answers of the last hour."""
ARGUMENT_LIMIT = 128 << 10
"""Bytes of one argument or variable that the kernel passes to a program."""
ROOM_FOR_FILES = 256 << 20
ROOM_FOR_MEMORY = 32 << 20
FEW_PAIRS = 3

_SSH_MENDS = (
    ("permission denied", "let your key in: ssh-copy-id {target}"),
    ("host key verification failed", "log in once by hand and accept its key: ssh {target}"),
    ("could not resolve", "correct the name, or give it in /etc/hosts or ~/.ssh/config"),
    ("connection refused", "start sshd there, or give its port with -p"),
    ("timed out", "is it on, and does a firewall let ssh through? try: ssh {target}"),
    ("no route", "is it on, and in this network? try: ping {target}"),
    ("no python", "install Python 3 there"),
    ("there is no ssh here", "install an ssh client here: apt-get install openssh-client"),
    ("where nothing should be printed", "let its shell print only in a terminal: in ~/.bashrc, return early where $- has no i"),
)
_PYTHON_FLAG = "distmon horovod build --python {python}"


def findings(job: CheckedJob, reports: Sequence[HostReport]) -> list[Finding]:
    """All that is wrong, errors first, in the order of the hosts."""
    found = [*_of_job(job, reports)]
    for report in reports:
        found += _of_host(job, report)
    found += [*_differences(job, reports), *_ways(job, reports)]
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: rank[finding.severity])


def usable_interfaces(reports: Sequence[HostReport], given: Sequence[str] = ()) -> list[str]:
    """Interfaces, of those given or of all, over which every host reaches those that it tried; the usual one first."""
    names = common_interfaces(reports, given)
    for report in reports:
        for ways in report.reach.values():
            names &= {name for name, problem in ways.items() if not problem}
    first = reports[0].facts
    usual = first.own_address if first is not None else ""
    addresses = first.interfaces if first is not None else {}
    return sorted(names, key=lambda name: (addresses.get(name) != usual, name))


# --- the job as a whole ---


def _of_job(job: CheckedJob, reports: Sequence[HostReport]) -> Iterator[Finding]:
    if job.largest_variable_bytes > ARGUMENT_LIMIT:
        text = f"the variable {job.largest_variable} has {job.largest_variable_bytes >> 10} KiB; programs start with 128 at most"
        yield Finding(host="", check="environment", severity="error", text=text, mend=f"run: unset {job.largest_variable}")
    elif job.environment_bytes > ARGUMENT_LIMIT:
        text = f"the environment has {job.environment_bytes >> 10} KiB: horovodrun fails above 128, distmon passes it another way"
        yield Finding(host="", check="environment", severity="info", text=text)
    local_names = [report.host for report in reports if report.local and is_loopback(report.host)]
    if len(reports) > 1 and local_names and reports[0].slots:
        text = f"{local_names[0]} is another machine on every host of the job"
        yield Finding(host=local_names[0], check="name", severity="warning", text=text, mend="give this machine's own name")
    if len(reports) > 1:
        text = "Gloo and Horovod's rendezvous are neither encrypted nor authenticated"
        yield Finding(host="", check="network", severity="info", text=text, mend="use a network that you trust")


# --- one host ---


def _of_host(job: CheckedJob, report: HostReport) -> Iterator[Finding]:
    if report.facts is None:
        yield _unreached(report)
        return
    facts, host = report.facts, report.host
    member = report.slots > 0 or not report.local

    def finding(check: str, severity: Severity, text: str, mend: str = "") -> Finding:
        return Finding(host=host, check=check, severity=severity, text=text, mend=mend)

    if report.error:
        yield finding("ssh", "error", report.error, f"try: ssh {report.ssh_target}" if report.ssh_target else "")
    yield from _training(job, facts, finding, local=report.local)
    if member:
        yield from _files(job, facts, finding)
    if facts.own_error:
        text = f"its own name {facts.host_name} has no IPv4 address ({facts.own_error}): Gloo aborts"
        address = next((a for a in facts.interfaces.values() if not a.startswith("127.")), "127.0.1.1")
        yield finding("name", "error", text, f"add to its /etc/hosts: {address} {facts.host_name}")
    if not facts.agent:
        text = "there is no distmon-agent: its hardware and ranks are not measured"
        yield finding("agent", "warning", text, "install distmon there, as here (pipx install distmon)")
    yield from _machine(report, facts, finding)


Make = Callable[..., Finding]


def _unreached(report: HostReport) -> Finding:
    if report.local:
        return Finding(host=report.host, check="python", severity="error", text=report.error, mend="check the training's Python")
    known = report.error.lower()
    mend = next((mend for sign, mend in _SSH_MENDS if sign in known), "try: ssh {target}")
    mend = mend.format(target=shlex.quote(report.ssh_target))
    return Finding(host=report.host, check="ssh", severity="error", text=report.error, mend=mend)


def _training(job: CheckedJob, facts: HostFacts, finding: Make, *, local: bool) -> Iterator[Finding]:
    """Python, Horovod, and what it was built for."""
    build = _PYTHON_FLAG.format(python=shlex.quote(job.python or "python"))
    if not facts.python_found:
        mend = "install the training's environment there at the same path"
        yield finding("python", "error", f"there is no {job.python}", mend)
        return
    if facts.versions_error:
        yield finding("python", "error", facts.versions_error, "does the training's Python start there?")
        return
    if "horovod" not in facts.packages:
        mend = f"build it: {build}; or name the training's Python, if it is another one"
        yield finding("horovod", "error", f"there is no Horovod in {job.python}", mend)
        return
    for framework in job.frameworks:
        if framework not in facts.packages:
            text = f"the script needs {framework}, which is not installed"
            yield finding("framework", "error", text, f"install {framework} in {job.python}")
        elif facts.extensions and framework not in facts.extensions:
            yield finding("framework", "error", f"Horovod was built without {framework}", f"build it again: {build}")
    for framework, version in facts.built_with.items():
        now = facts.packages.get(framework, version)
        if framework in facts.extensions and "?" not in (now, version) and now != version:
            text = f"Horovod was built for {framework} {version}, and {now} is installed: it may not load"
            yield finding("framework", "warning", text, f"build it again: {build}")
    if local and _minor(facts.python) >= (3, 12) and "setuptools" not in facts.packages:
        text = f"Horovod's launcher needs setuptools under Python {facts.python}"
        yield finding("horovod", "error", text, f"run: {shlex.quote(job.python)} -m pip install 'setuptools<81'")


def _files(job: CheckedJob, facts: HostFacts, finding: Make) -> Iterator[Finding]:
    if not facts.folder_found:
        yield finding("folder", "error", f"there is no folder {job.cwd}", "copy it there, or share it (NFS)")
    elif facts.script_digest is None:
        yield finding("script", "error", f"there is no {job.script}", "copy it there, or share the folder (NFS)")


def _machine(report: HostReport, facts: HostFacts, finding: Make) -> Iterator[Finding]:
    offset, trip = report.clock_offset_s, report.round_trip_s
    if not report.local and offset is not None and trip is not None and abs(offset) - trip / 2 > CLOCK_LIMIT_S:
        words = f"its clock is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
        yield finding("clock", "warning", words, "switch time synchronisation on: timedatectl set-ntp true")
    for path, free in facts.free_bytes.items():
        limit = ROOM_FOR_MEMORY if path.startswith(("/dev/shm", "/run")) else ROOM_FOR_FILES
        if free is not None and free < limit:
            yield finding("disk", "warning", f"{path} has {free >> 20} MiB left", "make room there")
    if facts.gpus and report.slots > facts.gpus:
        text = f"{report.slots} ranks share {_count(facts.gpus, 'GPU')}"
        yield finding("gpu", "warning", text, f"give it {_count(facts.gpus, 'slot')}, or the ranks wait for one another")
    if report.local and facts.cache_age_s is not None and facts.cache_age_s < CACHE_LIFE_S:
        text = f"plain horovodrun believes what it found {facts.cache_age_s / 60:.0f} min ago; distmon looks anew"
        yield finding("cache", "info", text, "after a change of the network: rm ~/.horovod/cache.bin")


# --- what differs between hosts ---


def _differences(job: CheckedJob, reports: Sequence[HostReport]) -> Iterator[Finding]:
    known = [(report, report.facts) for report in reports if report.facts is not None and report.facts.packages]
    known = [(report, facts) for report, facts in known if report.slots > 0]
    for package in ("horovod", "torch", "tensorflow"):
        severity: Severity = "error" if package == "horovod" else "warning"
        versions = {report.host: facts.packages[package] for report, facts in known if package in facts.packages}
        yield from _odd_ones(package if package == "horovod" else "framework", severity, package, versions)
    pythons = {report.host: ".".join(map(str, _minor(facts.python))) for report, facts in known}
    yield from _odd_ones("python", "warning", "Python", pythons)
    scripts = {report.host: facts.script_digest for report, facts in known if facts.script_digest}
    for host in _odd(scripts):
        text = f"its {job.script} is another one than elsewhere"
        yield Finding(host=host, check="script", severity="warning", text=text, mend="copy it again")
    gpus = {report.host: facts.gpus for report, facts in known}
    if any(gpus.values()):
        for host in (host for host, count in gpus.items() if not count):
            text = "it has no GPU, and other hosts have"
            yield Finding(host=host, check="gpu", severity="warning", text=text, mend="all ranks wait for it; leave it out")
    yield from _same_machine(known)


def _odd_ones(check: str, severity: Severity, name: str, versions: dict[str, str]) -> Iterator[Finding]:
    odd = _odd(versions)
    usual = next((version for host, version in versions.items() if host not in odd), "")
    for host in odd:
        text = f"{name} {versions[host]}, where others have {usual}"
        yield Finding(host=host, check=check, severity=severity, text=text, mend="install the same version everywhere")


def _odd(values: dict[str, str]) -> list[str]:
    """Hosts whose value is not the usual one; between equals the first host's counts as usual."""
    if not values:
        return []
    counts = Counter(values.values())
    usual = max(counts, key=lambda value: counts[value])
    return [host for host, value in values.items() if value != usual]


def _same_machine(known: list[tuple[HostReport, HostFacts]]) -> Iterator[Finding]:
    seen: dict[object, str] = {}
    for report, facts in known:
        addresses = {address for address in facts.interfaces.values() if not address.startswith("127.")}
        if not addresses:
            continue
        first = seen.setdefault((facts.host_name, frozenset(addresses)), report.host)
        if first != report.host:
            text = f"it is the same machine as {first}"
            yield Finding(host=report.host, check="name", severity="warning", text=text, mend="list it once, with all its slots")


# --- the ways between hosts ---


def _ways(job: CheckedJob, reports: Sequence[HostReport]) -> Iterator[Finding]:
    known = [report for report in reports if report.facts is not None]
    if len(known) < 2:
        return
    names = set(job.interfaces) or common_interfaces(known)
    if not names:
        told = "; ".join(f"{r.host} {', '.join(sorted(_named(r))) or 'none'}" for r in known)
        text = f"no network interface has one name on all hosts ({told}), and Horovod wants one"
        mend = "give the interfaces one name, or check the networks"
        yield Finding(host="", check="interface", severity="error", text=text, mend=mend)
        return
    for report in known:
        for name in sorted(set(job.interfaces) - set(report.facts.interfaces if report.facts else ())):
            there = ", ".join(sorted(_named(report))) or "none"
            text = f"there is no network interface {name} with an IPv4 address; there is {there}"
            yield Finding(host=report.host, check="interface", severity="error", text=text, mend="correct --network-interface")
    usable = set(usable_interfaces(known, job.interfaces))
    if (set(job.interfaces) <= usable) if job.interfaces else usable:
        return
    yield from _closed_ways(known, names)


def _closed_ways(known: Sequence[HostReport], names: set[str]) -> Iterator[Finding]:
    facts = {report.host: report.facts for report in known}
    told: Counter[str] = Counter()
    for report in known:
        for other, ways in report.reach.items():
            target = facts[other]
            for name, problem in ways.items():
                if not problem or name not in names or target is None:
                    continue
                told[report.host] += 1
                if told[report.host] > FEW_PAIRS:
                    continue
                text = f"it does not reach {other} at {target.interfaces[name]} ({name}): {problem}"
                mend = "let all TCP ports through between the hosts, or choose with --network-interface"
                yield Finding(host=report.host, check="route", severity="error", text=text, mend=mend)


def _named(report: HostReport) -> list[str]:
    assert report.facts is not None
    return [name for name, address in report.facts.interfaces.items() if not address.startswith("127.")]


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
