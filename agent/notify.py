"""What the service manager is told (sd_notify): one datagram to the socket that it names. Without one, nothing happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """`ready` once the agent listens, `alive` after each turn that did its work, `stopping` at the end."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with an @ in place of its zero byte.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()) and "WATCHDOG_USEC" in environment

    def ready(self, text: str) -> None:
        self._tell(f"READY=1\nSTATUS={text}")

    def alive(self) -> None:
        if self._watched:
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto(message.encode(), self._address)
            except OSError:
                return  # the manager goes by what it hears, and ends who is silent
