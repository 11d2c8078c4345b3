"""ZeroMQ sockets with every limit set; the library's defaults have none of them."""

from __future__ import annotations

import errno
import resource

import zmq

from distmon.core.errors import DistmonError
from distmon.wire.addresses import check_address, prepare_socket
from distmon.wire.frames import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES

_SEND_MARK = 512
"""Messages per peer; above any credit, so that ROUTER never refuses one."""
_RECEIVE_MARK = 64
_OLDEST_SAFE_ZMQ = (4, 3, 3)
_HEARTBEAT_MS = 3000
_DEAD_AFTER_MS = 9000
_HANDSHAKE_MS = 1500
_BACKLOG = 1024
_OTHER_FILES = 512


def make_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Raises DistmonError with a ZeroMQ that is known to be unsafe."""
    if zmq.zmq_version_info() < _OLDEST_SAFE_ZMQ:
        raise DistmonError(f"libzmq {zmq.zmq_version()} has known security holes; install pyzmq with libzmq 4.3.3 or later")
    return zmq.Context()


def bind_router(context: zmq.Context[zmq.Socket[bytes]], addresses: list[str]) -> tuple[zmq.Socket[bytes], list[str]]:
    """The agent's socket, and the addresses with the ports that `*` became. Raises DistmonError if one cannot be had."""
    router = context.socket(zmq.ROUTER)
    _set_limits(router, MAX_REQUEST_BYTES)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.BACKLOG, _BACKLOG)
    bound: list[str] = []
    try:
        for address in addresses:
            prepare_socket(check_address(address, binding=True))
            router.setsockopt(zmq.IPV6, _is_ipv6(address))
            _bind(router, address)
            bound.append(router.get_string(zmq.LAST_ENDPOINT))
    except DistmonError:
        router.close(linger=0)
        raise
    return router, bound


def make_room(connections: int) -> None:
    """Raises this process's limit of open files where it is too low. Raises DistmonError where that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise DistmonError(f"{connections} agents need {needed} open files and {hard} are allowed; raise the limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def open_viewer(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A viewer's socket, one for all agents: a thousand sockets would cost their poll a thousand look-ups each time."""
    viewer = context.socket(zmq.ROUTER)
    _set_limits(viewer, MAX_MESSAGE_BYTES)
    viewer.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # Requests queue for an agent that is away; a queue of one keeps them from piling up. (IMMEDIATE would drop them, but
    # also what has arrived from an agent that ends: its goodbye.)
    viewer.setsockopt(zmq.SNDHWM, 1)
    viewer.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
    return viewer


def connect_agent(viewer: zmq.Socket[bytes], address: str, routing_id: bytes, reconnect_ms: int) -> None:
    """Adds an agent, which need not be there yet, under a name for this socket. Raises UsageError for an address not allowed."""
    check_address(address, binding=False)
    viewer.setsockopt(zmq.CONNECT_ROUTING_ID, routing_id)
    viewer.setsockopt(zmq.RECONNECT_IVL, reconnect_ms)
    viewer.setsockopt(zmq.IPV6, _is_ipv6(address))
    viewer.connect(address)


def _set_limits(socket: zmq.Socket[bytes], max_message_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, _SEND_MARK)
    socket.setsockopt(zmq.RCVHWM, _RECEIVE_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _DEAD_AFTER_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, _DEAD_AFTER_MS)


def _is_ipv6(address: str) -> int:
    """Where it is on, ZeroMQ reports 127.0.0.1 under its IPv6 name."""
    return int(address.startswith("tcp://["))


def _bind(router: zmq.Socket[bytes], address: str) -> None:
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise DistmonError(f"{address} is taken by a running process; stop it or choose another --listen address") from None
        raise DistmonError(f"cannot listen on {address}: {error.strerror}; choose another --listen address") from None
