"""How events travel: ZeroMQ sockets, framing, gap detection.

The agent binds a ROUTER (`publisher`), a viewer connects one ROUTER to all of them (`subscription`). The agent keeps the last
events of each of its streams in a bounded backlog and sends each viewer what follows its cursor, as far as its credit goes.
"""
