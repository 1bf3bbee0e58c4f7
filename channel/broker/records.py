"""Records for the clients of an embedded cluster: Produce, Fetch, ListOffsets and InitProducerId.

Every replica has a log: whole record batches as a client wrote them, with a limit in bytes. A follower in the ISR of
its leader gets a record when it is appended, unless its broker is down, paused, or follows another leader or epoch; a
replica outside the ISR stays at its offset. The errors are those of a Kafka 3.9 broker. The sequence numbers of
idempotent producers are checked as Kafka checks them, and that state lives with the log. There are no consumer groups
and no transactions.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import crc32c

from channel.locks import guards, guards_calls, new_reentrant_lock
from channel.logs import get_logger
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigurationError
from kproto.types import ZERO_UUID, TopicPartition

from .embedded import GROUP_APIS, LARGEST_RECORD_BODY
from .hooks import NO_RESPONSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from kproto.types import Uuid

    from .embedded import EmbeddedBroker
    from .hooks import RequestContext

_log = get_logger(__name__)

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PLACE: Final = Struct(">qii")
_CHECKSUM_ENDS: Final = 21
_MAGIC: Final = 16
_TRANSACTIONAL_OR_CONTROL: Final = 0x30

_ALL: Final = -1
_LATEST, _EARLIEST = -1, -2
_LEADER_EPOCHS_SINCE: Final = 4  # of ListOffsets
_SEQUENCES: Final = 1 << 31  # after the largest sequence number comes 0
_KEPT_BATCHES: Final = 5  # of each producer; a producer has as many requests in flight at most
_MOST_PRODUCERS: Final = 10_000
_MIN_ISR: Final = "min.insync.replicas"
_NO_GROUPS: Final = "an embedded broker has no consumer groups: assign partitions instead of subscribing"
_NO_TRANSACTIONS: Final = "an embedded broker has no transactions"
_NO_RECORDS: Final = "this simulated broker stores no records; EmbeddedCluster(..., records=True) does"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """The settings by which an embedded cluster keeps records.

    Attributes:
        min_insync_replicas: The size of the ISR below which acks=all is refused; the hook ``settings`` may set
            ``min.insync.replicas`` for a topic.
        most_log_bytes: The bytes that a replica's log holds; beyond them the oldest batches go, and a line in the log
            says so.

    Raises:
        ConfigurationError: A number is below 1.
    """

    min_insync_replicas: int = 1
    most_log_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.min_insync_replicas < 1 or self.most_log_bytes < 1:
            raise ConfigurationError("min_insync_replicas and most_log_bytes must be at least 1")


# ---- a replica's log -------------------------------------------------------------------------------------------------


class RecordsRefused(Exception):
    """The records of a Produce request cannot be appended.

    Attributes:
        code: The error code of the answer.
    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch of format 2. Replicas share it.

    Attributes:
        base_offset: The offset of its first record.
        count: The number of its records.
        leader_epoch: The epoch of the leader that appended it.
        max_timestamp: The largest timestamp of its records, in ms.
        data: The batch with header and records.
        producer_id, producer_epoch: Its idempotent producer; -1 for another producer.
        base_sequence: The producer's sequence number of its first record.
    """

    base_offset: int
    count: int
    leader_epoch: int
    max_timestamp: int
    data: bytes
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + self.count

    @property
    def last_sequence(self) -> int:
        """The producer's sequence number of its last record."""
        return (self.base_sequence + self.count - 1) % _SEQUENCES

    def at(self, offset: int, leader_epoch: int) -> Batch:
        """Return the batch at its place in a log; the checksum covers neither of the two fields."""
        place = _PLACE.pack(offset, len(self.data) - 12, leader_epoch)
        return replace(self, base_offset=offset, leader_epoch=leader_epoch, data=place + self.data[_PLACE.size :])


