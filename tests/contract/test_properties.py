"""Properties of both codecs over random messages, whole and damaged.

Round trip for each; and the two, which share no code, hold the same values, write the same bytes and give the same
verdict on any bytes at all.
"""

import copy
import pickle
from typing import Any

import pytest
from answers import answer, decode, difference, from_json, json_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FLEXIBLE_FROM, VERSIONS, by_hand, json_forms, mutations, request_headers, tagged_sections

from kproto.api import ApiKey
from kproto.codec import Codec

EACH = pytest.mark.parametrize(
    ("api", "version", "kind"), [pytest.param(*v, id=f"{ApiKey(v[0]).info.name}-v{v[1]}-{v[2]}") for v in VERSIONS]
)

FEWER = settings(max_examples=max(2, settings.default.max_examples // 3))
"""For what runs once for each version: building a nested message costs Hypothesis more than the codecs."""


@EACH
@FEWER
@given(data=st.data())
def test_round_trip(both: tuple[Codec, Codec], api: int, version: int, kind: str, data: st.DataObject) -> None:
    """Through both codecs; a writer of twenty lines that knows only the protocol's table is the third opinion."""
    form = data.draw(json_forms(api, version, kind))
    by_table = by_hand(api, version, kind, form)
    for codec in both:
        message = from_json(codec, api, kind, form, version)
        assert codec.encode(message, version) == by_table
        read = decode(codec, api, version, kind, by_table)
        assert read == (message, len(by_table))
        assert json_equal(read[0].to_json(version), form)
        assert codec.encode(read[0], version) == by_table
        assert pickle.loads(pickle.dumps(read[0])) == message
        assert copy.deepcopy(read[0]) == message


@EACH
@FEWER
@given(data=st.data())
def test_both_codecs_agree(both: tuple[Codec, Codec], api: int, version: int, kind: str, data: st.DataObject) -> None:
    """On a message with unknown tags, and on the same bytes damaged."""
    form = data.draw(json_forms(api, version, kind))
    fast, plain = (from_json(codec, api, kind, form, version) for codec in both)
    if version >= FLEXIBLE_FROM[api]:
        tags = data.draw(tagged_sections())
        fast.unknown_tagged_fields = plain.unknown_tagged_fields = tags
    whole = both[0].encode(fast, version)
    assert both[1].encode(plain, version) == whole
    for strict in (False, True):
        damaged = data.draw(mutations(whole))
        one, other = (answer(codec, api, version, kind, damaged, strict=strict) for codec in both)
        assert not difference(one, other), f"extension against reference, strict={strict}, {damaged.hex()}"


@pytest.mark.parametrize("version", [0, 1, 2])
@given(data=st.data())
def test_both_codecs_agree_on_request_headers(both: tuple[Codec, Codec], version: int, data: st.DataObject) -> None:
    form = data.draw(request_headers(version))
    fast, plain = (codec.RequestHeader.from_json(form, version) for codec in both)
    whole = both[0].encode_request_header(fast, version)
    assert both[1].encode_request_header(plain, version) == whole
    assert json_equal(both[0].decode_request_header(whole, version).to_json(version), form)
    damaged = data.draw(mutations(whole))
    for strict in (False, True):
        one, other = (answer(codec, -1, version, "request_header", damaged, strict=strict) for codec in both)
        assert not difference(one, other), f"strict={strict}, {damaged.hex()}"


@pytest.mark.parametrize("kind", ["request", "response"])
@given(data=st.data())
def test_any_bytes_at_all(both: tuple[Codec, Codec], kind: str, data: st.DataObject) -> None:
    api = data.draw(st.sampled_from([4, 5, 6]))
    version = data.draw(st.sampled_from([v for a, v, _ in VERSIONS if a == api]))
    noise = data.draw(st.binary(max_size=64))
    one, other = (answer(codec, api, version, kind, noise) for codec in both)
    assert not difference(one, other)


@given(data=st.data())
def test_a_header_and_its_body_are_read_one_after_the_other(codec: Codec, data: st.DataObject) -> None:
    """``_from`` says where the header ends, which is where the body begins."""
    api, version, _ = data.draw(st.sampled_from([v for v in VERSIONS if v[2] == "request"]))
    header: Any = codec.RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=data.draw(st.integers(-5, 5)), client_id="c"
    )
    body = codec.message_class(api, "request").from_json(data.draw(json_forms(api, version, "request")), version)
    payload = codec.encode_request_header(header) + codec.encode(body, version)
    read, at = codec.decode_request_header_from(payload)
    assert read == header
    assert codec.decode_request_from(api, version, memoryview(payload)[at:]) == (body, len(payload) - at)
