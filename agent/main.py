"""The `distmon-agent` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from distmon.agent.config import AgentConfig, parse_arguments
from distmon.core.errors import DistmonError

_GARBAGE_COLLECTED_AFTER = 50_000
"""New objects; nearly all go by reference count, as soon as their sample is sent."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the agent and gives its exit code: 0, 1 for a failure, 2 for wrong usage."""
    debug = "--debug" in (sys.argv if argv is None else argv)
    try:
        config = parse_arguments(argv)
        return _print_sample(config) if config.once else _serve(config)
    except DistmonError as error:
        if debug:
            raise
        sys.stderr.write(f"distmon-agent: {error}\n")
        return error.exit_code


def _print_sample(config: AgentConfig) -> int:
    from distmon.agent.once import as_json, as_text, take_sample

    sample = take_sample()
    sys.stdout.write((as_json(sample) if config.json else as_text(sample)) + "\n")
    return 0


def _serve(config: AgentConfig) -> int:
    from distmon.agent.loop import Agent
    from distmon.wire.addresses import default_address

    parent = os.getppid() if config.stop_with_parent else None
    agent = Agent(config.listen or [default_address()], config.rings, config.rate_hz, config.steps_hz)

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
    return 0


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
