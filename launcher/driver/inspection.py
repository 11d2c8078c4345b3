"""What a host says of itself before a job: run there under the training's Python, source and request on standard input.

It answers the request with one JSON line of facts, then lines of orders: {"clock": true} with its wall time, and {"reach": …}
with which other hosts it reaches over which interface. It ends with its standard input. It executes nothing but the training's
Python, to ask which packages are there; no framework is imported.

Standard library only, and sent as source to other hosts: imports nothing of distmon.
"""

import fcntl
import glob
import hashlib
import json
import os
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import guest

VERSIONS_LIMIT_S = 8.0
CONNECT_LIMIT_S = 3.0
LIFE_LIMIT_S = 40
SIOCGIFADDR = 0x8915

# Runs in the training's environment. A package is found by its metadata and by its folder, neither of which imports it.
VERSIONS = """
import glob, importlib.util, json, os, sys
try:
    from importlib.metadata import version
except ImportError:
    from pkg_resources import get_distribution
    version = lambda name: get_distribution(name).version
def first(names):
    for name in names:
        try:
            return version(name)
        except Exception:
            pass
    return None
names = {"horovod": ["horovod"], "torch": ["torch"], "keras": ["keras"], "setuptools": ["setuptools"],
         "tensorflow": ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"]}
packages = {}
for module, distributions in names.items():
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is not None:
        packages[module] = first(distributions) or "?"
        if module == "horovod" and spec.submodule_search_locations:
            folder = list(spec.submodule_search_locations)[0]
built, extensions = {}, []
if "horovod" in packages:
    libraries = glob.glob(os.path.join(glob.escape(folder), "*", "mpi_lib*.so"))
    extensions = sorted({os.path.basename(os.path.dirname(path)) for path in libraries})
    try:
        with open(os.path.join(folder, "metadata.json")) as file:
            built = {"torch" if k == "pytorch" else k: v for k, v in json.load(file).items()}
    except (OSError, ValueError):
        pass
print(json.dumps({"python": sys.version.split()[0], "packages": packages, "built_with": built, "extensions": extensions}))
"""


def main() -> None:
    """Answer until standard input ends."""
    signal.alarm(LIFE_LIMIT_S)
    request = json.loads(_read_exactly(int(_read_exactly(8))).decode("utf-8"))
    listener = _listen(request["nonce"])
    _say(facts(request, listener.getsockname()[1]))
    for line in sys.stdin.buffer:
        order = json.loads(line.decode("utf-8"))
        if "clock" in order:
            _say({"clock": time.time()})
        elif "reach" in order:
            _say({"reach": reach(order["reach"])})


def _read_exactly(count: int) -> bytes:
    data = sys.stdin.buffer.read(count)
    if len(data) < count:
        sys.exit(1)
    return data


def _say(answer: Dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def facts(request: Dict[str, Any], port: int) -> Dict[str, Any]:
    """All that can be seen on this host by itself."""
    name = socket.gethostname()
    own, own_error = _address(name)
    python = request["python"]
    found = bool(python) and os.path.isfile(python) and os.access(python, os.X_OK)
    versions = _versions(python if found else sys.executable, request["environment"])
    return {
        "host_name": name,
        "own_address": own,
        "own_error": own_error,
        "python_found": found,
        "python": versions.get("python", platform.python_version()),
        "packages": versions.get("packages", {}),
        "built_with": versions.get("built_with", {}),
        "extensions": versions.get("extensions", []),
        "versions_error": versions.get("error", ""),
        "folder_found": os.path.isdir(request["cwd"]),
        "script_digest": _digest(request["script"]),
        "gpus": _gpus(),
        "interfaces": interfaces(),
        "free_bytes": {path: _free(path) for path in (request["cwd"], guest.runtime_folder(), "/tmp", "/dev/shm")},
        "agent": guest.find_agent(request["agent"], request["agent_beside"], python) or "",
        "cache_age_s": _cache_age(),
        "port": port,
    }


def _address(name: str) -> Any:
    """(IPv4 address, "") or ("", why there is none)."""
    try:
        return socket.gethostbyname(name), ""
    except OSError as error:
        return "", error.strerror or str(error)


def _versions(python: str, environment: Dict[str, str]) -> Dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-c", VERSIONS],
            env=dict(os.environ, **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=VERSIONS_LIMIT_S,
        )
        result: Dict[str, Any] = json.loads(done.stdout.decode("utf-8").splitlines()[-1])
        return result
    except subprocess.TimeoutExpired:
        return {"error": "{} gave no answer in {:g} s".format(python, VERSIONS_LIMIT_S)}
    except OSError as error:
        return {"error": "{}: {}".format(python, error.strerror)}
    except (ValueError, IndexError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"error": "{} failed: {}".format(python, said[-1] if said else "no answer")}


def _digest(path: str) -> Optional[str]:
    """Of a file's content; empty where no file is asked for, None where it cannot be read."""
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _gpus() -> int:
    """NVIDIA's devices, a Jetson's own, or AMD's."""
    nvidia = [path for path in glob.glob("/dev/nvidia*") if re.search(r"nvidia\d+$", path)]
    jetson = [path for path in ("/dev/nvhost-gpu", "/dev/nvgpu/igpu0") if os.path.exists(path)][:1]
    return len(nvidia) or len(jetson) or sum(map(_is_gpu, glob.glob("/sys/class/kfd/kfd/topology/nodes/*/gpu_id")))


def _is_gpu(path: str) -> bool:
    try:
        with open(path) as file:
            return file.read().strip() not in ("", "0")
    except OSError:
        return False


def interfaces() -> Dict[str, str]:
    """Name -> IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", os.fsencode(name)[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _free(path: str) -> Optional[int]:
    """Bytes that this user may still write; None where there is no such folder."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _cache_age() -> Optional[float]:
    """Seconds since horovodrun kept its answers about hosts; None where it never did."""
    try:
        return time.time() - os.stat(os.path.expanduser("~/.horovod/cache.bin")).st_mtime
    except OSError:
        return None


# --- the way between hosts ---


def _listen(nonce: str) -> socket.socket:
    """Answer every connection with the nonce: an address that two hosts have (a bridge of containers) is then told apart."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("0.0.0.0", 0))
    listener.listen(64)

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            connection.sendall(nonce.encode("ascii"))
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    return listener


def reach(targets: List[Dict[str, Any]]) -> Dict[str, Dict[str, str]]:
    """Host -> interface -> why it is not reached over it; empty text where it is. All at once."""
    result: Dict[str, Dict[str, str]] = {}
    threads = []
    for target in targets:
        ways = result[target["host"]] = {name: "no answer in {:g} s".format(CONNECT_LIMIT_S) for name in target["addresses"]}
        for name, address in target["addresses"].items():
            arguments = (ways, name, address, target["port"], target["nonce"])
            threads.append(threading.Thread(target=_try, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + CONNECT_LIMIT_S + 1
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return result


def _try(ways: Dict[str, str], name: str, address: str, port: int, nonce: str) -> None:
    try:
        with socket.create_connection((address, port), CONNECT_LIMIT_S) as connection:
            connection.settimeout(CONNECT_LIMIT_S)
            said = b""
            while len(said) < len(nonce):
                data = connection.recv(64)
                if not data:
                    break
                said += data
        ways[name] = "" if said == nonce.encode("ascii") else "another machine answers there"
    except socket.timeout:
        pass
    except OSError as error:
        ways[name] = error.strerror or str(error)
