"""Producers and consumers of librdkafka meet in a rehearsal what they would meet in production."""

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import crc32c
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Assignment
from hypothesis import given
from hypothesis import strategies as st

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, Interception, RequestContext
from channel.broker.records import Batch, RecordConfig, RecordLog, RecordsRefused, RecordStore, read_batch
from channel.rehearsal.scripted_controller import ScriptedController
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
WAIT_S = 30


class Rehearsal:
    """Three brokers that store records, a controller, a producer and consumers."""

    def __init__(self, cluster: EmbeddedCluster, controller: ScriptedController) -> None:
        self.cluster, self.controller = cluster, controller
        self.client = {
            "bootstrap.servers": ",".join(f"{member.host}:{member.port}" for member in cluster),
            "error_cb": lambda _: None,
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 500,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        self._ends = contextlib.ExitStack()

    def topic(self, assignment: list[int]) -> None:
        self.controller.create_topic("orders", assignment=[assignment])
        self.controller.wait_all()

    def produce(self, *values: bytes, **settings: Any) -> list[KafkaError | None]:
        """Produce values, one batch; return the result of each."""
        producer = Producer({**self.client, "acks": "all", "retries": 0, **settings})
        results: list[KafkaError | None] = []
        for value in values:
            producer.produce("orders", value, partition=0, on_delivery=lambda error, _: results.append(error))
        assert producer.flush(WAIT_S) == 0
        return results

    def consumer(self, offset: int = 0, **settings: Any) -> Consumer:
        consumer = Consumer({**self.client, "group.id": "none", "enable.auto.commit": False, **settings})
        self._ends.callback(consumer.close)
        consumer.assign([Assignment("orders", 0, offset)])
        return consumer

    def consume(self, consumer: Consumer, count: int) -> list[bytes]:
        found = consumer.consume(count, WAIT_S)
        assert [message.error() for message in found] == [None] * count
        return [message.value() for message in found]

    def ask(self, broker_id: int, api_key: ApiKey, version: int, request: Any) -> Any:
        """Give a request to a broker and wait for its answer."""
        answers: list[Any] = []
        done = threading.Event()

        def answer(response: Any) -> None:
            answers.append(response)
            done.set()

        records = self.cluster[broker_id].broker.records
        assert records is not None
        records(RequestContext(api_key, version, 1, "test", "PLAINTEXT"), request, answer)
        assert done.wait(WAIT_S)
        return answers[0]

    def close(self) -> None:
        self._ends.close()


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    limits = RecordConfig(min_insync_replicas=2)
    with EmbeddedCluster(3, records=limits) as cluster, ScriptedController(cluster) as controller:
        rehearsal = Rehearsal(cluster, controller)
        yield rehearsal
        rehearsal.close()


def batch(count: int = 1, size: int = 10, timestamp: int = 5, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A record batch as a client writes it; its records are no records. The producer has id, epoch and sequence."""
    covered = struct.pack(">hiqqqhii", 0, count - 1, timestamp, timestamp, *producer, count) + bytes(size)
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c.crc32c(covered)) + covered


def fetch(epoch: int, offset: int = 0) -> messages.FetchRequest:
    part = messages.FetchPartition(current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1000)
    return messages.FetchRequest(topics=[messages.FetchTopic(topic="orders", partitions=[part])])


def fetch_error(rehearsal: Rehearsal, broker_id: int, request: Any) -> int:
    code: int = rehearsal.ask(broker_id, ApiKey.FETCH, 10, request).responses[0].partitions[0].error_code
    return code


def produce(data: bytes, acks: int = 1, timeout_ms: int = 0) -> messages.ProduceRequest:
    part = messages.PartitionProduceData(index=0, records=data)
    topic = messages.TopicProduceData(name="orders", partition_data=[part])
    return messages.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def produced(rehearsal: Rehearsal, broker_id: int, data: bytes, acks: int = 1) -> Any:
    return rehearsal.ask(broker_id, ApiKey.PRODUCE, 9, produce(data, acks)).responses[0].partition_responses[0]


# ---- clients on sockets ----------------------------------------------------------------------------------------------


def test_a_failover_loses_nothing_that_was_acknowledged(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert rehearsal.produce(b"1", b"2") == [None, None]
    consumer = rehearsal.consumer()
    assert rehearsal.consume(consumer, 2) == [b"1", b"2"]
    rehearsal.cluster.kill(0)
    rehearsal.controller.mark_dead(0)
    rehearsal.controller.wait_all()
    assert rehearsal.produce(b"3", retries=100) == [None]
    assert rehearsal.consume(consumer, 1) == [b"3"]


def test_an_idempotent_producer_has_its_records_stored_as_it_compressed_them(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    settings = {"enable.idempotence": True, "retries": 10, "compression.type": "zstd", "linger.ms": 50}
    values = [b"value " * 100] * 50
    assert rehearsal.produce(*values, **settings) == [None] * 50
    assert rehearsal.consume(rehearsal.consumer(), 50) == values


def test_an_unclean_election_loses_records_and_the_consumer_starts_again(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1])
    rehearsal.produce(b"kept")
    rehearsal.cluster.kill(1)
    rehearsal.controller.mark_dead(1)
    rehearsal.controller.wait_all()
    assert rehearsal.produce(b"lost", b"lost too", acks=1) == [None, None]
    consumer = rehearsal.consumer(**{"auto.offset.reset": "error"})
    assert rehearsal.consume(consumer, 3) == [b"kept", b"lost", b"lost too"]
    rehearsal.cluster.kill(0)
    rehearsal.controller.mark_dead(0)
    rehearsal.cluster.restart(1)
    rehearsal.controller.register(rehearsal.cluster[1])
    rehearsal.controller.elect("orders", 0, leader=1, unclean=True)
    rehearsal.controller.wait_all()
    message = consumer.poll(WAIT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert rehearsal.consume(rehearsal.consumer(), 1) == [b"kept"]


def test_acks_all_wants_enough_replicas_in_the_isr(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1])
    rehearsal.cluster.kill(1)
    rehearsal.controller.mark_dead(1)
    rehearsal.controller.wait_all()
    (error,) = rehearsal.produce(b"refused")
    assert error is not None
    assert error.code() == KafkaError.NOT_ENOUGH_REPLICAS
    assert rehearsal.produce(b"taken", acks=1) == [None]


def test_without_acknowledgements_the_connection_goes_on(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1])
    for value in b"1", b"2", b"3":
        assert rehearsal.produce(value, acks=0) == [None]
    assert rehearsal.consume(rehearsal.consumer(), 3) == [b"1", b"2", b"3"]


def test_acks_all_waits_for_a_paused_follower(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1])
    rehearsal.cluster.pause(1)
    result = produced(rehearsal, 0, batch(), acks=-1)
    assert (result.error_code, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert high_watermark(rehearsal, 0) == 0
    rehearsal.cluster.resume(1)
    assert high_watermark(rehearsal, 0) == 1
    assert produced(rehearsal, 0, batch(), acks=-1).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "order", [Interception(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), Interception(disconnect="after")]
)
def test_faults_for_single_requests_reach_a_producer(rehearsal: Rehearsal, order: Interception) -> None:
    """A lost acknowledgement makes a producer without idempotence write its record twice."""
    rehearsal.topic([0, 1])
    orders = [order]

    def intercept(context: RequestContext, _: Any) -> Interception | None:
        return orders.pop() if context.api_key == ApiKey.PRODUCE and orders else None

    rehearsal.cluster[0].broker.hooks = BrokerHooks(intercept=intercept)
    (error,) = rehearsal.produce(b"1", retries=10)
    assert not orders
    if order.error is None:
        assert error is None
        assert rehearsal.consume(rehearsal.consumer(), 2) == [b"1", b"1"]
    else:
        assert error is not None
        assert error.code() == order.error
        assert high_watermark(rehearsal, 0) == 0


def high_watermark(rehearsal: Rehearsal, broker_id: int) -> int:
    part = messages.ListOffsetsPartition(timestamp=-1)
    request = messages.ListOffsetsRequest(topics=[messages.ListOffsetsTopic(name="orders", partitions=[part])])
    answer = rehearsal.ask(broker_id, ApiKey.LIST_OFFSETS, 6, request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    offset: int = answer.offset
    return offset


# ---- errors that follow from the control plane -----------------------------------------------------------------------


def test_epochs_and_leadership_decide_who_may_fetch(rehearsal: Rehearsal) -> None:
    assert fetch_error(rehearsal, 0, fetch(-1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rehearsal.topic([0, 1])
    rehearsal.controller.elect("orders", 0, leader=1)
    rehearsal.controller.wait_all()
    epoch = rehearsal.controller.leadership("orders", 0).leader_epoch
    assert fetch_error(rehearsal, 1, fetch(epoch)) == ErrorCode.NONE
    assert fetch_error(rehearsal, 1, fetch(epoch - 1)) == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch_error(rehearsal, 1, fetch(epoch + 1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch_error(rehearsal, 1, fetch(epoch, offset=1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch_error(rehearsal, 0, fetch(epoch)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch_error(rehearsal, 2, fetch(epoch)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produced(rehearsal, 0, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deposed_leader_that_knows_nothing_of_it_acknowledges_nothing(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    rehearsal.controller.mark_dead(0)
    rehearsal.controller.wait_all()
    assert produced(rehearsal, 0, batch(), acks=-1).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert produced(rehearsal, 1, batch(), acks=-1).error_code == ErrorCode.NONE
    rehearsal.cluster.restart(0)
    rehearsal.controller.register(rehearsal.cluster[0])
    rehearsal.controller.elect("orders", 0, leader=0)
    rehearsal.controller.wait_all()
    assert high_watermark(rehearsal, 0) == 1


def test_a_deleted_topic_that_is_created_again_is_empty(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1])
    assert produced(rehearsal, 0, batch(3), acks=-1).error_code == ErrorCode.NONE
    rehearsal.controller.delete_topic("orders")
    rehearsal.controller.wait_all()
    rehearsal.topic([0, 1])
    assert high_watermark(rehearsal, 0) == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:16] + b"\x01" + batch()[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (batch()[:30], ErrorCode.CORRUPT_MESSAGE),
        (batch(count=0), ErrorCode.INVALID_RECORD),
    ],
)
def test_records_that_are_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(RecordsRefused) as refused:
        read_batch(data)
    assert refused.value.code == code


def test_clients_of_brokers_without_records_fail_at_once_and_the_answer_says_why() -> None:
    """Clients that found no Produce among the APIs would wait for their own time-outs."""
    with EmbeddedCluster(1) as cluster, ScriptedController(cluster) as controller:
        rehearsal = Rehearsal(cluster, controller)
        rehearsal.topic([0])
        (error,) = rehearsal.produce(b"1", **{"message.timeout.ms": 300_000})
        assert error is not None
        assert error.code() == KafkaError.POLICY_VIOLATION
        (message,) = rehearsal.consumer().consume(1, WAIT_S)
        assert message.error().code() == KafkaError.POLICY_VIOLATION
        assert "stores no records" in produced(rehearsal, 0, batch()).error_message
        rehearsal.close()


# ---- the log ---------------------------------------------------------------------------------------------------------


def append(log: RecordLog, count: int, size: int, epoch: int) -> Batch:
    added = read_batch(batch(count, size)).at(log.end_offset, epoch)
    log.append(added)
    return added


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), max_size=20))
def test_a_log_holds_its_newest_records_within_its_limit(sizes: list[tuple[int, int]]) -> None:
    log, all_batches = RecordLog(500), []
    for count, size in sizes:
        all_batches.append(append(log, count, size, 0))
        log.advance(log.end_offset)
    left = log.read(log.start_offset, 10**6, log.end_offset)
    assert left == all_batches[len(all_batches) - len(left) :]
    assert log.size == sum(len(each.data) for each in left)
    assert log.size <= 500 or len(left) == 1
    assert log.start_offset == (left[0].base_offset if left else 0)
    for each in left:
        for offset in range(each.base_offset, each.next_offset):
            assert log.read(offset, 1, log.end_offset) == [each]
        assert read_batch(each.data).count == each.count  # its checksum holds where it is


@given(st.lists(st.tuples(st.sampled_from("abf"), st.integers(1, 3), st.integers(0, 200)), max_size=30))
def test_a_follower_becomes_a_copy_of_any_leader(steps: list[tuple[str, int, int]]) -> None:
    """Two logs take records of their own, and one follows the other now and then."""
    logs = {"a": RecordLog(600), "b": RecordLog(600)}
    for epoch, (step, count, size) in enumerate([*steps, ("f", 1, 0)]):
        if step == "f":
            logs["b"].follow(logs["a"])
            logs["b"], logs["a"] = logs["a"], logs["b"]
            ours, theirs = (log.read(log.start_offset, 10**6, log.end_offset) for log in logs.values())
            shared = min(len(ours), len(theirs))
            assert logs["a"].end_offset == logs["b"].end_offset
            assert ours[len(ours) - shared :] == theirs[len(theirs) - shared :]
        else:
            append(logs[step], count, size, epoch)


def test_threads_append_while_others_change_the_brokers(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    appended: list[int] = []

    def run(work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def append_records() -> None:
        for _ in range(50):
            appended.append(produced(rehearsal, 0, batch(2)).base_offset)

    def pause_and_resume() -> None:
        for _ in range(10):
            rehearsal.cluster.pause(2)
            rehearsal.cluster.resume(2)

    for thread in [run(append_records), run(append_records), run(pause_and_resume)]:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert sorted(appended) == list(range(0, 200, 2))
    assert high_watermark(rehearsal, 0) == 200


def test_the_oldest_records_go_and_the_log_start_offset_rises() -> None:
    limits = RecordConfig(most_log_bytes=300)
    with EmbeddedCluster(2, records=limits) as cluster, ScriptedController(cluster) as controller:
        rehearsal = Rehearsal(cluster, controller)
        rehearsal.topic([0, 1])
        for _ in range(10):
            result = produced(rehearsal, 0, batch(size=39), acks=-1)
        assert (result.base_offset, result.log_start_offset) == (9, 7)
        assert fetch_error(rehearsal, 0, fetch(-1, offset=6)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch_error(rehearsal, 0, fetch(-1, offset=7)) == ErrorCode.NONE


def test_a_request_that_waits_is_answered_once() -> None:
    """Its change, its time limit and its first attempt may all come to it."""
    later: list[Callable[[], None]] = []
    soon: list[Callable[[], None]] = []
    store = RecordStore(RecordConfig(), soon.append, lambda _, work: later.append(work))
    answers: list[str] = []
    ready: list[str] = []
    store.serve(lambda is_expired: "late" if is_expired else next(iter(ready), None), answers.append, 1000)
    assert not answers
    ready.append("ready")
    store.wake()
    store.wake()
    later[0]()
    for work in soon:
        work()
    assert answers == ["ready"]


# ---- idempotent producers --------------------------------------------------------------------------------------------


def written(rehearsal: Rehearsal, broker_id: int, sequence: int, count: int = 1, epoch: int = 0, who: int = 7) -> Any:
    """The outcome of a producer's batch: its offset or its error."""
    answer = produced(rehearsal, broker_id, batch(count, producer=(who, epoch, sequence)), acks=-1)
    return ErrorCode(answer.error_code).name if answer.error_code else answer.base_offset


def test_a_batch_that_is_sent_again_is_stored_once_and_has_its_first_offset(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert [written(rehearsal, 0, sequence, 2) for sequence in (0, 2, 4, 6, 8, 10)] == [0, 2, 4, 6, 8, 10]
    assert [written(rehearsal, 0, sequence, 2) for sequence in (2, 4, 6, 8, 10)] == [2, 4, 6, 8, 10]
    assert written(rehearsal, 0, 0, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"  # six batches ago: no longer known
    assert written(rehearsal, 0, 10, 1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"  # part of a batch is no duplicate
    assert written(rehearsal, 0, 13) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert written(rehearsal, 0, 12) == 12


def test_each_producer_has_its_own_epoch_and_sequence(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert written(rehearsal, 0, 5, who=8) == 0  # an unknown producer begins anywhere, as records may have expired
    assert written(rehearsal, 0, 0) == 1
    assert written(rehearsal, 0, 1, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert written(rehearsal, 0, 0, epoch=1) == 2
    assert written(rehearsal, 0, 1, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert written(rehearsal, 0, 6, who=8) == 3
    assert written(rehearsal, 0, -1) == "INVALID_RECORD"


def test_sequence_numbers_go_round(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert written(rehearsal, 0, (1 << 31) - 2, 3) == 0
    assert written(rehearsal, 0, 1) == 3
    assert written(rehearsal, 0, (1 << 31) - 2, 3) == 0


def test_what_a_log_knows_of_producers_goes_with_it_to_the_next_leader(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert [written(rehearsal, 0, 0), written(rehearsal, 0, 1)] == [0, 1]
    rehearsal.cluster.kill(0)
    rehearsal.controller.mark_dead(0)
    rehearsal.controller.wait_all()
    assert written(rehearsal, 1, 1) == 1  # its answer was lost with the leader
    assert written(rehearsal, 1, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert written(rehearsal, 1, 2) == 2


def test_a_log_that_loses_records_forgets_their_sequence_numbers(rehearsal: Rehearsal) -> None:
    rehearsal.topic([0, 1, 2])
    assert written(rehearsal, 0, 0) == 0
    rehearsal.cluster.pause(1)
    rehearsal.cluster.pause(2)
    produced(rehearsal, 0, batch(producer=(7, 0, 1)))  # with acks=1: no other broker has it
    rehearsal.cluster.kill(0)
    for broker_id in (1, 2):
        rehearsal.cluster.resume(broker_id)
    rehearsal.controller.mark_dead(0)
    rehearsal.controller.wait_all()
    assert written(rehearsal, 1, 1) == 1
    rehearsal.cluster.restart(0)
    rehearsal.controller.register(rehearsal.cluster[0])
    rehearsal.controller.elect("orders", 0, leader=0)
    rehearsal.controller.wait_all()
    assert [written(rehearsal, 0, 1), written(rehearsal, 0, 2)] == [1, 2]


@given(st.data())
def test_a_producer_that_repeats_what_was_not_answered_has_each_batch_once_in_order(data: st.DataObject) -> None:
    """Up to five batches are in flight, answers get lost, leaders change: what is stored is what was sent."""
    logs = [RecordLog(10_000), RecordLog(10_000)]
    sent: list[Batch] = []
    next_sequence = first_unanswered = 0
    for _ in range(data.draw(st.integers(1, 20))):
        if next_sequence - first_unanswered < 5:
            sent.append(read_batch(batch(producer=(7, 0, next_sequence))))
            next_sequence += 1
        again = data.draw(st.integers(first_unanswered, next_sequence - 1))
        for each in sent[first_unanswered : again + 1]:
            duplicate = logs[0].find_duplicate(each)
            if duplicate is None:
                logs[0].append(each.at(logs[0].end_offset, 0))
            else:
                assert duplicate.base_offset == each.base_sequence
        logs[1].follow(logs[0])
        if data.draw(st.booleans()):
            first_unanswered = again + 1
        if data.draw(st.booleans()):
            logs.reverse()
    stored = [each.base_sequence for each in logs[0].read(0, 10_000, 1000)]
    assert stored == list(range(logs[0].end_offset))


def test_a_full_log_says_that_records_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    limits = RecordConfig(most_log_bytes=300)
    with EmbeddedCluster(1, records=limits) as cluster, ScriptedController(cluster) as controller:
        rehearsal = Rehearsal(cluster, controller)
        rehearsal.topic([0])
        for _ in range(8):
            produced(rehearsal, 0, batch())
    told = [line for line in caplog.messages if "is full" in line]
    assert len(told) == 1
    assert "orders-0" in told[0]
    assert "RecordConfig(most_log_bytes=...)" in told[0]
