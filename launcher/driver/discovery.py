"""Asking the host discovery script, so that neither its failures nor its silence hold the job.

Horovod asks while it holds the lock that everything else waits for, and takes a script's every word. Here the script runs in a
thread of its own for a limited time, its answer is read strictly, and while it fails the hosts known last stay.
"""

import contextlib
import os
import re
import signal
import subprocess
import threading
from typing import Callable, Dict, List, Optional

LIMIT_S = 10.0
"""A script that has not answered by then is ended."""
PATIENCE_S = 0.5
"""How long Horovod waits for an answer before it goes on with the hosts that it knows."""
_ENTRY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))\s*(?::\s*(\d+))?")


class DiscoveryError(Exception):
    """Why an answer cannot be used, in one line."""


def parse_discovered(output: bytes) -> Dict[str, Optional[int]]:
    """Host -> slots (None where the answer leaves them to a flag), in the answer's order. Raises DiscoveryError.

    Blank lines, comments and carriage returns are skipped, hosts without slots left out, and a line may be repeated.
    """
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError:
        raise DiscoveryError("it printed bytes that are no text") from None
    hosts: Dict[str, Optional[int]] = {}
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise DiscoveryError(f"it printed {entry!r}, which is not of the form name:slots")
        name = found.group(1) or found.group(2)
        slots = None if found.group(3) is None else int(found.group(3))
        if hosts.get(name, slots) != slots:
            raise DiscoveryError(f"it gave {name} both {hosts[name]} and {slots} slots")
        hosts[name] = slots
    return {name: slots for name, slots in hosts.items() if slots != 0}


class Answer:
    """One run of the script, under way or over."""

    def __init__(self, script: str, limit_s: float) -> None:
        self.hosts: Dict[str, Optional[int]] = {}
        self.error = ""
        self.timed_out = False
        self.done = threading.Event()
        self._script = script
        self._limit_s = limit_s
        threading.Thread(target=self._run, name="discovery-script", daemon=True).start()

    def _run(self) -> None:
        try:
            self.hosts = parse_discovered(self._output())
        except (DiscoveryError, OSError) as error:
            self.error = str(error)
        self.done.set()

    def _output(self) -> bytes:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(self._script, shell=True, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True) as process:
            try:
                output, said = process.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                self.timed_out = True
                raise DiscoveryError(f"it gave no answer in {self._limit_s:g} s and was ended") from None
            finally:
                _end_group(process)
        if process.returncode != 0:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            raise DiscoveryError(f"it ended with {process.returncode}{': ' + lines[-1].strip() if lines else ''}")
        return output


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """The script with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class ScriptDiscovery:
    """Stands for Horovod's HostDiscoveryScript. `tell(status, failures, detail)` is called when how it fares has changed."""

    def __init__(self, script: str, default_slots: Optional[int], tell: Callable[[str, int, str], None]) -> None:
        self.order: List[str] = []
        """Hosts as the last good answer ordered them."""
        self._script = script
        self._default_slots = default_slots or 1
        self._tell = tell
        self._known: Optional[Dict[str, int]] = None
        self._answer: Optional[Answer] = None
        self._failures = 0
        self._told = ""

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Host -> slots, from the script's newest good answer. Raises DiscoveryError if the very first one is bad."""
        answer = self._answer = self._answer or Answer(self._script, LIMIT_S)
        if not answer.done.wait(None if self._known is None else PATIENCE_S):
            return dict(self._known or {})
        self._answer = None
        if answer.error:
            return self._failed(answer)
        self._known = {name: self._default_slots if slots is None else slots for name, slots in answer.hosts.items()}
        self.order = list(self._known)
        if self._failures:
            self._failures, self._told = 0, ""
            self._tell("ok", 0, "the host discovery script answers again")
        return dict(self._known)

    def _failed(self, answer: Answer) -> Dict[str, int]:
        text = f"the host discovery script {self._script!r} failed: {answer.error}"
        if self._known is None:
            raise DiscoveryError(text)
        self._failures += 1
        if text != self._told:
            self._told = text
            self._tell("timed_out" if answer.timed_out else "failing", self._failures, text + "; the hosts known last stay")
        return dict(self._known)
