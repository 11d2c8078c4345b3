"""Who may talk to an agent over TCP: CURVE, ZeroMQ's authentication requests (ZAP), and the count of those who were refused.

The requests are answered from the agent's own loop: a loop that is dead lets nobody in, and a watchdog sees it.
"""

from __future__ import annotations

import struct
from collections import Counter

import zmq

from distmon.core.errors import DistmonError
from distmon.wire.context import make_context
from distmon.wire.keys import Allowed, KeyPair
from distmon.wire.waiting import Waiting

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_DOMAIN = b"distmon"
_ADMITTED, _UNKNOWN, _BROKEN = b"200", b"300", b"500"
"""A client that is told 300 tries again by itself, so that a key added later works; after 400 it never would."""
_UNIX_PEER = "localhost:"
"""How ZeroMQ begins the address of a peer on a unix socket; one on the network has a numeric one."""
_ANSWERS_PER_TURN = 512
_FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "protocol",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "key",
    zmq.EVENT_ACCEPT_FAILED: "accept",
}
"""What ZeroMQ reports -> the reason to count it by: silent or half-open, clear or for another agent, unknown key, no room."""
_REPORTS_PER_TURN = 10_000
_MONITOR_MARK = 100_000
"""Reports that may wait. Beyond it ZeroMQ's own thread would wait for this one."""


class Gate:
    """Admits the holders of allowed keys, and nobody else. Owned by the thread that serves; closed by whoever made it."""

    def __init__(self, own: KeyPair, allowed: Allowed, context: zmq.Context[zmq.Socket[bytes]] | None = None) -> None:
        self.refused: Counter[str] = Counter()
        """Clients refused, by reason."""
        self.context = context or make_context()
        self._own_context = context is None
        self._own = own
        self._allowed = allowed
        self._answers = self.context.socket(zmq.REP)
        self._answers.setsockopt(zmq.LINGER, 0)
        try:
            self._answers.bind(_ENDPOINT)
        except zmq.ZMQError:
            self.close()
            raise DistmonError("this process has an authenticator of ZeroMQ already; one agent per context") from None

    def secure(self, router: zmq.Socket[bytes]) -> None:
        """What this socket binds from now on asks for keys. Raises DistmonError if ZeroMQ would let anyone in all the same."""
        router.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(self._own.secret))
        router.setsockopt(zmq.CURVE_SERVER, 1)
        router.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        # Without this a missing handler would mean "everybody"; with it and no domain, CURVE would ask nobody.
        router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        check_closed(router)
        if self._answers.closed:
            raise DistmonError("nobody would check the keys of viewers; start the agent again")

    def watch(self, router: zmq.Socket[bytes], waiting: Waiting) -> zmq.Socket[bytes]:
        """Has it wait for `answer` too; gives the reports of refusals at a socket, for `count`, to be closed with it.

        For those it does not wake: with many strangers that would be most of what an agent does.
        """
        address = f"inproc://distmon.refusals.{id(router):x}"
        router.monitor(address, sum(_FAILURES))
        reports = self.context.socket(zmq.PAIR)
        reports.setsockopt(zmq.LINGER, 0)
        reports.setsockopt(zmq.RCVHWM, _MONITOR_MARK)
        reports.connect(address)
        waiting.add(self._answers)
        return reports

    def answer(self) -> None:
        """Admits and refuses who waits, a bounded number at a time."""
        for _ in range(_ANSWERS_PER_TURN):
            try:
                request = self._answers.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._answers.send_multipart(self._reply(request))

    def count(self, reports: zmq.Socket[bytes]) -> None:
        """Counts who was refused at a socket."""
        for _ in range(_REPORTS_PER_TURN):
            try:
                report = reports.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            (event,) = struct.unpack_from("=H", report[0])
            self.refused[_FAILURES.get(event, "other")] += 1

    def admits(self, key: str) -> bool:
        """Whether the holder of this key is still let in."""
        return self._allowed.allows(key)

    def trouble(self) -> str:
        """Why nobody at all is let in, in one line; empty while the list of keys is good."""
        return self._allowed.trouble()

    def close(self) -> None:
        self._answers.close(linger=0)
        if self._own_context:
            self.context.destroy(linger=0)

    def _reply(self, request: list[bytes]) -> list[bytes]:
        """Version, request id, status code, status text, user id, metadata (RFC 27)."""
        number = request[1] if len(request) > 1 else b""
        if len(request) != 7 or request[0] != _VERSION or request[2] != _DOMAIN or request[5] != b"CURVE":
            return [_VERSION, number, _BROKEN, b"not a request of this agent", b"", b""]
        key = request[6].hex()
        if not self.admits(key):
            return [_VERSION, number, _UNKNOWN, b"key not allowed", b"", b""]
        return [_VERSION, number, _ADMITTED, b"", key.encode(), b""]


def check_closed(router: zmq.Socket[bytes]) -> None:
    """Raises DistmonError for a combination of settings with which ZeroMQ does not ask for an allowed key."""
    wrong = [
        name
        for name, good in (
            ("CURVE", router.getsockopt(zmq.MECHANISM) == zmq.CURVE),
            ("the server's role", router.getsockopt(zmq.CURVE_SERVER) == 1),
            ("the domain", router.getsockopt(zmq.ZAP_DOMAIN) == _DOMAIN),
            ("the domain's enforcement", router.getsockopt(zmq.ZAP_ENFORCE_DOMAIN) == 1),
        )
        if not good
    ]
    if wrong:
        raise DistmonError(
            f"this ZeroMQ did not take {' and '.join(wrong)}: the agent would be open to all; install another pyzmq"
        )


def user_of(frame: zmq.Frame) -> str | None:
    """The key of the client that a message came from; "" for a unix socket, None for a network client without one."""
    user = _property(frame, "User-Id")
    return user or ("" if _property(frame, "Peer-Address").startswith(_UNIX_PEER) else None)


def _property(frame: zmq.Frame, name: str) -> str:
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""
