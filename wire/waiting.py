"""Waits for ZeroMQ's sockets and others at once."""

from __future__ import annotations

import math
import select

import zmq

_READABLE = int(zmq.POLLIN)


class Waiting:
    """Sockets and descriptors of which one is awaited.

    A socket's own descriptor can be read when something has happened in it, not as long as there are messages: so they are asked
    first. ZeroMQ's poll asks sockets and kernel twice over, which an agent that slept for a second pays dearly.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._sockets: list[zmq.Socket[bytes]] = []

    def add(self, socket: zmq.Socket[bytes]) -> None:
        self._sockets.append(socket)
        self.add_descriptor(int(socket.getsockopt(zmq.FD)))

    def add_descriptor(self, descriptor: int) -> None:
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Whether there may be something to read, now or within so many seconds."""
        for socket in self._sockets:
            if int(socket.getsockopt(zmq.EVENTS)) & _READABLE:
                return True
        return bool(self._poll.poll(math.ceil(max(0.0, timeout_s) * 1000)))
