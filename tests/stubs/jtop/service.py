"""A stand-in of jetson-stats' service: a manager of Python's multiprocessing on a socket, with the queue, the dictionary and the
event that the real client asks for, and the public key of its package.

    PYTHON service.py SOCKET VERSION KEY     serves one reading, until it is ended; prints a line when it listens

It greets a client as the service does, with its version and its board, and answers none that has another key.
"""

import sys
import threading
import time
from multiprocessing.managers import SyncManager
from queue import Queue
from typing import Any

CORE = {"online": True, "user": 20.0, "nice": 0.0, "system": 1.0, "freq": {"cur": 1428000}}
EVERY_S = 0.05
READING: dict[str, Any] = {
    "cpu": {"total": {}, "cpu": [CORE, {"online": False}]},
    "gpu": {"gm20b": {"type": "integrated", "status": {"load": 71.0}, "freq": {"cur": 921600}}},
    "mem": {"RAM": {"tot": 4000000, "used": 2000000}, "SWAP": {"tot": 0, "used": 0}, "EMC": {"cur": 1600000, "val": 7}},
    "power": {"rail": {"POM_5V_GPU": {"power": 900, "online": True}}, "tot": {"name": "POM_5V_IN", "power": 4000}},
    "temperature": {"GPU": {"temp": 40.5, "online": True}},
    "engines": {"APE": {"APE": {"online": True, "cur": 25500}}},
    "fan": {},
    "processes": [],
    "uptime": 5.0,
}


class Service(SyncManager):
    pass


def main() -> None:
    address, version, key = sys.argv[1:]
    queue: Queue[Any] = Queue()
    event = threading.Event()
    Service.register("get_queue", callable=lambda: queue)
    Service.register("sync_data", callable=lambda: READING)
    Service.register("sync_event", callable=lambda: event)
    server = Service(address=address, authkey=key.encode()).get_server()
    threading.Thread(target=greet, args=(queue, version), daemon=True).start()
    threading.Thread(target=tick, args=(event,), daemon=True).start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    server.serve_forever()


def greet(queue: Queue[Any], version: str) -> None:
    """Clients put {"interval": s} into the queue to be greeted, and {} to say that they are still there."""
    board: dict[str, Any] = {"hardware": {}, "cpu": {}}
    greeting = {"init": {"version": version, "board": board, "interval": 1.0, "memory": "", "fan": {}, "jc": False}}
    while True:
        asked = queue.get()
        if "interval" in asked:
            queue.put(greeting)
        if "init" in asked:  # the greeting, which is the client's to take
            queue.put(asked)
            time.sleep(EVERY_S / 10)


def tick(event: threading.Event) -> None:
    """A new reading is there."""
    while True:
        event.set()
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
