"""The `distmon-agent` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from distmon.agent.config import AgentConfig, parse_arguments
from distmon.core.errors import DistmonError, told

if TYPE_CHECKING:
    from distmon.agent.journal import Journal

_GARBAGE_COLLECTED_AFTER = 50_000
"""New objects; nearly all go by reference count, as soon as their sample is sent."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the agent and gives its exit code: 0, 1 for a failure, 2 for wrong usage."""
    debug = "--debug" in (sys.argv if argv is None else argv)
    try:
        return _run(argv)
    except (DistmonError, OSError) as error:
        if debug:
            raise
        sys.stderr.write(f"distmon-agent: {told(error) if isinstance(error, OSError) else error}\n")
        return error.exit_code if isinstance(error, DistmonError) else 1


def _run(argv: Sequence[str] | None) -> int:
    try:
        config = parse_arguments(argv)
    except SystemExit:  # of the help
        _print("")
        raise
    except OSError as error:  # the help came out at once, as with PYTHONUNBUFFERED
        _drop_unwritten(error)
        return 0
    if not config.once:
        return _serve(config)
    _print(_sample(config))
    return 0


def _sample(config: AgentConfig) -> str:
    from distmon.agent.once import as_json, as_text, take_sample

    sample = take_sample()
    return (as_json(sample) if config.json else as_text(sample)) + "\n"


def _print(text: str) -> None:
    """All of it at once. A reader that has gone has seen enough; an output that is full raises OSError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _drop_unwritten(error)


def _drop_unwritten(error: OSError) -> None:
    # What could not be written would fail once more at exit, with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        raise error


def _serve(config: AgentConfig) -> int:
    from distmon.agent.locks import group_number, make_gate
    from distmon.agent.loop import Agent
    from distmon.wire.addresses import default_address

    for folder in config.rings:
        if not Path(folder).is_dir():
            raise DistmonError(f"there is no folder {folder} of rings; make it first (mkdir -m 700), or check --rings")
    parent = os.getppid() if config.stop_with_parent else None
    listen = config.listen or [default_address()]
    gate = make_gate(config, listen)
    group, journal = group_number(config.group), _open_journal(config)
    agent = Agent(listen, config.rings, config.rate_hz, config.steps_hz, gate=gate, group=group, journal=journal)

    def on_signal(number: int, frame: FrameType | None) -> None:
        agent.stop(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    spare_collector()
    try:
        _tell_ready(config, agent.publisher.addresses)
        agent.run(parent)
    finally:
        agent.close()
        if gate is not None:
            gate.close()
        if journal is not None:
            journal.close()
    return 0


def _open_journal(config: AgentConfig) -> Journal | None:
    from distmon.agent.identity import new_boot
    from distmon.agent.journal import Journal
    from distmon.probe.ring import boot_id

    if not config.journal:
        return None
    limit_bytes = int(config.journal_mb * 1e6)
    return Journal(Path(config.journal), new_boot(), boot_id(), limit_bytes, config.journal_hours * 3600)


def spare_collector() -> None:
    """What the start made lives as long as the agent; to look through it again and again was a tenth of an agent's CPU time."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_COLLECTED_AFTER)


def _tell_ready(config: AgentConfig, addresses: list[str]) -> None:
    if config.ready_fd is None:
        return
    try:
        os.write(config.ready_fd, "".join(f"{address}\n" for address in addresses).encode())
        os.close(config.ready_fd)
    except OSError as error:
        raise DistmonError(f"cannot say ready on descriptor {config.ready_fd}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
