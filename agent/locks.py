"""Who may connect to this agent, as its settings say."""

from __future__ import annotations

import grp
import sys
from pathlib import Path

from distmon.agent.config import AgentConfig
from distmon.core.errors import UsageError
from distmon.wire.gate import Gate
from distmon.wire.keys import FileList, FixedList, decode_agent_keys, has_own_key, keys_folder, load_own

_LONGEST_LINE = 1 << 20


def make_gate(config: AgentConfig, listen: list[str]) -> Gate | None:
    """The gate for TCP; None where nothing listens on the network, or there are no keys, and then TCP is refused.

    Raises DistmonError for keys that are not to be trusted.
    """
    if config.keys_from_stdin:
        keys = decode_agent_keys(sys.stdin.buffer.readline(_LONGEST_LINE))
        return Gate(keys.own, FixedList(keys.viewers))
    folder = Path(config.keys) if config.keys else keys_folder()
    if all(address.startswith("ipc://") for address in listen) or not (config.keys or has_own_key(folder)):
        return None
    return Gate(load_own(folder), FileList(folder))


def group_number(name: str) -> int | None:
    """Raises UsageError for a group that this machine does not have."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise UsageError(f"this machine has no group {name!r}; choose another --group") from None
