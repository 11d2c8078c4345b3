"""How events travel: ZeroMQ sockets, framing, gap detection.

The agent binds a ROUTER (`publisher`), a viewer connects a DEALER to each agent (`subscription`). The agent keeps the last
events of each of its streams in a bounded backlog and sends each viewer what follows its cursor, as far as its credit goes.
"""