def read_batch(data: bytes | None) -> Batch:
    """Read the one batch of a Produce request's partition.

    Raises:
        RecordsRefused: It is damaged, of an older format, part of a transaction, or not one whole batch.
    """
    if not data or len(data) <= _MAGIC:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "there is no record batch")
    if data[_MAGIC] != 2:
        code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        raise RecordsRefused(code, f"message format {data[_MAGIC]}; an embedded broker stores format 2 alone")
    if len(data) < _HEADER.size:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, "the record batch ends within its header")
    _, length, _, _, checksum, attributes, last, _, newest, *producer, sequence, count = _HEADER.unpack_from(data)
    if length + 12 != len(data):
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"one batch of {length + 12} bytes in {len(data)} bytes")
    if crc32c.crc32c(data[_CHECKSUM_ENDS:]) != checksum:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the record batch is wrong")
    if count < 1 or last != count - 1:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"{count} records with a last offset delta of {last}")
    if attributes & _TRANSACTIONAL_OR_CONTROL:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, _NO_TRANSACTIONS)
    producer_id, epoch = producer
    if producer_id >= 0 and sequence < 0:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"sequence number {sequence} of producer {producer_id}")
    return Batch(0, count, -1, newest, data, producer_id, epoch, sequence)


class RecordLog:
    """Batches in the order of their offsets; the oldest go once there are more bytes than the limit.

    The newest batch stays whatever its size. The caller serialises calls.

    Args:
        most_bytes: The limit in bytes.

    Attributes:
        start_offset: The offset of the first record that is left.
        end_offset: The offset of the next record.
        high_watermark: The offset below which consumers read.
        size: Bytes held.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._batches: deque[Batch] = deque()
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.size = 0
        # The last batches of each idempotent producer in its epoch, without their bytes; the last to write is the last.
        self._producers: dict[int, tuple[Batch, ...]] = {}

    def find_duplicate(self, batch: Batch) -> Batch | None:
        """Return the batch that was appended when its producer sent it before; None if it is the producer's next.

        A log takes any sequence number of a producer that it does not know, as Kafka's does.

        Raises:
            RecordsRefused: The producer's epoch is older than the known one, or its sequence numbers have a gap.
        """
        known = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if known is None:
            return None
        who, epoch = f"producer {batch.producer_id} in epoch {batch.producer_epoch}", known[-1].producer_epoch
        if batch.producer_epoch < epoch:
            raise RecordsRefused(ErrorCode.INVALID_PRODUCER_EPOCH, f"{who}; its epoch is {epoch}")
        expected = 0
        if batch.producer_epoch == epoch:
            for each in known:
                if (each.base_sequence, each.count) == (batch.base_sequence, batch.count):
                    return each
            expected = (known[-1].last_sequence + 1) % _SEQUENCES
        if batch.base_sequence != expected:
            text = f"sequence number {batch.base_sequence} of {who}; the next is {expected}"
            raise RecordsRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        return None

    def _note_producer(self, batch: Batch) -> None:
        known = self._producers.pop(batch.producer_id, ())
        kept = [each for each in known[1 - _KEPT_BATCHES :] if each.producer_epoch == batch.producer_epoch]
        self._producers[batch.producer_id] = (*kept, replace(batch, data=b""))
        if len(self._producers) > _MOST_PRODUCERS:
            del self._producers[next(iter(self._producers))]

    def append(self, batch: Batch) -> None:
        """Append a batch whose base offset is the end offset."""
        if batch.base_offset != self.end_offset:
            raise ValueError(f"a batch at offset {batch.base_offset}, where the log ends at {self.end_offset}")
        self._batches.append(batch)
        self.size += len(batch.data)
        self.end_offset = batch.next_offset
        if batch.producer_id >= 0:
            self._note_producer(batch)
        while self.size > self._most_bytes and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self.size -= len(oldest.data)
            self.start_offset = oldest.next_offset
        self.high_watermark = max(self.high_watermark, self.start_offset)

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark, to the end offset at most; it is never lowered."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))

    def read(self, offset: int, most_bytes: int, before: int) -> list[Batch]:
        """Return the batches from the one that holds ``offset``, below the offset ``before``; at least one if any."""
        batches = list(self._batches)
        first = max(bisect_right(batches, offset, key=lambda batch: batch.base_offset) - 1, 0)
        found: list[Batch] = []
        for batch in batches[first:]:
            if batch.next_offset > before or (found and len(batch.data) > most_bytes):
                break
            if batch.next_offset > offset:
                found.append(batch)
                most_bytes -= len(batch.data)
        return found

    def find_time(self, timestamp: int, before: int) -> Batch | None:
        """Return the first batch below ``before`` that has a record of this time in ms or later."""
        return next((b for b in self._batches if b.max_timestamp >= timestamp and b.next_offset <= before), None)

    def follow(self, leader: RecordLog) -> None:
        """Become a copy of the leader's log: drop what the leader does not have, append what is missing."""
        missing: list[Batch] = []
        is_truncated = False
        for batch in reversed(leader._batches):
            while self._batches and self._batches[-1].next_offset > batch.next_offset:
                is_truncated = True
                dropped = self._batches.pop()
                self.size -= len(dropped.data)
                self.end_offset = dropped.base_offset
            if self._batches and self._batches[-1] is batch:
                break
            missing.append(batch)
        else:
            if not self._batches or self.end_offset != leader.start_offset:
                is_truncated = True
                self._batches.clear()
                self.size = 0
                self.start_offset = self.end_offset = leader.start_offset
        self.high_watermark = min(self.high_watermark, self.end_offset)
        for batch in reversed(missing):
            self.append(batch)
        if is_truncated:
            self._producers = dict(leader._producers)
        self.advance(leader.high_watermark)


