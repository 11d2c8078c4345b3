"""`distmon doctor`: what would break a job on this machine or on the hosts that are named, and how to mend it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from distmon.core.errors import UsageError
from distmon.core.printable import clean
from distmon.launcher.check import CheckResult, HostCheck
from distmon.launcher.flags import Flag, RunArguments, job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.plan import Plan
from distmon.launcher.reports import HostReport, host_line, table
from distmon.launcher.settings import hosts_flags, load_settings

OWN_FLAGS = {"--json": 0, "--debug": 0, "--help": 0, "-h": 0, "--python": 1}
FORMAT = 1
_CLEAR_LINE = "\r\x1b[K"
EPILOG = """\
Hosts, network and ssh are given as for distmon run; without them this machine is checked, or the hosts of distmon.toml.

  distmon doctor
  distmon doctor -H node1:2,node2:2 --network-interface eth0 -- python train.py

Exit code 1 if something would break a job.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon doctor [-H HOSTS | --hostfile FILE] [--json] [--python PYTHON | -- COMMAND ...]"
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="as JSON (docs/json.md)")
    parser.add_argument("--python", metavar="PYTHON", help="the training's Python, where no command names it (python on PATH)")


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """distmon's own flags, and all the rest, which the launcher understands."""
    split = split_arguments(words, OWN_FLAGS)
    rest = [word for flag in split.horovod for word in flag.words]
    rest += hosts_flags([flag.name for flag in split.horovod], load_settings(Path.cwd()))
    return split.own, [*rest, "--", *split.command]


def run(arguments: argparse.Namespace) -> int:
    words = split_arguments(arguments.words, {})
    if arguments.python and words.command:
        raise UsageError("give --python, or a command that names its Python, not both")
    command = words.command or [arguments.python or _some_python()]
    np = [] if any(flag.name == "-np" for flag in words.horovod) else [Flag("-np", ["1"], ["-np", "1"])]
    asked = RunArguments([], [*np, *words.horovod], command)
    spec = job_spec(asked, backend="horovod", cwd=str(Path.cwd()), environment=dict(os.environ))
    plan = plan_job(spec, Path("doctor"))
    return show_check(plan, load_settings(Path.cwd()).agent, as_json=arguments.json)


def show_check(plan: Plan, agent: str, *, as_json: bool) -> int:
    """Check the plan's hosts and print what was found; 1 if something would break a job."""
    check = HostCheck(plan, agent)
    try:
        result = check.run(_show_waiting)
    finally:
        check.cancel()
        if sys.stderr.isatty():
            sys.stderr.write(_CLEAR_LINE)
    text = json.dumps(_as_json(plan, result), indent=2) if as_json else "\n".join(_as_text(plan, result))
    sys.stdout.write(text + "\n")
    return 1 if result.errors else 0


def _some_python() -> str:
    return "python" if shutil.which("python") else "python3"


def _show_waiting(hosts: list[str]) -> None:
    if sys.stderr.isatty():
        more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
        sys.stderr.write(f"{_CLEAR_LINE}waiting for {clean(', '.join(hosts[:3]))}{more}")
        sys.stderr.flush()


def _as_text(plan: Plan, result: CheckResult) -> list[str]:
    lines = [clean(line) for line in (plan.places() if plan.others else [])]
    lines += [_of_host(report) for report in result.reports]
    if plan.others and result.interfaces:
        who = "all hosts" if all(report.facts for report in result.reports) else "those that were reached"
        lines.append(f"{who} reach one another over {', '.join(map(clean, result.interfaces))}")
    lines += ["", *map(clean, table(result.findings))] if result.findings else []
    counts = [sum(finding.severity == severity for finding in result.findings) for severity in ("error", "warning")]
    errors, warnings = (f"{count} {name}{'s' * (count != 1)}" for count, name in zip(counts, ("error", "warning"), strict=True))
    return [*lines, "", f"{errors}, {warnings}" if any(counts) else "nothing was found that would break a job"]


def _of_host(report: HostReport) -> str:
    return clean(f"{report.host}{' (this machine)' if report.local else ''}: {host_line(report)}")


def _as_json(plan: Plan, result: CheckResult) -> dict[str, object]:
    return {
        "format": FORMAT,
        "ok": not result.errors,
        "python": plan.python,
        "interfaces": result.interfaces,
        "hosts": [_host_as_json(report) for report in result.reports],
        "findings": [
            {"host": f.host or None, "check": f.check, "severity": f.severity, "text": f.text, "mend": f.mend or None}
            for f in result.findings
        ],
    }


def _host_as_json(report: HostReport) -> dict[str, object]:
    facts = report.facts
    return {
        "host": report.host,
        "this_machine": report.local,
        "slots": report.slots,
        "reached": facts is not None,
        "clock_offset_s": report.clock_offset_s,
        "round_trip_s": report.round_trip_s,
        "python_version": facts.python if facts else None,
        "packages": facts.packages if facts else None,
        "gpus": facts.gpus if facts else None,
        "agent": (facts.agent or None) if facts else None,
        "addresses": facts.interfaces if facts else None,
        "free_bytes": facts.free_bytes if facts else None,
    }
