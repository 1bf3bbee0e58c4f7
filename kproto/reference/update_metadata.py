"""UpdateMetadata (6): the controller sends a broker the cluster's metadata. Versions 0 to 8.

What each version brought:

    0  every broker with one plaintext address
    1  every broker with as many endpoints as it has security protocols
    2  racks
    3  endpoints have listener names, since one protocol may serve several listeners
    4  replicas that are offline
    5  states grouped by topic; the broker's epoch
    6  flexible: compact forms, tagged fields
    7  topic ids
    8  ``is_kraft_controller``, and ``type`` (1 some, 2 all partitions) as a tagged field: for migrations to KRaft
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Int64, Nullable, String, Uuid
from .fields import Since, Tagged, Until
from .struct import RequestMessage, ResponseMessage, Struct, flat_view

if TYPE_CHECKING:
    from kproto.types import BrokerId
    from kproto.types import Uuid as UuidBytes

_SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class UpdateMetadataPartitionState(Struct):
    """One partition: leader, in-sync replicas, assigned replicas.

    ``zk_version`` is the version of the partition's state in ZooKeeper.
    """

    topic_name: str = Until(4, String, ignorable=True)
    partition_index: int = Int32
    controller_epoch: int = Int32
    leader: int = Int32
    leader_epoch: int = Int32
    isr: tuple[int, ...] = ArrayOf(Int32)
    zk_version: int = Int32
    replicas: tuple[int, ...] = ArrayOf(Int32)
    offline_replicas: tuple[int, ...] = Since(4, ArrayOf(Int32), ignorable=True)


class UpdateMetadataTopicState(Struct):
    """The partitions of one topic, versions 5 and above."""

    topic_name: str = Since(5, String)
    topic_id: bytes = Since(7, Uuid, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = Since(5, ArrayOf(UpdateMetadataPartitionState))


class UpdateMetadataEndpoint(Struct):
    """One address of a broker. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    port: int = Since(1, Int32)
    host: str = Since(1, String)
    listener: str = Since(3, String, ignorable=True)
    security_protocol: int = Since(1, Int16)


class UpdateMetadataBroker(Struct):
    """A broker that is alive."""

    id: int = Int32
    v0_host: str = Until(0, String, ignorable=True)
    v0_port: int = Until(0, Int32, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = Since(1, ArrayOf(UpdateMetadataEndpoint), ignorable=True)
    rack: str | None = Since(2, Nullable(String), ignorable=True)


class BrokerEndpoints(NamedTuple):
    """A live broker's addresses whatever the version: a row of ``UpdateMetadataRequest.broker_endpoints``."""

    broker_id: BrokerId
    endpoints: list[UpdateMetadataEndpoint]
    rack: str | None


class UpdateMetadataRequest(RequestMessage, api_key=ApiKey.UPDATE_METADATA):
    """The live brokers, and the states of partitions."""

    controller_id: int = Int32
    is_kraft_controller: bool = Since(8, Bool)
    type: int = Tagged(0, Int8, since=8)
    controller_epoch: int = Int32
    broker_epoch: int = Since(5, Int64, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = Until(4, ArrayOf(UpdateMetadataPartitionState))
    topic_states: list[UpdateMetadataTopicState] = Since(5, ArrayOf(UpdateMetadataTopicState))
    live_brokers: list[UpdateMetadataBroker] = ArrayOf(UpdateMetadataBroker)

    @property
    def partition_states(self) -> tuple[UpdateMetadataPartitionState, ...]:
        """All partition states in wire order, each with its topic's name, whatever the version: a read-only view."""
        return flat_view(self.ungrouped_partition_states, self.topic_states)

    @property
    def topic_ids(self) -> dict[str, UuidBytes]:
        """Topic names to ids: empty below version 5, zero ids below version 7."""
        return {topic.topic_name: topic.topic_id for topic in self.topic_states}

    @property
    def broker_endpoints(self) -> list[BrokerEndpoints]:
        """Every live broker's addresses, whatever the version.

        Version 0 has one plaintext address for each broker. Versions 1 and 2 have no listener names, and the name is
        that of the security protocol; an unknown protocol leaves it empty.
        """
        return [BrokerEndpoints(broker.id, self._endpoints(broker), broker.rack) for broker in self.live_brokers]

    def _endpoints(self, broker: UpdateMetadataBroker) -> list[UpdateMetadataEndpoint]:
        if self.version >= 3:
            return list(broker.endpoints)
        if self.version >= 1:
            return [
                endpoint.replace(listener=_SECURITY_PROTOCOLS.get(endpoint.security_protocol, ""))
                for endpoint in broker.endpoints
            ]
        return [UpdateMetadataEndpoint(port=broker.v0_port, host=broker.v0_host, listener="PLAINTEXT")]

    def error_response(self, error_code: int) -> UpdateMetadataResponse:
        """Make the answer that refuses the request."""
        return UpdateMetadataResponse(version=self.version, error_code=error_code)


class UpdateMetadataResponse(ResponseMessage, api_key=ApiKey.UPDATE_METADATA):
    """The broker's answer: one error code for the request; flexible since version 6."""

    error_code: int = Int16
