"""The extension's messages as Python objects: fields that check themselves, repr, many readers."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kproto.codec import decode_request, encode
from kproto.errors import EncodeError, OutOfRange
from kproto.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    RequestHeader,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ROW = {
    "topic": ["a", "a", "b"],
    "partition": [0, 1, 0],
    "leader": [5, 6, 70_000],
    "isr": [[5], [6, 5], []],
    "replicas": [[5, 6], [6, 5], [70_000]],
}


@pytest.mark.parametrize("request_type", [UpdateMetadataRequest, LeaderAndIsrRequest])
def test_numbers_of_any_size_are_read_as_they_were_written(request_type: Any) -> None:
    numbers = [-(2**31), -1, 0, 256, 257, 4095, 4096, 2**31 - 1]
    count = len(numbers)
    epochs = dict.fromkeys(("partition", "leader", "leader_epoch", "partition_epoch", "controller_epoch"), numbers)
    columns = {"topic": ["a"] * count, **epochs, "replicas": [numbers] * count, "isr": [[number] for number in numbers]}
    message = request_type.from_columns(columns)
    names = ["partition_index", "leader", "leader_epoch", "controller_epoch", message_epoch(request_type)]
    body = encode(message, message.version)
    for _ in range(2):  # an int that is shared is made by the first reading
        rows = decode_request(message.api_key, message.version, body).topic_states[0].partition_states
        assert [row.isr for row in rows] == [(number,) for number in numbers]
        assert {row.replicas for row in rows} == {tuple(numbers)}
        for name in names:
            assert [getattr(row, name) for row in rows] == numbers
    assert rows[4].leader is rows[4].leader_epoch
    assert rows[4].leader is rows[4].isr[0]


def message_epoch(request_type: Any) -> str:
    return "zk_version" if request_type is UpdateMetadataRequest else "partition_epoch"


def test_a_repr_names_the_fields_and_stays_short() -> None:
    row = UpdateMetadataPartitionState(partition_index=3, isr=[1, 2])
    assert repr(row) == (
        "UpdateMetadataPartitionState(topic_name='', partition_index=3, controller_epoch=0, leader=0, leader_epoch=0, "
        "isr=(1, 2), zk_version=0, replicas=(), offline_replicas=())"
    )
    rows = {"topic": ["t"] * 50_000, "partition": range(50_000)}
    text = repr(UpdateMetadataRequest.from_columns(rows, 8))
    assert "50000 in all" in text
    assert len(text) < 2000


WRONG_FIELDS = [
    (UpdateMetadataPartitionState, "leader", 2**31, OutOfRange),
    (UpdateMetadataPartitionState, "leader", "1", TypeError),
    (UpdateMetadataPartitionState, "leader", 1.0, TypeError),
    (UpdateMetadataPartitionState, "leader", None, TypeError),
    (UpdateMetadataPartitionState, "isr", [1, 2**31], OutOfRange),
    (UpdateMetadataPartitionState, "isr", [None], TypeError),
    (UpdateMetadataPartitionState, "isr", "12", TypeError),
    (UpdateMetadataPartitionState, "topic_name", None, TypeError),
    (UpdateMetadataPartitionState, "unknown_tagged_fields", [(1,)], TypeError),
    (UpdateMetadataPartitionState, "unknown_tagged_fields", [(2**31, b"")], OutOfRange),
    (LeaderAndIsrPartitionState, "leader_recovery_state", 128, OutOfRange),
    (LeaderAndIsrPartitionState, "is_new", 1, TypeError),
    (UpdateMetadataTopicState, "topic_id", b"short", OutOfRange),
    (UpdateMetadataTopicState, "topic_id", "text", TypeError),
    (UpdateMetadataTopicState, "partition_states", None, TypeError),
    (UpdateMetadataRequest, "broker_epoch", 2**63, OutOfRange),
    (UpdateMetadataRequest, "is_kraft_controller", "yes", TypeError),
    (UpdateMetadataBroker, "v0_host", 7, TypeError),
    (StopReplicaTopicV1, "partition_indexes", [-(2**31) - 1], OutOfRange),
    (RequestHeader, "correlation_id", -(2**31) - 1, OutOfRange),
]


@pytest.mark.parametrize(("cls", "field", "value", "error"), WRONG_FIELDS, ids=str)
def test_a_field_refuses_what_does_not_fit_when_set_and_when_made(
    cls: type[Any], field: str, value: object, error: type[Exception]
) -> None:
    made = cls()
    before = getattr(made, field)
    with pytest.raises(error, match=field):
        setattr(made, field, value)
    assert getattr(made, field) == before
    with pytest.raises(error, match=field):
        cls(**{field: value})


def test_nulls_stand_only_where_the_protocol_has_them() -> None:
    broker = UpdateMetadataBroker(id=1, rack=None)
    assert broker.rack is None
    broker.rack = "r"
    broker.rack = None
    header = RequestHeader(client_id=None)
    assert (header.client_id, header.client_id_or_empty) == (None, "")


def test_one_list_of_a_row_changes_without_the_others() -> None:
    row = (
        decode_request(6, 8, encode(UpdateMetadataRequest.from_columns(ROW, 8), 8)).topic_states[0].partition_states[1]
    )
    row.isr = range(300)
    row.offline_replicas = (9,)
    row.unknown_tagged_fields = [(3, b"xyz")]
    row.topic_name = "named"
    assert (len(row.isr), row.replicas, row.offline_replicas) == (300, (6, 5), (9,))
    row.topic_name = ""
    row.isr = ()
    assert (row.isr, row.replicas, row.unknown_tagged_fields) == ((), (6, 5), ((3, b"xyz"),))


def test_rows_outlive_their_message() -> None:
    rows = UpdateMetadataRequest.from_columns(ROW, 8).partition_states
    for _ in range(100):
        UpdateMetadataRequest.from_columns({"topic": ["z"] * 9, "partition": range(9), "isr": [[99] * 9] * 9}, 8)
    assert [(r.topic_name, r.isr) for r in rows] == [("a", (5,)), ("a", (6, 5)), ("b", ())]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            UpdateMetadataRequest(
                topic_states=[UpdateMetadataTopicState(partition_states=[LeaderAndIsrPartitionState()])]
            ),
            "topic_states[0].partition_states[0]: "
            "expected UpdateMetadataPartitionState, got LeaderAndIsrPartitionState",
        ),
        (UpdateMetadataRequest(topic_states=[{}]), "topic_states[0]: expected UpdateMetadataTopicState, got dict"),
        (
            UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(), UpdateMetadataBroker(endpoints=["a:1"])]),
            "live_brokers[1].endpoints[0]: expected UpdateMetadataEndpoint, got str",
        ),
        (LeaderAndIsrRequest(live_leaders=[None]), "live_leaders[0]: expected LeaderAndIsrLiveLeader, got NoneType"),
        (
            StopReplicaRequest(topic_states=[StopReplicaTopicState(partition_states=[7])]),
            "topic_states[0].partition_states[0]: expected StopReplicaPartitionState, got int",
        ),
        (
            LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(partition_errors=[()])]),
            "topics[0].partition_errors[0]: expected LeaderAndIsrPartitionError, got tuple",
        ),
    ],
)
def test_list_elements_of_another_type_are_named_when_encoding(message: Any, text: str) -> None:
    with pytest.raises(EncodeError) as e:
        encode(message, message.version)
    assert str(e.value) == text


def test_objects_that_are_no_whole_messages_are_refused_when_encoding() -> None:
    with pytest.raises(TypeError, match="expected a message of this codec"):
        encode(UpdateMetadataPartitionState(), 8)
    half_made = UpdateMetadataTopicState.__new__(UpdateMetadataTopicState)
    with pytest.raises(EncodeError, match=r"topic_states\[0\]\.topic_name: null"):
        encode(UpdateMetadataRequest(topic_states=[half_made]), 8)


def test_many_threads_read_one_message() -> None:
    body = encode(UpdateMetadataRequest.from_columns(ROW, 8), 8)
    message = decode_request(6, 8, body)
    start = threading.Barrier(8)

    def look(_: int) -> bool:
        start.wait(60)
        return all(
            encode(message, 8) == body
            and message.to_json(8)["controllerEpoch"] == 0
            and [r.isr for t in message.topic_states for r in t.partition_states] == [(5,), (6, 5), ()]
            for _ in range(200)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, range(8)))


def test_a_second_interpreter_is_refused_by_name() -> None:
    """Sub-interpreters share no Python objects; the extension's classes exist once a process."""
    inner = """
try:
    import kproto._codec
except ImportError as e:
    print("refused:", e, flush=True)
else:
    print("imported twice", flush=True)
"""
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    outer = f"import kproto._codec, {module} as m; m.run_string(m.create(), {inner!r})"
    run = subprocess.run([sys.executable, "-c", outer], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.startswith("refused: "), run.stdout + run.stderr
    assert "interpreter" in run.stdout
