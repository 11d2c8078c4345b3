"""Every event goes through JSON and msgpack unchanged; what is no event is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core import codec
from distmon.core import events as ev
from distmon.core.synthetic import Script, session

ONE_OF_EACH = [
    *list({type(e): e for e in session(Script(ranks=2, seconds=3, gpus_per_node=1))}.values()),
    ev.GapFound(at=1.0, node="n", started=0.0, ended=1.0, lost_records=3),
    ev.PhaseUnseen(at=1.0, worker="w", rank=0, field="compute", reason="compiled"),
    ev.JobEnded(at=1.0, exit_code=137, reason="failed", failure=ev.Failure(rank=2, host="h", signal="SIGKILL", exit_code=137)),
    ev.StepsRecorded(at=1.0, node="n", worker="w", rank=0, generation=0, first_step=0, origin=0.0, start_ns=[], duration_ns=[]),
    ev.Ticked(at=2.5, stream="viewer", seq=9),
]


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda e: type(e).__name__)
def test_round_trips(event: ev.AnyEvent) -> None:
    assert codec.decode_json(codec.encode_json(event)) == event
    assert codec.decode_batch(codec.encode_batch([event, event])) == ([event, event], [])
    assert codec.join_batch([codec.encode_msgpack(event)])
    assert codec.decode_batch(codec.join_batch([codec.encode_msgpack(event)] * 3)) == ([event] * 3, [])


def test_unknown_kind_is_told_from_a_broken_event() -> None:
    with pytest.raises(codec.UnknownKind) as caught:
        codec.decode_json(b'{"kind":"hologram","t":8.5}')
    assert caught.value.kind == "hologram"
    with pytest.raises(codec.BadEvent) as broken:
        codec.decode_json(b'{"kind":"ticked"}')
    assert not isinstance(broken.value, codec.UnknownKind)


def test_a_later_version_may_add_fields() -> None:
    assert codec.decode_json(b'{"kind":"ticked","at":1.0,"phase_of_the_moon":3}') == ev.Ticked(at=1.0)


def test_one_bad_event_leaves_the_rest_of_a_frame() -> None:
    body = codec.join_batch([codec.encode_msgpack(ev.Ticked(at=1.0)), b"\x81\xa4kind\xa8hologram", b"\x2a"])
    events, bad = codec.decode_batch(body)
    assert events == [ev.Ticked(at=1.0)]
    assert [type(b) for b in bad] == [codec.UnknownKind, codec.BadEvent]


@pytest.mark.parametrize("percent", [-0.5, 1e7, float("inf"), float("nan")])
def test_percentages_that_cannot_be_are_no_event(percent: float) -> None:
    sample = ev.NodeSampled(at=1.0, node="n", interval_s=1.0, cpu_percent=percent)
    process = ev.ProcessReading(pid=1, rank=0, cpu_percent=percent, memory_bytes=1)
    for event in (sample, ev.NodeSampled(at=1.0, node="n", interval_s=1.0, processes=[process])):
        events, refused = codec.decode_batch(codec.join_batch([codec.encode_msgpack(event)]))
        assert (events, len(refused)) == ([], 1)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (codec.decode_json, codec.decode_batch):
        try:
            decode(data)
        except codec.BadEvent as refusal:
            assert str(refusal)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(codec.BadEvent):
        codec.decode_json(b'{"kind":' + b"[" * 5000 + b"]" * 5000 + b"}")
    with pytest.raises(codec.BadEvent):
        codec.decode_batch(b"\x91" * 5000)


def test_a_header_tells_its_format_though_it_is_this_versions_own() -> None:
    header = ev.SessionStarted(at=1.0, session_id="s", distmon_version="0")
    assert f'"format":[{ev.FORMAT_MAJOR},{ev.FORMAT_MINOR}]'.encode() in codec.encode_json(header)
