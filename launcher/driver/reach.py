"""Whether ssh reaches every host, before any rank is started: all hosts at once, each with its own reason.

In the place of Horovod's check, which tries five times, without a limit, and says only that some host failed.
"""

import shutil
import subprocess
import tempfile
import time
from typing import IO, Any, Dict, List, Optional, Tuple

from . import remote

LIMIT_S = 15.0
AT_ONCE = 64


class HostsUnreachable(Exception):
    """Names the hosts and why."""


def check_hosts(hosts: List[str], port: Optional[int], identity_file: Optional[str]) -> None:
    """Raises HostsUnreachable unless ssh runs `true` on all of them."""
    if shutil.which("ssh") is None:
        raise HostsUnreachable(f"there is no ssh here to reach {', '.join(hosts)} with; install an ssh client")
    reasons: Dict[str, str] = {}
    for start in range(0, len(hosts), AT_ONCE):
        reasons.update(_try(hosts[start : start + AT_ONCE], port, identity_file))
    if reasons:
        told = "; ".join(f"{host} ({reason})" for host, reason in reasons.items())
        raise HostsUnreachable(f"ssh does not reach {told}")


def _try(hosts: List[str], port: Optional[int], identity_file: Optional[str]) -> Dict[str, str]:
    calls = [(host, *_start(host, port, identity_file)) for host in hosts]
    deadline = time.monotonic() + LIMIT_S
    try:
        return {host: reason for host, ssh, said in calls for reason in [_reason(ssh, said, deadline)] if reason}
    finally:
        for _, ssh, said in calls:
            if ssh.poll() is None:
                ssh.kill()
                ssh.wait()
            said.close()


def _start(host: str, port: Optional[int], identity_file: Optional[str]) -> Tuple["subprocess.Popen[bytes]", IO[bytes]]:
    # A file, not a pipe: a shared connection that ssh leaves in the background would hold a pipe open.
    said = tempfile.TemporaryFile()  # noqa: SIM115
    command = ["ssh", *remote.ssh_options(port, identity_file), host, "true"]
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=null, stderr=said, start_new_session=True), said


def _reason(ssh: Any, said: IO[bytes], deadline: float) -> str:
    """Why it failed; empty when it did not."""
    try:
        code = ssh.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"timed out: no answer in {LIMIT_S:g} s"
    if code == 0:
        return ""
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ssh ended with {code}"
