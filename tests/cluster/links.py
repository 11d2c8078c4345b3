"""Links of the harness's switch, taken down and up from within this process: in microseconds, so that its clock is the moment."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from pathlib import Path

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_CLONE_NEWNET = 0x40000000
_REQUEST = "16sH14x"
_libc = ctypes.CDLL(None, use_errno=True)


class Links:
    """The interfaces of a network namespace: that of process `pid`. Raises OSError."""

    def __init__(self, pid: int) -> None:
        made: list[socket.socket | OSError] = []
        # A thread can enter a namespace by itself, and a socket stays in the one that it was made in.
        maker = threading.Thread(target=lambda: made.append(_socket_in(Path(f"/proc/{pid}/ns/net"))))
        maker.start()
        maker.join()
        (result,) = made
        if isinstance(result, OSError):
            raise result
        self._socket = result

    def set(self, name: str, *, up: bool) -> None:
        """Take an interface up or down. Raises OSError."""
        request = struct.pack(_REQUEST, name.encode("ascii"), 0)
        flags = struct.unpack(_REQUEST, fcntl.ioctl(self._socket, _SIOCGIFFLAGS, request))[1]
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(self._socket, _SIOCSIFFLAGS, struct.pack(_REQUEST, name.encode("ascii"), flags))

    def close(self) -> None:
        self._socket.close()


def _socket_in(namespace: Path) -> socket.socket | OSError:
    try:
        with namespace.open() as entered:
            if _libc.setns(entered.fileno(), _CLONE_NEWNET):
                number = ctypes.get_errno()
                return OSError(number, os.strerror(number), str(namespace))
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        return error
