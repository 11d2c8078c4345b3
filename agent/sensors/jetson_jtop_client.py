"""Runs under the Python that jetson-stats is installed for, as a child of the agent: a JSON line for each reading of jtop.

Standard library and that package only, Python 3.6 and later. jetson-stats is under the AGPL: it is used only where the user has
installed it, and by this process alone. Its socket speaks pickle, so that whoever answers there can run code in this process.
"""

import json
import os
import sys
from typing import Any

PARTS = ("cpu", "gpu", "memory", "power", "temperature", "engine")


def reading(jetson: Any) -> Any:
    """The client's dictionaries, of those parts that this board has."""
    found = {part: getattr(jetson, part, None) for part in PARTS}
    mode = getattr(jetson, "nvpmodel", None)
    found["nvpmodel"] = None if mode is None else str(mode)
    return found


def plain(value: Any) -> Any:
    """Some parts are the package's own classes, which read like dictionaries. Anything else comes as text, taken for missing."""
    return dict(value.items()) if hasattr(value, "items") else str(value)


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message, default=plain) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Until the service stops answering; why it did is the last line. Exits with 1."""
    try:
        from jtop import jtop  # type: ignore[import-not-found]

        with jtop(float(sys.argv[1])) as jetson:
            while jetson.ok():
                say(reading(jetson))
        say({"error": "the jtop service stopped answering"})
    except BrokenPipeError:
        # The agent is gone; Python's own flush at exit would complain about the same pipe.
        os._exit(0)
    except Exception as error:  # whatever the package raises is the reason that the agent has to tell
        say({"error": str(error) or type(error).__name__})
    sys.exit(1)


if __name__ == "__main__":
    # The folder of this file holds modules with everyday names, which the package must not find.
    del sys.path[0]
    main()
