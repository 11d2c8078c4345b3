"""How a program of distmon's gets onto a host: source and spec go in on standard input, so that no command line holds either.

The same path serves this host (a child process) and others (through the user's ssh).
"""

import functools
import json
import os
import shlex
from typing import Any, Dict, List, Optional, Sequence

# Reads an 8-digit length and that much source from standard input, and runs it. One line: some login shells take no more.
BOOTSTRAP = 'import os;r=lambda n:n and (lambda b:b+r(n-len(b)))(os.read(0,n)) or b"";exec(r(int(r(8))))'
CONNECT_LIMIT_S = 10
SUPERVISOR = ("processes", "lines", "guest", "supervisor")
_LOADER = """
import sys, types
package = types.ModuleType("_distmon_sent")
package.__path__ = []
sys.modules[package.__name__] = package
for name, source in {sources!a}:
    module = types.ModuleType(package.__name__ + "." + name)
    module.__package__ = package.__name__
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(source, "distmon/" + name + ".py", "exec"), module.__dict__)
module.main()
"""


@functools.lru_cache(maxsize=None)
def _sources(modules: Sequence[str]) -> List[Any]:
    """Read once: a distmon that is replaced during a job does not send its hosts what it does not speak itself."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sources = []
    for name in modules:
        with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
            sources.append((name, file.read()))
    return sources


def _framed(data: bytes) -> bytes:
    return b"%08d" % len(data) + data


def payload(spec: Dict[str, Any], modules: Sequence[str] = SUPERVISOR) -> bytes:
    """What a program on a host reads first: its own source, whose last module has its `main`, then what it is to do."""
    source = _LOADER.format(sources=_sources(modules))
    return _framed(source.encode("ascii")) + _framed(json.dumps(spec).encode("ascii"))


def local_command(python: str) -> List[str]:
    """Run a supervisor here; isolated, so that neither the probe nor the user's site modules load in it."""
    return [python, "-I", "-S", "-c", BOOTSTRAP]


def ssh_options(port: Optional[int], identity_file: Optional[str]) -> List[str]:
    """BatchMode: a question that nobody sees would wait for ever. Host keys are checked as the user's ssh is set up to."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_LIMIT_S}"]
    if port is not None:
        options += ["-p", str(port)]
    if identity_file is not None:
        options += ["-i", identity_file]
    return options


def ssh_command(host: str, python: str, port: Optional[int], identity_file: Optional[str]) -> List[str]:
    """Run a supervisor on `host` under the same Python as here, else the first one that is there."""
    script = 'for p in {} python3 python; do command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -c {}; done; {}; exit 127'
    missing = 'echo "distmon: there is no Python on this host" >&2'
    script = script.format(shlex.quote(python), shlex.quote(BOOTSTRAP), missing)
    return ["ssh", *ssh_options(port, identity_file), host, "exec sh -c " + shlex.quote(script)]
