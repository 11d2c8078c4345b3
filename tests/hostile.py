"""A session in which every text holds what a terminal would obey, markup, and characters that turn the direction of writing.

Besides a whole session it has one event of each kind, made from its type: a field that is added later is there by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from distmon.core import events as ev
from distmon.core.codec import decode_json
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session

BAD = "\x1b[2Jevil[red]\x1b]0;t\x07\x9b31m\x1bPq\x1b\\\u202e\r\n[/nope]<b>\u2028x\u200f"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What must not stand in a text on a terminal, where lines end in a line feed."""
SCRIPT = Script(ranks=4, nodes=2, seconds=60, slow_rank=1, delay_s=0.03, gpus_per_node=2, epochs=20)
_AS_THE_SESSION = {"generation": 0, "world_size": 4, "np": 4}
_LAST = (ev.WorkerExited, ev.JobEnded, ev.SessionEnded)
_NOT_BY_TYPE = (ev.SessionStarted, ev.SessionEnded, ev.NodeStepsRecorded, ev.NodeStepsSummed)


def hostile_session() -> list[AnyEvent]:
    """Its last events are those of the session's end."""
    whole = list(session(SCRIPT))
    plain = [msgspec.to_builtins(event) for event in whole if not isinstance(event, (ev.NodeStepsRecorded, *_LAST))]
    end = [msgspec.to_builtins(event) for event in whole if isinstance(event, _LAST)]
    made = [_hostile(event) for event in [*plain, *_one_of_each(SCRIPT.start + SCRIPT.seconds), *end]]
    return sorted(made, key=lambda event: event.at)


def _one_of_each(at: float) -> Iterator[dict[str, Any]]:
    for kind in AnyEvent.__args__:
        if kind not in _NOT_BY_TYPE:
            yield _example(inspect.type_info(kind), at)


def _example(wanted: inspect.Type, at: float) -> Any:
    """A value of a type, in builtins."""
    if isinstance(wanted, inspect.UnionType):
        return _example(next(one for one in wanted.types if not isinstance(one, inspect.NoneType)), at)
    if isinstance(wanted, inspect.StructType):
        fields = {field.encode_name: _AS_THE_SESSION.get(field.name, _example(field.type, at)) for field in wanted.fields}
        return {**fields, wanted.tag_field: wanted.tag} if wanted.tag_field else fields
    if isinstance(wanted, inspect.ListType):
        return [_example(wanted.item_type, at)]
    if isinstance(wanted, inspect.DictType):
        return {_example(wanted.key_type, at): _example(wanted.value_type, at)}
    if isinstance(wanted, inspect.TupleType):
        return [_example(item, at) for item in wanted.item_types]
    if isinstance(wanted, inspect.LiteralType):
        return wanted.values[0]
    if isinstance(wanted, inspect.FloatType):
        return at if wanted.le == 1e11 and wanted.ge == 0 else 1.0
    return {inspect.StrType: "word", inspect.BoolType: True, inspect.IntType: 1}[type(wanted)]


_TYPES = {kind.__struct_config__.tag: inspect.type_info(kind) for kind in AnyEvent.__args__}


def _hostile(event: dict[str, Any]) -> AnyEvent:
    spoiled = _spoiled(event, _TYPES[event["kind"]])
    return decode_json(msgspec.json.encode({**spoiled, "format": event["format"]} if "format" in event else spoiled))


def _spoiled(value: Any, wanted: inspect.Type) -> Any:
    """The value with BAD after each of its texts."""
    if isinstance(wanted, inspect.UnionType):
        return next((new for one in wanted.types if (new := _spoiled(value, one)) != value), value)
    if isinstance(wanted, inspect.StrType) and isinstance(value, str):
        return value + BAD
    if isinstance(wanted, inspect.ListType) and isinstance(value, (list, tuple)):
        return [_spoiled(item, wanted.item_type) for item in value]
    if isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        return {_spoiled(name, wanted.key_type): _spoiled(item, wanted.value_type) for name, item in value.items()}
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        types = {field.encode_name: field.type for field in wanted.fields}
        return {name: _spoiled(item, types[name]) if name in types else item for name, item in value.items()}
    return value
