"""The znodes of a Kafka cluster: their paths, and their contents as JSON that Kafka 3.9 and its predecessors read.

A decoder raises ``DecodeError`` about contents that are not the znode's own; the text names the znode.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from channel.addresses import show_address
from channel.logs import bounded, get_logger
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
)
from kproto.api import ibp_at_least
from kproto.errors import DecodeError
from kproto.json_form import uuid_from_json, uuid_to_json
from kproto.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

_log = get_logger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
CONFIG_CHANGES: Final = "/config/changes"
ADMIN_DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
ACLS: Final = "/kafka-acl"

PERSISTENT: Final = (
    BROKER_IDS,
    BROKER_SEQID,
    TOPICS,
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    CONFIG_CHANGES,
    ADMIN_DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
)
"""The znodes that the first process of a cluster creates, without contents."""


def broker_path(broker_id: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partition_path(tp: TopicPartition) -> str:
    """The path above a partition's state."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def partition_state_path(tp: TopicPartition) -> str:
    """The path of a partition's leader and ISR."""
    return f"{partition_path(tp)}/state"


# ---- contents --------------------------------------------------------------------------------------------------------

_LONGEST: Final = (1 << 15) - 1
"""The length in bytes of the longest text that every version of a control request can hold."""


def json_bytes(value: Any) -> bytes:
    """Write a value without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


class Decoding:
    """Turns any error while contents are decoded into a ``DecodeError`` that names the znode."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)):
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise DecodeError(f"znode {self._path} holds no contents that Kafka would write there: {why}") from error


