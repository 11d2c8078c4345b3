"""libnvidia-ml.so.1 and its binding: whether it is there, loading it, and loading it anew after an update of the driver."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from distmon.agent.sensors.nvidia_calls import Nvml, in_words, is_mismatch

NAME = "libnvidia-ml.so.1"
_CACHE = Path("/etc/ld.so.cache")
_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib"),
    *("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"),
)


class DriverError(ValueError):
    """The driver cannot be asked at all, and why, in words."""


def is_present() -> bool:
    """Whether the loader would find it. Importing the binding costs 40 ms of CPU, which a node without a GPU never pays."""
    if any(os.path.lexists(f"{folder}/{NAME}") for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder):
        return True
    try:
        if NAME.encode() + b"\0" in _CACHE.read_bytes():
            return True
    except OSError:
        pass  # a system without glibc's cache
    return any(os.path.lexists(f"{folder}/{NAME}") for folder in _FOLDERS)


def initialize() -> Nvml:
    """The binding, ready for calls. Raises DriverError."""
    try:
        pynvml = _import_binding()  # only where there is a driver
    except ImportError:
        raise DriverError("nvidia-ml-py is missing in distmon's environment: pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError as error:
        if is_mismatch(error):
            unload(pynvml)
        raise DriverError(in_words(error)) from None
    return pynvml


def _import_binding() -> Nvml:
    """The module pynvml. Of ctypes.util it imports a function that it never calls, and with it subprocess and tempfile: a fifth
    of what it costs. So it gets one that loads these when it is called. Raises ImportError."""
    if "ctypes.util" in sys.modules:
        import pynvml

        return pynvml
    sys.modules["ctypes.util"] = stand_in = ModuleType("ctypes.util")
    stand_in.find_library = _find_library  # type: ignore[attr-defined]
    try:
        import pynvml
    finally:
        del sys.modules["ctypes.util"]
    return pynvml


def _find_library(name: str) -> str | None:
    from ctypes.util import find_library

    return find_library(name)


def shut_down(nvml: Nvml) -> None:
    """Only while no thread is in a call. The driver may be gone already."""
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()
    unload(nvml)


def unload(nvml: Nvml) -> None:
    """Lets go of the library, so that the next initialisation loads the file that is there then: an update replaces it.

    Only while no thread is in a call. The binding has no function for it, so this reaches into it.
    """
    import _ctypes  # only once the binding has loaded it

    library, nvml.nvmlLib = nvml.nvmlLib, None
    nvml._nvmlGetFunctionPointer_cache.clear()
    if library is not None:
        _ctypes.dlclose(library._handle)
