"""ZeroMQ's context, refused where the library is known to be unsafe."""

from __future__ import annotations

import zmq

from distmon.core.errors import DistmonError

_OLDEST_SAFE_ZMQ = (4, 3, 3)


def make_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Raises DistmonError with a ZeroMQ that is known to be unsafe."""
    if zmq.zmq_version_info() < _OLDEST_SAFE_ZMQ:
        raise DistmonError(f"libzmq {zmq.zmq_version()} has known security holes; install pyzmq with libzmq 4.3.3 or later")
    return zmq.Context()