def decoded_or_none(decode: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """Decode contents; None, with a line in the log, if they are damaged."""
    try:
        return decode(*args, **kwargs)
    except DecodeError as e:
        _log.error("%s; the znode is passed over: correct or delete it", bounded(str(e)))
        return None


def json_object(data: bytes) -> dict[str, Any]:
    """Read an object; a ``ValueError`` or ``TypeError`` for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError(f"not a JSON object but {type(value).__name__}")
    return value


def whole_number(value: object) -> int:
    """Return a number of the contents, which fits into 32 bits; ``TypeError`` or ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError(f"{value} does not fit into 32 bits")
    return value


def natural_number(text: str) -> int:
    """Return the number that decimal digits spell, a partition or a port; ``ValueError`` for anything else."""
    value = whole_number(int(text))
    if str(value) != text or value < 0:
        raise ValueError(f"{text!r} is no number from 0")
    return value


def whole_numbers(values: Iterable[object]) -> tuple[int, ...]:
    """Return an array of such numbers; ``TypeError`` or ``ValueError`` for anything else."""
    return tuple([whole_number(v) for v in values])


def string(value: object) -> str:
    """Return a text of the contents that a request can hold; ``TypeError`` or ``ValueError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if len(value.encode()) > _LONGEST:
        raise ValueError(f"a text of {len(value)} characters is too long")
    return value


# ---- the controller --------------------------------------------------------------------------------------------------


class ControllerRegistration(NamedTuple):
    """The contents of ``/controller``: who leads, its KRaft epoch if it is a KRaft controller, and since when.

    ``timestamp_ms`` is in ms since 1970, -1 if the znode does not tell it.
    """

    broker_id: int
    kraft_epoch: int = -1
    timestamp_ms: int = -1


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """The contents of ``/controller`` for a ZooKeeper controller."""
    return json_bytes({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> ControllerRegistration:
    """The active controller."""
    with Decoding(CONTROLLER):
        value = json_object(data)
        return ControllerRegistration(
            whole_number(value["brokerid"]),
            whole_number(value.get("kraftControllerEpoch", -1)),
            int(value.get("timestamp", -1)),
        )


# ---- brokers ---------------------------------------------------------------------------------------------------------


def encode_broker(broker: Broker, ibp: str, timestamp_ms: int) -> bytes:
    """A broker's registration under an inter.broker.protocol.version: JSON version 5, 4 or 2.

    Args:
        broker: Its endpoints and rack.
        ibp: The broker's inter.broker.protocol.version.
        timestamp_ms: The time of registration, ms since 1970.
    """
    version = 5 if ibp_at_least(ibp, "2.7-IV0") else 4 if ibp_at_least(ibp, "0.10.0-IV1") else 2
    plain = next((e for e in broker.endpoints if e.security_protocol == SecurityProtocol.PLAINTEXT), None)
    value: dict[str, Any] = {
        "version": version,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [f"{e.listener_name}://{show_address((e.host, e.port))}" for e in broker.endpoints],
    }
    if version >= 3 and broker.rack is not None:
        value["rack"] = broker.rack
    if version >= 4:
        value["listener_security_protocol_map"] = {
            e.listener_name: SecurityProtocol(e.security_protocol).name for e in broker.endpoints
        }
    if version >= 5:
        value["features"] = {}  # brokers with ZooKeeper have none
    return json_bytes(value)


def decode_broker_id(name: str) -> int:
    """The broker id that a child of ``/brokers/ids`` is named after."""
    with Decoding(f"{BROKER_IDS}/{name}"):
        return natural_number(name)


def decode_broker(broker_id: int, data: bytes) -> Broker:
    """A broker's registration, of JSON version 1 to 5."""
    with Decoding(broker_path(broker_id)):
        value = json_object(data)
        if whole_number(value["version"]) == 1:
            return Broker(broker_id, (EndPoint(string(value["host"]), whole_number(value["port"])),))
        protocols = value.get("listener_security_protocol_map")
        endpoints = tuple([_endpoint(string(text), protocols) for text in value["endpoints"]])
        rack = value.get("rack")
        return Broker(broker_id, endpoints, None if rack is None else string(rack))


def _endpoint(text: str, protocols: Mapping[str, str] | None) -> EndPoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    protocol = SecurityProtocol[listener if protocols is None else protocols[listener]]
    return EndPoint(host.removeprefix("[").removesuffix("]"), natural_number(port), listener, protocol)


# ---- topics and partitions -------------------------------------------------------------------------------------------


class TopicZnode(NamedTuple):
    """The contents of a topic's znode; ``topic_id`` is None before Kafka 2.8."""

    partitions: dict[int, ReplicaAssignment]
    topic_id: Uuid | None = None


def encode_topic(partitions: Mapping[int, ReplicaAssignment], topic_id: Uuid | None) -> bytes:
    """A topic's znode, JSON version 3."""
    value: dict[str, Any] = {
        "version": 3,
        "partitions": {str(p): list(partitions[p].replicas) for p in sorted(partitions)},
        "adding_replicas": {str(p): list(a.adding) for p, a in sorted(partitions.items()) if a.adding},
        "removing_replicas": {str(p): list(a.removing) for p, a in sorted(partitions.items()) if a.removing},
    }
    if topic_id is not None:
        value["topic_id"] = uuid_to_json(topic_id)
    return json_bytes(value)


def decode_topic(topic: str, data: bytes) -> TopicZnode:
    """A topic's znode, of JSON version 1 to 3."""
    with Decoding(topic_path(topic)):
        value = json_object(data)
        adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
        partitions = {
            natural_number(p): ReplicaAssignment(
                whole_numbers(replicas), whole_numbers(adding.get(p, ())), whole_numbers(removing.get(p, ()))
            )
            for p, replicas in value["partitions"].items()
        }
        for p, (replicas, *_) in partitions.items():
            if len(set(replicas)) < len(replicas) or min(replicas, default=0) < 0:
                raise ValueError(f"the replicas {list(replicas)} of partition {p} are not on different brokers")
        text = value.get("topic_id")
        return TopicZnode(partitions, None if text is None else uuid_from_json(text))


def encode_partition_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    """A partition's state; the partition epoch is not in it, as it is the znode's version."""
    value = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.recovery_state != LeaderRecoveryState.RECOVERED:
        value["leader_recovery_state"] = int(state.recovery_state)
    return json_bytes(value)


def decode_partition_state(tp: TopicPartition, data: bytes, version: int) -> LeaderIsrAndControllerEpoch:
    """A partition's state; ``version`` is the znode's."""
    with Decoding(partition_state_path(tp)):
        value = json_object(data)
        state = LeaderAndIsr(
            whole_number(value["leader"]),
            whole_numbers(value["isr"]),
            whole_number(value["leader_epoch"]),
            version,
            LeaderRecoveryState(value.get("leader_recovery_state", 0)),
        )
        return LeaderIsrAndControllerEpoch(state, whole_number(value["controller_epoch"]))


# ---- lists of partitions ---------------------------------------------------------------------------------------------


def encode_partitions(partitions: Collection[TopicPartition]) -> bytes:
    """A list of partitions: preferred elections and ISR changes."""
    return json_bytes(
        {"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]}
    )


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """A list of partitions; ``path`` is the znode's."""
    with Decoding(path):
        return [
            TopicPartition(string(e["topic"]), whole_number(e["partition"])) for e in json_object(data)["partitions"]
        ]


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Decode the broker that reports a failed log directory; ``path`` is the znode's."""
    with Decoding(path):
        return whole_number(json_object(data)["broker"])


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """The contents of ``/admin/reassign_partitions``."""
    entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": list(r)} for tp, r in targets.items()]
    return json_bytes({"version": 1, "partitions": entries})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The target replicas of each partition in ``/admin/reassign_partitions``."""
    with Decoding(REASSIGN_PARTITIONS):
        entries = json_object(data)["partitions"]
        return {
            TopicPartition(string(e["topic"]), whole_number(e["partition"])): whole_numbers(e["replicas"])
            for e in entries
        }


# ---- configuration and producer ids ----------------------------------------------------------------------------------


def encode_config(settings: Mapping[str, str]) -> bytes:
    """The settings of a topic or a broker that differ from the defaults."""
    return json_bytes({"version": 1, "config": dict(settings)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The settings of a topic or a broker that differ from the defaults; ``path`` is the znode's."""
    with Decoding(path):
        return {str(key): str(value) for key, value in json_object(data)["config"].items()}


def decode_config_change(path: str, data: bytes) -> str:
    """The entity whose settings have changed, ``topics/orders`` or ``brokers/<default>``; ``path`` is the znode's."""
    with Decoding(path):
        value = json_object(data)
        if whole_number(value["version"]) == 1:
            return f"{string(value['entity_type'])}/{string(value['entity_name'])}"
        return string(value["entity_path"])


def encode_config_change(entity: str) -> bytes:
    """A notification of changed settings, of an entity as ``decode_config_change`` names it."""
    return json_bytes({"version": 2, "entity_path": entity})


class ProducerIdBlock(NamedTuple):
    """A block of producer ids that belongs to a broker, up to and including ``last``."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The contents of ``/latest_producer_id_block``."""
    return json_bytes(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """Decode the block of producer ids that was allocated last."""
    with Decoding(PRODUCER_ID_BLOCK):
        value = json_object(data)
        return ProducerIdBlock(whole_number(value["broker"]), int(value["block_start"]), int(value["block_end"]))
