"""Process 1 of a host of the harness: makes the host out of fresh namespaces, starts its sshd, and reaps orphans.

`unshare ... python -I -S init.py SPEC` with SPEC in JSON: name, files (path in the host -> file or folder that stands there),
keep (folders that stay visible), private (folders that start empty), sshd (its configuration and options), log. Says "ready" on
standard output, or why not. The end of standard input means that the harness is gone: process 1 ends, and the kernel ends all
that is left.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SSHD_LIMIT_S = 20.0
KEPT = Path("/run/harness")


def main() -> None:
    """Make the host, then wait for the harness to let go of it."""
    spec = json.loads(sys.argv[1])
    wake, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        make_host(spec)
        start_sshd(spec)
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        said = getattr(error, "stderr", None)
        print(f"host {spec['name']}: {error} {said or ''}".strip(), flush=True)  # noqa: T201
        sys.exit(1)
    print("ready", flush=True)  # noqa: T201
    wait_for_end(wake)


def make_host(spec: dict[str, Any]) -> None:
    """Name, loopback, and what of the file system is the host's own."""
    socket.sethostname(spec["name"])
    call("ip", "link", "set", "dev", "lo", "up")
    mount("-t", "tmpfs", "-o", "mode=755", "harness", "/run")
    kept = [Path(folder) for folder in spec["keep"]]
    for number, folder in enumerate(kept):
        place = KEPT / str(number)
        place.mkdir(parents=True)
        mount("--bind", str(folder), str(place))
    for path, source in spec["files"].items():
        mount("--bind", source, path)
    for path in spec["private"]:
        mount("-t", "tmpfs", "-o", "mode=1777" if path == "/tmp" else "mode=700", "harness", path)
    for number, folder in enumerate(kept):
        folder.mkdir(parents=True, exist_ok=True)
        mount("--move", str(KEPT / str(number)), str(folder))
    Path("/run/sshd").mkdir(mode=0o755)
    runtime = Path(f"/run/user/{os.getuid()}")
    runtime.mkdir(parents=True)
    runtime.chmod(0o700)


def start_sshd(spec: dict[str, Any]) -> None:
    """Raises RuntimeError with its last words when it does not listen."""
    with Path(spec["log"]).open("wb") as log:
        null = subprocess.DEVNULL
        sshd = subprocess.Popen([spec["sshd_program"], "-D", "-e", "-f", *spec["sshd"]], stdin=null, stdout=log, stderr=log)
    deadline = time.monotonic() + SSHD_LIMIT_S
    while not listens(22):
        if sshd.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("sshd does not listen: " + Path(spec["log"]).read_text(errors="replace")[-400:])
        time.sleep(0.02)
    sshd.returncode = 0  # reaped with all other children


def listens(port: int) -> bool:
    """Whether something of this host listens on a TCP port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def wait_for_end(wake: int) -> None:
    """Reap what ends, until the harness closes standard input."""
    selector = selectors.DefaultSelector()
    selector.register(wake, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if not os.read(key.fd, 4096) and key.fd == 0:
                return
        reap()


def reap() -> None:
    """Take the exit codes of all children that have ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def mount(*words: str) -> None:
    """Raises CalledProcessError."""
    call("mount", *words)


def call(*command: str) -> None:
    """Run a program of the system. Raises CalledProcessError."""
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    main()
