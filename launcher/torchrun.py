"""The torchrun backend: what of a job's plan differs where torchrun starts the ranks."""

from __future__ import annotations

import msgspec

from distmon.core.errors import UsageError
from distmon.launcher.plan import Plan
from distmon.launcher.spec import JobSpec

_KNOWN = ("-np", "--num-proc")


def for_torchrun(plan: Plan, spec: JobSpec) -> Plan:
    """The plan without Horovod's flags. Raises UsageError for what only Horovod does."""
    if plan.others or spec.elastic:
        raise UsageError("--backend torchrun starts the ranks on this machine; leave hosts and elastic flags out, or use horovod")
    horovods = [word for word in spec.flags if word.startswith("-") and word.partition("=")[0] not in _KNOWN]
    if horovods:
        raise UsageError(f"{horovods[0]} is a flag of horovodrun, and --backend torchrun knows only -np; leave it out")
    alone = {"hosts": f"localhost:{plan.np}", "network_interface": "", "own_hosts": False}
    return msgspec.structs.replace(plan, flags=[], timeline="", fusion_threshold_bytes=None, **alone)