# ---- the logs of a cluster -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Replica:
    """A replica's log and the state that LeaderAndIsr gave it."""

    log: RecordLog
    topic_id: Uuid
    leads: bool = False
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    follows: tuple[int, int] | None = None  # the leader and its epoch


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    """A request whose answer waits for a change or its time limit; ``attempt`` returns None to go on waiting."""

    attempt: Callable[[bool], Any]
    answer: Callable[[Any], None]
    is_done: bool = field(default=False)


class RecordStore:
    """The logs of a cluster's replicas. All methods may be called from any thread.

    Args:
        config: Limits.
        submit: Runs a function on the thread that serves record requests.
        call_later: Calls a function after a delay in ms.
        stores: False to store nothing, and to refuse the record clients, so that they fail at once and say why.
            Clients that find no Produce among a broker's APIs wait for their own time-outs instead.
        answers_groups: Whether consumer groups are refused, too; not where other brokers of the cluster have groups.

    Attributes:
        keys: The API keys of the record clients.
        producer_ids: Producer ids that no other producer of the cluster has.
    """

    def __init__(
        self,
        config: RecordConfig,
        submit: Callable[[Callable[[], None]], None],
        call_later: Callable[[int, Callable[[], None]], None],
        *,
        stores: bool = True,
        answers_groups: bool = True,
    ) -> None:
        self.config = config
        self.keys: Set[int] = LARGEST_RECORD_BODY.keys() - (frozenset() if answers_groups else GROUP_APIS)
        self.stores = stores
        self.lock = new_reentrant_lock("records")
        self._submit = submit
        self._call_later = call_later
        self._replicas: dict[TopicPartition, dict[int, _Replica]] = {}
        self._stopped: set[int] = set()
        self._waiting: list[_WaitingRequest] = []
        self._full: set[TopicPartition] = set()
        self.producer_ids = itertools.count(1)

    def replica(self, broker_id: int, tp: TopicPartition) -> _Replica | None:
        """Return a replica; the caller holds the lock."""
        return self._replicas.get(tp, {}).get(broker_id)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def update(self, broker: EmbeddedBroker, partitions: Iterable[TopicPartition]) -> None:
        """Take the state of a broker's replicas after a LeaderAndIsr or StopReplica."""
        if not self.stores:
            return
        replicas, broker_id = broker.replicas, broker.broker_id
        with self.lock:
            for tp in partitions:
                of_partition = self._replicas.setdefault(tp, {})
                hosted, topic_id = replicas.hosted.get(tp), replicas.logs.get(tp)
                if topic_id is None:
                    of_partition.pop(broker_id, None)
                elif hosted is not None:
                    replica = of_partition.get(broker_id)
                    if replica is None or (
                        topic_id != replica.topic_id and ZERO_UUID not in (topic_id, replica.topic_id)
                    ):
                        replica = of_partition[broker_id] = _Replica(RecordLog(self.config.most_log_bytes), topic_id)
                    fetcher = replicas.fetchers.get(tp)
                    replica.topic_id = topic_id
                    replica.leads = hosted.role == "leader"
                    replica.leader_epoch = hosted.leader_epoch
                    replica.isr = hosted.isr
                    replica.follows = None if fetcher is None else (fetcher.leader, fetcher.leader_epoch)
                self.replicate(tp)
        self.wake()

    def stop(self, broker_id: int) -> None:
        """Let a broker fetch no more: it is down or paused."""
        with self.lock:
            self._stopped.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a broker fetch again."""
        with self.lock:
            self._stopped.discard(broker_id)
            for tp in self._replicas:
                self.replicate(tp)
        self.wake()

    def restart(self, broker_id: int) -> None:
        """Forget what a broker led and followed; its logs stay, and it fetches again from ``resume`` on."""
        with self.lock:
            for of_partition in self._replicas.values():
                replica = of_partition.get(broker_id)
                if replica is not None:
                    of_partition[broker_id] = _Replica(replica.log, replica.topic_id)

    def replicate(self, tp: TopicPartition) -> None:
        """Give the followers in the ISR what their leader has, and raise the high watermark; the caller holds the lock.

        After a failover two brokers may lead for a while; each follower knows its leader.
        """
        of_partition = self._replicas[tp]
        for leader_id, leader in of_partition.items():
            if not leader.leads or leader_id in self._stopped:
                continue
            current = (leader_id, leader.leader_epoch)
            followers = [
                replica
                for broker_id in leader.isr
                if broker_id not in self._stopped
                and (replica := of_partition.get(broker_id)) is not None
                and replica.follows == current
            ]
            for follower in followers:
                follower.log.follow(leader.log)
            if len(followers) == sum(broker_id != leader_id for broker_id in leader.isr):
                leader.log.advance(leader.log.end_offset)
            for follower in followers:
                follower.log.advance(leader.log.high_watermark)

    def append(self, tp: TopicPartition, log: RecordLog, batch: Batch) -> None:
        """Append a batch to the leader's log, and replicate it; the caller holds the lock."""
        start = log.start_offset
        log.append(batch)
        self.replicate(tp)
        if log.start_offset > start and tp not in self._full:
            self._full.add(tp)
            _log.warning(
                "the log of %s is full: records below offset %d are discarded, and more will be; "
                "RecordConfig(most_log_bytes=...) holds more than %d bytes",
                tp, log.start_offset, self.config.most_log_bytes,
            )  # fmt: skip

    # ---- requests that wait ------------------------------------------------------------------------------------------

    def serve(self, attempt: Callable[[bool], Any], answer: Callable[[Any], None], timeout_ms: int) -> None:
        """Answer a request once ``attempt(is_expired)`` returns a response; it is called with True at the time limit.

        The answer of a broker that was killed before is dropped with its connection.
        """
        waiting = _WaitingRequest(attempt, answer)
        self._attempt(waiting, is_expired=timeout_ms <= 0)
        if not waiting.is_done:
            expire = partial(self._attempt, waiting, is_expired=True)
            self._call_later(timeout_ms, lambda: self._submit(expire))

    def _attempt(self, waiting: _WaitingRequest, *, is_expired: bool) -> None:
        with self.lock:
            if waiting.is_done:
                return
            response = waiting.attempt(is_expired)
            if response is None:
                if waiting not in self._waiting:
                    self._waiting.append(waiting)
                return
            waiting.is_done = True
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        waiting.answer(response)

    def wake(self) -> None:
        """Look again at the requests that wait."""
        with self.lock:
            waiting = list(self._waiting)
        for each in waiting:
            self._submit(partial(self._attempt, each, is_expired=False))


