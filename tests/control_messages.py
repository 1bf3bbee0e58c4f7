"""Builds the three control requests for tests, with the values that a healthy cluster would have."""

from typing import Any

import kproto
from kproto import messages as c
from kproto.types import ZERO_UUID

PLAINTEXT, SSL = 0, 1


def topic_id(name: str) -> bytes:
    """Make a topic id that is easy to recognise in a failure."""
    return name.encode().ljust(16, b".")[:16]


def broker(broker_id: int, *listeners: str, host: str = "localhost", port: int = 9092, rack: str | None = None) -> Any:
    """A live broker; listeners, on ports one after another, default to one PLAINTEXT endpoint."""
    names = listeners or ("PLAINTEXT",)
    endpoints = [
        c.UpdateMetadataEndpoint(port=port + i, host=host, listener=name, security_protocol=SSL if name == "SSL" else 0)
        for i, name in enumerate(names)
    ]
    return c.UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=rack)


def metadata_state(partition: int, leader: int, *, epoch: int = 0, **more: Any) -> Any:
    """A partition state of UpdateMetadata."""
    fields = {"controller_epoch": 1, "isr": [leader], "replicas": [leader], "zk_version": 0, **more}
    return c.UpdateMetadataPartitionState(partition_index=partition, leader=leader, leader_epoch=epoch, **fields)


def update_metadata(
    topics: dict[str, list[Any]], brokers: list[Any] | None = None, *, ids: dict[str, bytes] | None = None, **more: Any
) -> Any:
    """An UpdateMetadata request with topics by name; by default each has the id that ``topic_id`` makes."""
    known = {name: topic_id(name) for name in topics} if ids is None else ids
    states = [
        c.UpdateMetadataTopicState(topic_name=name, topic_id=known.get(name, ZERO_UUID), partition_states=rows)
        for name, rows in topics.items()
    ]
    fields = {"controller_id": 2, "controller_epoch": 1, **more}
    return kproto.UpdateMetadataRequest(topic_states=states, live_brokers=brokers or [], **fields)


def leader_state(partition: int, leader: int, *, epoch: int = 0, **more: Any) -> Any:
    """A partition state of LeaderAndIsr; replicas default to brokers 0 and 1."""
    fields = {"controller_epoch": 0, "isr": [0, 1], "replicas": [0, 1], "partition_epoch": epoch, **more}
    return c.LeaderAndIsrPartitionState(partition_index=partition, leader=leader, leader_epoch=epoch, **fields)


def leader_and_isr(topics: dict[str, list[Any]], *, ids: dict[str, bytes] | None = None, **more: Any) -> Any:
    """A LeaderAndIsr request with topics by name."""
    known = {name: topic_id(name) for name in topics} if ids is None else ids
    states = [
        c.LeaderAndIsrTopicState(topic_name=name, topic_id=known.get(name, ZERO_UUID), partition_states=rows)
        for name, rows in topics.items()
    ]
    return kproto.LeaderAndIsrRequest(topic_states=states, **{"controller_id": 0, "controller_epoch": 0, **more})


def stop_replica(topics: dict[str, list[tuple[int, int, bool]]], **more: Any) -> Any:
    """A StopReplica request with (partition, leader epoch, delete) by topic."""
    states = [
        c.StopReplicaTopicState(
            topic_name=name,
            partition_states=[
                c.StopReplicaPartitionState(partition_index=p, leader_epoch=e, delete_partition=d) for p, e, d in rows
            ],
        )
        for name, rows in topics.items()
    ]
    return kproto.StopReplicaRequest(topic_states=states, **{"controller_id": 0, "controller_epoch": 0, **more})
