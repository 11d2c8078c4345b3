"""From a job to a plan whose driver is run under the training's Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

from distmon.core.errors import DistmonError
from distmon.launcher import host_file
from distmon.launcher.facts import Facts, gather
from distmon.launcher.plan import Places, Plan, make_plan
from distmon.launcher.spec import JobSpec
from distmon.launcher.torchrun import for_torchrun

_PACKAGES = Path(__file__).resolve().parent.parent
"""Where distmon's rooms lie side by side, in a checkout as in an installation. What the training loads is found by path."""
_LOOK = "import sys, importlib.util; sys.exit(0 if importlib.util.find_spec('horovod') else 3)"
_LOOK_LIMIT_S = 10.0


def plan_job(spec: JobSpec, job_folder: Path) -> Plan:
    """Look up what the job needs and decide everything. Raises DistmonError or UsageError."""
    plan = decide(spec, gather(spec), job_folder)
    if spec.backend != "torchrun":
        _require_horovod(plan.python, spec)
    if plan.own_hosts:
        hosts = host_file.slots_of(plan.members)
        host_file.write_hosts(job_folder / host_file.FILE_NAME, hosts, alone=not plan.others and not spec.network_interfaces)
    return plan


def _require_horovod(python: str, spec: JobSpec) -> None:
    """Raises DistmonError where `python` has no Horovod. One that does not even run is left to what starts the job to name."""
    try:
        done = subprocess.run(
            [python, "-c", _LOOK], env=spec.environment, cwd=spec.cwd, capture_output=True, timeout=_LOOK_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 3:
        raise DistmonError(f"there is no Horovod in {python}: build it with `distmon horovod build --python {python}`")


def decide(spec: JobSpec, facts: Facts, job_folder: Path) -> Plan:
    """The plan of a job whose folder need not be there yet. Raises UsageError."""
    places = Places(
        job=job_folder.name,
        driver=str(_PACKAGES / "launcher" / "driver" / "main.py"),
        probe_site=str(_PACKAGES / "probe" / "site"),
        probe_shim=str(_PACKAGES / "probe" / "shim"),
        rings=str(job_folder / "rings"),
        hosts_script=host_file.script(job_folder / host_file.FILE_NAME),
    )
    plan = make_plan(spec, facts, places)
    return for_torchrun(plan, spec) if spec.backend == "torchrun" else plan
