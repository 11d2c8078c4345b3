"""What the harness needs of a machine, and why it cannot run on one that lacks it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

APT_PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
UNSHARE = ("unshare", "--net", "--uts", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")
_TRIAL = "ip link add name trial0 type bridge && ip link add name trial1 type veth peer name trial2 && mount -t tmpfs trial /run"
_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def program(name: str) -> str | None:
    """Its path; an ordinary user's PATH lacks the folders of sshd and ip."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}")


@functools.cache
def why_not() -> str:
    """One line that says what is missing and what to do; empty where the harness can run."""
    missing = sorted({package for name, package in APT_PACKAGES.items() if program(name) is None})
    if missing:
        return f"the cluster of namespaces needs more programs: apt-get install --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0:
        return "the cluster of namespaces needs root, for its bridge and its sshd: run it with sudo"
    trial = subprocess.run([*UNSHARE, "sh", "-c", _TRIAL], capture_output=True, text=True, env={**os.environ, "PATH": path()})
    if trial.returncode != 0:
        said = (trial.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"namespaces are not permitted here ({said}): run it on a virtual machine, or in a container with --privileged"
    return ""


def path() -> str:
    """PATH with the folders of sshd and ip."""
    return f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}"
