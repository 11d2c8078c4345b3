"""ZeroMQ sockets with every limit set; the library's defaults have none of them."""

from __future__ import annotations

import errno
import resource
from typing import NamedTuple

import zmq

from distmon.core.errors import DistmonError
from distmon.wire.addresses import check_address, give_to_group, prepare_socket
from distmon.wire.frames import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from distmon.wire.gate import Gate
from distmon.wire.keys import KeyPair

_SEND_MARK = 512
"""Messages per peer; above any credit, so that ROUTER never refuses one."""
_RECEIVE_MARK = 64
_VIEWER_RECEIVE_MARK = 512
"""Sixteen windows of credit. A connection that is lost and made again while its queue is full aborts the process (libzmq 4.3.5,
`_input_stopped`): an agent that keeps to its credit never fills it, however late this side reads."""
_DEAD_AFTER_MS = 9000
"""A connection over which nothing that was sent is acknowledged, or that does not answer the kernel's probes, is made again."""
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 3, 2, 3
_HEARTBEAT_MS = 10_000
_SILENT_AFTER_MS = 30_000
"""ZeroMQ's own, from the viewer alone, for ways that end at a proxy: it looks through the timers of all connections for each."""
_HANDSHAKE_MS = 1500
_CONNECT_MS = 3000
"""An attempt made while a network is cut is given up: the kernel would come back to it only after up to a minute."""
_BACKLOG = 1024
_OTHER_FILES = 512


def bind_router(
    context: zmq.Context[zmq.Socket[bytes]], addresses: list[str], gate: Gate | None = None, group: int | None = None
) -> tuple[zmq.Socket[bytes], list[str]]:
    """The agent's socket, and the addresses with the ports that `*` became. Raises DistmonError if one cannot be had.

    TCP needs a `gate`. Users of `group` may use unix sockets, where it is given.
    """
    for address in addresses:
        check_address(address, binding=True, keyed=gate is not None)
    router = context.socket(zmq.ROUTER)
    _set_limits(router, MAX_REQUEST_BYTES)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.BACKLOG, _BACKLOG)
    bound: dict[str, str] = {}
    try:
        # The settings of the moment are what an address keeps: unix sockets first, while no key is asked for.
        for address in sorted(addresses, key=_needs_keys):
            prepare_socket(address, group)
            if gate is not None and _needs_keys(address):
                gate.secure(router)
            router.setsockopt(zmq.IPV6, _is_ipv6(address))
            _bind(router, address)
            give_to_group(address, group)
            bound[address] = router.get_string(zmq.LAST_ENDPOINT)
    except DistmonError:
        router.close(linger=0)
        raise
    return router, [bound[address] for address in addresses]


def make_room(connections: int) -> None:
    """Raises this process's limit of open files where it is too low. Raises DistmonError where that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise DistmonError(f"{connections} agents need {needed} open files and {hard} are allowed; raise the limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def make_room_for_strangers(connections: int) -> None:
    """Room for clients that are still to be refused, as far as this process may; without any, ZeroMQ's thread would spin."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(hard, connections + _OTHER_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_viewer(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A viewer's socket, one for all agents: a thousand sockets would cost their poll a thousand look-ups each time."""
    viewer = context.socket(zmq.ROUTER)
    _set_limits(viewer, MAX_MESSAGE_BYTES)
    viewer.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    viewer.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENT_AFTER_MS)
    viewer.setsockopt(zmq.HEARTBEAT_TTL, _SILENT_AFTER_MS)
    viewer.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # Requests queue for an agent that is away; a queue of one keeps them from piling up. (IMMEDIATE would drop them, but
    # also what has arrived from an agent that ends: its goodbye.)
    viewer.setsockopt(zmq.SNDHWM, 1)
    viewer.setsockopt(zmq.RCVHWM, _VIEWER_RECEIVE_MARK)
    viewer.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
    viewer.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
    return viewer


class AgentLock(NamedTuple):
    """What a viewer needs for an agent that asks for keys."""

    own: KeyPair
    agent_key: str


def connect_agent(
    viewer: zmq.Socket[bytes], address: str, routing_id: bytes, reconnect_ms: int, lock: AgentLock | None = None
) -> None:
    """Adds an agent, which need not be there yet, under a name for this socket. Raises UsageError for an address not allowed."""
    check_address(address, binding=False, keyed=lock is not None)
    viewer.setsockopt(zmq.CONNECT_ROUTING_ID, routing_id)
    viewer.setsockopt(zmq.RECONNECT_IVL, reconnect_ms)
    viewer.setsockopt(zmq.IPV6, _is_ipv6(address))
    if lock is not None and _needs_keys(address):
        viewer.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(lock.agent_key))
        viewer.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(lock.own.public))
        viewer.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(lock.own.secret))
    viewer.connect(address)
    # Back to no keys: the next address may be a unix socket.
    viewer.setsockopt(zmq.CURVE_SERVER, 0)


def _needs_keys(address: str) -> bool:
    return not address.startswith("ipc://")


def _set_limits(socket: zmq.Socket[bytes], max_message_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, _SEND_MARK)
    socket.setsockopt(zmq.RCVHWM, _RECEIVE_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.TCP_MAXRT, _DEAD_AFTER_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _PROBE_AFTER_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, _PROBE_EVERY_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, _PROBES)


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
