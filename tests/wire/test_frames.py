"""The decoders: whatever comes in, a message or one counted refusal comes out."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.codec import encode_batch, encode_msgpack, join_batch
from distmon.core.events import AnyEvent, NodeSampled, Ticked
from distmon.wire.frames import (
    MAX_BODIES,
    MAX_HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    WIRE_VERSION,
    BadFrame,
    Header,
    Request,
    decode_body,
    decode_headers,
    decode_request,
    encode_header,
    encode_request,
)

CASE = Path(__file__).parents[1] / "data" / "cases" / "LE-13"
HEADER = Header(v=WIRE_VERSION, node="n", boot="b", stream="n/b/node", seq=7, count=1)
BODY = encode_batch([Ticked(at=1.0)])


def refusal(frames: list[bytes]) -> str:
    with pytest.raises(BadFrame) as caught:
        decode_body(decode_headers(frames)[0], frames[1])
    return caught.value.reason


def test_a_message_comes_back_as_it_was() -> None:
    header = decode_headers([encode_header(HEADER), BODY])[0]
    assert header == HEADER
    assert decode_body(header, BODY) == ([Ticked(at=1.0)], [])


def test_a_request_comes_back_as_it_was() -> None:
    request = Request(v=WIRE_VERSION, session="s", cursors={"n/b/node": 3}, received=4, window=5)
    assert decode_request([encode_request(request)]) == request


def test_events_encoded_one_by_one_make_the_same_body() -> None:
    events: list[AnyEvent] = [Ticked(at=1.0), NodeSampled(at=2.0, node="n", interval_s=1.0)]
    header = msgspec.structs.replace(HEADER, count=2)
    assert decode_body(header, join_batch([encode_msgpack(event) for event in events])) == (events, [])


@pytest.mark.parametrize("count", [0, 1, MAX_BODIES + 2])
def test_the_number_of_frames(count: int) -> None:
    assert refusal([encode_header(HEADER)] * count) == "frames"


def test_a_message_of_several_streams_comes_back_as_it_was() -> None:
    headers = [msgspec.structs.replace(HEADER, stream=f"n/b/{name}") for name in ("node", "ranks")]
    assert decode_headers([encode_header(*headers), BODY, BODY]) == headers
    assert refusal([encode_header(*headers), BODY, BODY, BODY]) == "frames"
    assert refusal([encode_header(HEADER), BODY, BODY]) == "header"
    assert refusal([encode_header(*headers), BODY]) == "header"
    late = msgspec.structs.replace(HEADER, v=WIRE_VERSION + 1)
    assert refusal([encode_header(HEADER, late), BODY, BODY]) == "version"
    assert refusal([encode_header(*headers), BODY, bytes(MAX_MESSAGE_BYTES)]) == "size"


def test_another_version_is_told_apart_from_nonsense() -> None:
    future = msgspec.msgpack.encode({"v": WIRE_VERSION + 1, "anything": "else"})
    with pytest.raises(BadFrame, match=f"version: {WIRE_VERSION + 1}, this side speaks {WIRE_VERSION}"):
        decode_headers([future, BODY])[0]
    with pytest.raises(BadFrame, match="version"):
        decode_request([future])


def test_sizes() -> None:
    assert refusal([b"x" * (MAX_HEADER_BYTES + 1), BODY]) == "size"
    assert refusal([encode_header(HEADER), bytes(MAX_MESSAGE_BYTES + 1)]) == "size"
    with pytest.raises(BadFrame, match="size"):
        decode_request([bytes(MAX_REQUEST_BYTES + 1)])


def test_a_count_that_is_not_the_body_s() -> None:
    assert refusal([encode_header(msgspec.structs.replace(HEADER, count=2)), BODY]) == "count"


@pytest.mark.parametrize("field", ["node", "boot", "stream", "seq", "count"])
def test_a_header_without_one_of_its_fields(field: str) -> None:
    fields = msgspec.to_builtins(HEADER)
    del fields[field]
    assert refusal([msgspec.msgpack.encode(fields), BODY]) == "header"


@pytest.mark.parametrize("name", sorted(path.name for path in CASE.iterdir() if path.name != "expected.json"))
def test_le_13_payloads_are_refused_in_every_place(name: str) -> None:
    payload = (CASE / name).read_bytes()
    assert refusal([payload, BODY]) in ("header", "size")
    assert refusal([encode_header(HEADER), payload]) in ("body", "count")
    with pytest.raises(BadFrame, match="request"):
        decode_request([payload])


@pytest.mark.parametrize("name", ["future_version", "missing_fields", "wrong_types", "list", "scalar"])
def test_le_13_contents_in_this_format_are_refused(name: str) -> None:
    content = msgspec.json.decode((CASE / f"{name}.json").read_bytes())
    payload = msgspec.msgpack.encode(content)
    assert refusal([payload, BODY]) == ("version" if name == "future_version" else "header")


def test_le_13_deep_nesting_of_this_format() -> None:
    deep = b"\x91" * 100_000
    assert refusal([b"\x82\xa1v" + deep[:900], BODY]) == "header"
    assert refusal([encode_header(HEADER), deep]) == "body"


def test_le_13_a_pickle_is_never_loaded() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("a pickle was loaded",))

    assert refusal([pickle.dumps(Bomb()), BODY]) == "header"
    assert refusal([encode_header(HEADER), pickle.dumps(Bomb())]) == "body"


_junk = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
        max_leaves=12,
    ).map(msgspec.msgpack.encode),
    st.fixed_dictionaries(
        {"v": st.just(WIRE_VERSION)},
        optional={
            "node": st.text(max_size=400) | st.integers(-9, 9),
            "boot": st.text(max_size=4),
            "stream": st.text(max_size=4),
            "seq": st.integers(-2, (1 << 63) - 1),
            "count": st.integers(-2, 3),
            "session": st.text(max_size=4),
            "cursors": st.dictionaries(st.text(max_size=3), st.integers(-1, 9), max_size=80),
            "window": st.integers(-1, 1000),
        },
    ).map(msgspec.msgpack.encode),
)


@given(st.lists(_junk, max_size=4))
def test_anything_gives_a_message_or_a_refusal(frames: list[bytes]) -> None:
    try:
        header = decode_headers(frames)[0]
        events, bad = decode_body(header, frames[1])
    except BadFrame as refused:
        assert refused.reason in ("frames", "size", "version", "header", "body", "count")
    else:
        assert len(events) + len(bad) == header.count
        assert header.seq >= 1


@given(_junk)
def test_any_request_is_within_bounds_or_refused(payload: bytes) -> None:
    try:
        request = decode_request([payload])
    except BadFrame as refused:
        assert refused.reason in ("version", "request")
    else:
        assert 1 <= request.window <= 256
        assert len(request.cursors) <= 64


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_a_good_message_with_bytes_changed_or_added(extra: bytes, position: int, value: int) -> None:
    whole = bytearray(encode_header(HEADER))
    whole[position % len(whole)] = value
    try:
        decode_headers([bytes(whole) + extra, BODY])[0]
    except BadFrame as refused:
        assert refused.reason in ("version", "header")


def test_a_later_minor_version_of_the_other_side_is_understood() -> None:
    """What it adds is ignored, and what this side adds may be missing."""
    header = {"v": WIRE_VERSION, "node": "n", "boot": "b", "stream": "n/b/s", "seq": 1, "count": 0, "of_later": [1, {"a": 2}]}
    assert decode_headers([msgspec.msgpack.encode(header), b""])[0].stream == "n/b/s"
    request = {"v": WIRE_VERSION, "session": "s", "of_later": True}
    found = decode_request([msgspec.msgpack.encode(request)])
    assert (found.stored, found.history_s, found.sent_ns) == ({}, None, None)
