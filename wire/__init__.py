"""How events travel: ZeroMQ sockets, framing, gap detection."""
