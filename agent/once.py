"""`distmon-agent --once`: one sample on stdout."""

from __future__ import annotations

import time

import msgspec

from distmon.agent.identity import node_name
from distmon.agent.sampler import Sampler
from distmon.core.events import NodeSampled
from distmon.wire.clock import SteadyClock

_INTERVAL_S = 0.5
_START_WITHIN_S = 10.0
"""A GPU's driver that nothing holds awake takes seconds, and so does a Jetson's program."""


_NOT_HERE = {
    "engines": "only Jetson boards tell of them",
    "power_mode": "only Jetson boards have one",
    "processes": "one sample follows no job",
}
"""Why these are empty where no sensor had to say so."""


def take_sample() -> NodeSampled:
    """One sample whose rates are over a short real interval; what is absent has its reason."""
    sampler = Sampler(node_name())
    sampler.prime()
    sampler.settle(_START_WITHIN_S, best=True)
    time.sleep(_INTERVAL_S)
    sample = sampler.sample(SteadyClock().now())
    reasons = {name: reason for name, reason in _NOT_HERE.items() if not getattr(sample, name)}
    return msgspec.structs.replace(sample, unavailable=reasons | sample.unavailable)


def as_json(sample: NodeSampled) -> str:
    """Every field, also those without a value, which are null with their reason under `unavailable`."""
    fields = _plain(sample)
    for name in ("stream", "seq"):
        del fields[name]
    fields["at_unix_s"] = fields.pop("at")
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def as_text(sample: NodeSampled) -> str:
    """One line a field, for people."""
    lines: list[str] = []
    for name, value in _plain(sample).items():
        if name in ("stream", "seq", "unavailable", "age_s"):
            continue
        reason = sample.unavailable.get(name)
        lines.append(f"{name:22} {reason if reason and not value else msgspec.json.encode(value).decode()}")
    return "\n".join(lines)


def _plain(value: object) -> dict[str, object]:
    """A Struct with all its fields; `to_builtins` would leave out those at their default."""
    return {name: _plain_value(getattr(value, name)) for name in getattr(value, "__struct_fields__", ())}


def _plain_value(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _plain(value)
    return [_plain_value(item) for item in value] if isinstance(value, list) else value