guards(RecordStore, "lock", "_replicas", "_stopped", "_waiting")


class BrokerRecords:
    """One broker's answers to its record clients.

    Args:
        store: The logs of its cluster.
    """

    def __init__(self, broker: EmbeddedBroker, store: RecordStore) -> None:
        self._broker = broker
        self._store = store
        self.keys = store.keys

    def update(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the state of this broker's replicas after a LeaderAndIsr or StopReplica."""
        self._store.update(self._broker, partitions)

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Take a request; ``answer`` gets the response, once, from this or another thread."""
        if not self._store.stores and context.api_key not in GROUP_APIS:
            answer(self.error_response(context, request, ErrorCode.POLICY_VIOLATION, _NO_RECORDS))
            return
        match context.api_key:
            case ApiKey.PRODUCE:
                self._produce(request, answer)
            case ApiKey.FETCH:
                self._store.serve(lambda end: self._fetch(request, end), answer, request.max_wait_ms)
            case ApiKey.LIST_OFFSETS:
                with self._store.lock:
                    response = self._list_offsets(request, context.version)
                answer(response)
            case ApiKey.FIND_COORDINATOR:
                answer(self._coordinators(context, request))
            case ApiKey.JOIN_GROUP:
                _log.warning(
                    "broker %d: client %r joins group %r; %s",
                    self._broker.broker_id,
                    context.client_id,
                    request.group_id,
                    _NO_GROUPS,
                )
                answer(self.error_response(context, request, ErrorCode.POLICY_VIOLATION))
            case ApiKey.INIT_PRODUCER_ID:
                if request.transactional_id is not None:  # there are no transactions
                    answer(self.error_response(context, request, ErrorCode.INVALID_REQUEST))
                else:
                    answer(messages.InitProducerIdResponse(producer_id=next(self._store.producer_ids)))

    def error_response(self, context: RequestContext, request: Any, code: int, message: str | None = None) -> Any:
        """Return an answer with this error for every partition; None closes the connection, for acks=0."""
        match context.api_key:
            case ApiKey.PRODUCE:
                results = {
                    TopicPartition(topic.name, part.index): messages.PartitionProduceResponse(
                        index=part.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for topic in request.topic_data
                    for part in topic.partition_data
                }
                return _produced(results) if request.acks != 0 else None
            case ApiKey.FETCH:
                return messages.FetchResponse(
                    responses=[
                        messages.FetchableTopicResponse(
                            topic=topic.topic, partitions=[_fetched(part.partition, code) for part in topic.partitions]
                        )
                        for topic in request.topics
                    ]
                )
            case ApiKey.LIST_OFFSETS:
                offset = messages.ListOffsetsPartitionResponse
                return _listed(request, lambda _, part: offset(partition_index=part.partition_index, error_code=code))
            case ApiKey.FIND_COORDINATOR:
                return self._coordinators(context, request, code, message)
            case ApiKey.JOIN_GROUP:
                return messages.JoinGroupResponse(error_code=code, member_id=request.member_id)
        return messages.InitProducerIdResponse(error_code=code)

    def _coordinators(self, context: RequestContext, request: Any, code: int = 0, message: str | None = None) -> Any:
        """Name this broker as the coordinator of groups, whose JoinGroup then fails: a consumer that assigns its
        partitions asks for a coordinator, too, and has to go on.
        """
        node = next(
            (n for n in self._broker.metadata.nodes(context.listener)[0] if n.id == self._broker.broker_id), None
        )
        if code == ErrorCode.NONE and request.key_type != 0:
            code, message = ErrorCode.POLICY_VIOLATION, _NO_TRANSACTIONS
        elif code == ErrorCode.NONE and node is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # no controller has told the broker of itself
        found: dict[str, Any] = {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
        if code == ErrorCode.NONE and node is not None:
            found |= {"node_id": node.id, "host": node.host, "port": node.port}
        if context.version < 4:
            return messages.FindCoordinatorResponse(**found)
        keys = request.coordinator_keys
        return messages.FindCoordinatorResponse(coordinators=[messages.Coordinator(key=key, **found) for key in keys])

    def _leader(self, tp: TopicPartition, epoch: int = -1) -> tuple[ErrorCode, Any]:
        """Return the replica if this broker leads the partition in the epoch that the client knows, else the error."""
        replica, broker = self._store.replica(self._broker.broker_id, tp), self._broker
        hosted = broker.replicas.hosted.get(tp)
        if hosted is not None and hosted.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if replica is None or tp not in broker.replicas.logs:
            known = broker.metadata.contains(*tp)
            return (ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
        if epoch >= 0 and epoch != replica.leader_epoch:
            fenced = epoch < replica.leader_epoch
            return (ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH), None
        if not replica.leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        return ErrorCode.NONE, replica

    # ---- Produce -----------------------------------------------------------------------------------------------------

    def _produce(self, request: Any, answer: Callable[[Any], None]) -> None:
        results: dict[TopicPartition, messages.PartitionProduceResponse] = {}
        wanted: dict[TopicPartition, tuple[int, int]] = {}  # the offset after the records, and their leader's epoch
        with self._store.lock:
            for topic in request.topic_data:
                for part in topic.partition_data:
                    tp = TopicPartition(topic.name, part.index)
                    results[tp] = result = messages.PartitionProduceResponse(index=part.index, base_offset=-1)
                    try:
                        wanted[tp] = self._append(tp, request, part.records, result)
                    except RecordsRefused as e:
                        result.error_code, result.error_message = e.code, str(e)
        if wanted:
            self._store.wake()
        if request.acks != _ALL:
            failed = any(result.error_code for result in results.values())
            # without acknowledgements a closed connection is all that tells a producer of an error
            answer(_produced(results) if request.acks != 0 else None if failed else NO_RESPONSE)
            return

        def attempt(is_expired: bool) -> Any:
            for tp, (offset, epoch) in list(wanted.items()):
                code = self._acknowledged(tp, offset, epoch)
                if code is None and is_expired:
                    code = ErrorCode.REQUEST_TIMED_OUT
                if code is not None:
                    del wanted[tp]
                    results[tp].error_code = code
                    if code != ErrorCode.NONE:
                        results[tp].base_offset = -1
            return None if wanted else _produced(results)

        self._store.serve(attempt, answer, request.timeout_ms)

    def _append(self, tp: TopicPartition, request: Any, records: bytes | None, result: Any) -> tuple[int, int]:
        if request.acks not in (_ALL, 0, 1):
            raise RecordsRefused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be -1, 0 or 1")
        code, replica = self._leader(tp)
        if code != ErrorCode.NONE:
            raise RecordsRefused(code, f"{tp} is not led by broker {self._broker.broker_id}")
        if request.acks == _ALL and len(replica.isr) < self._min_isr(tp):
            text = f"the ISR of {tp} is {list(replica.isr)}, and {_MIN_ISR} is {self._min_isr(tp)}"
            raise RecordsRefused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        log = replica.log
        batch = read_batch(records)
        appended = log.find_duplicate(batch)
        if appended is None:
            appended = batch.at(log.end_offset, replica.leader_epoch)
            self._store.append(tp, log, appended)
        result.base_offset, result.log_start_offset = appended.base_offset, log.start_offset
        return appended.next_offset, replica.leader_epoch

    def _acknowledged(self, tp: TopicPartition, offset: int, epoch: int) -> ErrorCode | None:
        """Return the result of acks=all for records that end at an offset; None while the ISR lacks them."""
        code, replica = self._leader(tp)
        if code != ErrorCode.NONE:
            return code
        if replica.log.end_offset < offset:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it followed another leader in between
        if replica.log.high_watermark < offset:
            return None
        enough = len(replica.isr) >= self._min_isr(tp)
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def _min_isr(self, tp: TopicPartition) -> int:
        of_topic = self._broker.settings(f"topics/{tp.topic}").get(_MIN_ISR)
        return self._store.config.min_insync_replicas if of_topic is None else int(of_topic)

    # ---- Fetch and ListOffsets ---------------------------------------------------------------------------------------

    def _fetch(self, request: Any, is_expired: bool) -> Any:
        found, is_urgent, left = 0, is_expired, request.max_bytes
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                data = self._read(TopicPartition(topic.topic, part.partition), part, left, is_first=not found)
                parts.append(data)
                size = len(data.records or b"")
                found += size
                left -= size
                is_urgent = is_urgent or data.error_code != ErrorCode.NONE
            topics.append(messages.FetchableTopicResponse(topic=topic.topic, partitions=parts))
        if not topics or is_urgent or found >= request.min_bytes:
            return messages.FetchResponse(responses=topics)
        return None

    def _read(self, tp: TopicPartition, part: Any, left: int, *, is_first: bool) -> messages.PartitionData:
        code, replica = self._leader(tp, part.current_leader_epoch)
        data = _fetched(tp.partition, code)
        if replica is None:
            return data
        log = replica.log
        if not log.start_offset <= part.fetch_offset <= log.end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.high_watermark = data.last_stable_offset = log.high_watermark
        data.log_start_offset = log.start_offset
        most = min(left, part.partition_max_bytes)
        batches = log.read(part.fetch_offset, most, log.high_watermark)
        if batches and (is_first or len(batches[0].data) <= most):
            data.records = b"".join(batch.data for batch in batches)
        return data

    def _list_offsets(self, request: Any, version: int) -> Any:
        return _listed(request, partial(self._find, version))

    def _find(self, version: int, topic: str, part: Any) -> messages.ListOffsetsPartitionResponse:
        result = messages.ListOffsetsPartitionResponse(partition_index=part.partition_index)
        tp = TopicPartition(topic, part.partition_index)
        result.error_code, replica = self._leader(tp, part.current_leader_epoch)
        if replica is None:
            return result
        log, wanted, leader_epoch = replica.log, part.timestamp, -1
        if wanted >= 0:
            batch = log.find_time(wanted, log.high_watermark)
            if batch is not None:
                result.offset, result.timestamp = batch.base_offset, batch.max_timestamp
                leader_epoch = batch.leader_epoch
        elif wanted in (_LATEST, _EARLIEST):
            result.offset = log.high_watermark if wanted == _LATEST else log.start_offset
            leader_epoch = replica.leader_epoch
        else:
            result.error_code = ErrorCode.UNSUPPORTED_VERSION
        if version >= _LEADER_EPOCHS_SINCE:
            result.leader_epoch = leader_epoch
        return result


guards_calls(BrokerRecords, "_store.lock", "_append", "_leader", "_list_offsets")


def _fetched(partition: int, code: int) -> messages.PartitionData:
    return messages.PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _listed(
    request: Any, find: Callable[[str, Any], messages.ListOffsetsPartitionResponse]
) -> messages.ListOffsetsResponse:
    return messages.ListOffsetsResponse(
        topics=[
            messages.ListOffsetsTopicResponse(name=t.name, partitions=[find(t.name, part) for part in t.partitions])
            for t in request.topics
        ]
    )


def _produced(results: dict[TopicPartition, messages.PartitionProduceResponse]) -> messages.ProduceResponse:
    by_topic: dict[str, list[messages.PartitionProduceResponse]] = {}
    for tp, result in results.items():
        by_topic.setdefault(tp.topic, []).append(result)
    return messages.ProduceResponse(
        responses=[
            messages.TopicProduceResponse(name=name, partition_responses=parts) for name, parts in by_topic.items()
        ]
    )
