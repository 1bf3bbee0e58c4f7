"""The first fields of a control request, and the place of its broker epoch, are checked by bytes laid out by hand."""

import pytest
from wire import i32, i64

from kproto import codec
from kproto.prefix import prefix_of

CONTROLLER_ID, CONTROLLER_EPOCH, BROKER_EPOCH = i32(7), i32(11), 1 << 40 | 13
# The API: its newest version, its first version with isKRaftController, its first version with a broker epoch.
VERSIONS = {4: (7, 7, 2), 5: (4, 4, 1), 6: (8, 8, 5)}
LAYOUTS = [
    (api_key, version, version >= kraft, version >= epoch)
    for api_key, (newest, kraft, epoch) in VERSIONS.items()
    for version in range(newest + 1)
]


@pytest.mark.parametrize(("api_key", "version", "kraft", "epoch"), LAYOUTS)
def test_a_body_is_cut_where_brokers_differ(api_key: int, version: int, kraft: bool, epoch: bool) -> None:
    first = CONTROLLER_ID + (b"\1" if kraft else b"") + CONTROLLER_EPOCH
    body = first + (i64(BROKER_EPOCH) if epoch else b"") + b"the rest"
    prefix = prefix_of(api_key, version)
    assert prefix is not None
    assert prefix.size == len(body) - len(b"the rest")
    for data in (body, memoryview(body)):
        assert prefix.cut(data) == (first, BROKER_EPOCH if epoch else None, b"the rest")


@pytest.mark.parametrize(("api_key", "version", "kraft", "epoch"), LAYOUTS)
def test_the_codec_writes_the_same_first_fields(api_key: int, version: int, kraft: bool, epoch: bool) -> None:
    message = codec.message_class(api_key, "request")(controller_id=7, controller_epoch=11)
    message.is_kraft_controller = kraft
    if epoch:
        message.broker_epoch = BROKER_EPOCH
    prefix = prefix_of(api_key, version)
    assert prefix is not None
    first, broker_epoch, rest = prefix.cut(codec.encode(message, version))
    assert first == CONTROLLER_ID + (b"\1" if kraft else b"") + CONTROLLER_EPOCH
    assert broker_epoch == (BROKER_EPOCH if epoch else None)
    message.controller_id, message.controller_epoch = 8, 12
    assert prefix.cut(codec.encode(message, version))[2] == rest


def test_other_apis_and_versions_have_no_prefix() -> None:
    assert prefix_of(3, 0) is None
    assert [prefix_of(api_key, newest + 1) for api_key, (newest, _, _) in VERSIONS.items()] == [None] * 3
