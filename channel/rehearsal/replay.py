"""Sends the requests that a broker got from its controller to another broker, and compares the responses.

The addresses in captured requests are those of production brokers: a broker that obeyed them would fetch from there.
So every address is rewritten before a request is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from channel.addresses import show_address
from channel.network.node_client import NodeClient
from channel.threads import Closeable
from channel.types import NO_BROKER_EPOCH, SecurityProtocol
from kproto import codec
from kproto.api import CONTROL_APIS, ApiKey
from kproto.error_codes import error_name
from kproto.errors import ConfigurationError
from kproto.json_form import uuid_to_json
from kproto.prefix import prefix_of
from kproto.reference.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.reference.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel.security import SecurityConfig
    from kproto.capture import Exchange

_CLIENT_ID: Final = "kproto-replay"
_BROKER: Final = 4  # the type of a broker among the resources of DescribeConfigs
_LOOPBACK: Final = "127.0.0.1"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Responded:
    """A response's errors.

    Attributes:
        error_code: Of the whole request.
        partitions: (topic, or its id; partition; error code) of the partitions with an error, sorted.
    """

    error_code: int
    partitions: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        of_partitions = [f"{topic}-{index} {error_name(code)}" for topic, index, code in self.partitions]
        return ", ".join([error_name(self.error_code) if self.error_code else "ok", *of_partitions])


@dataclass(frozen=True, slots=True)
class Replayed:
    """A request that was sent again.

    Attributes:
        exchange: As it was captured.
        captured: The response in the capture; None: there is none that can be read.
        response: The other broker's response.
    """

    exchange: Exchange
    captured: Responded | None
    response: Responded

    @property
    def differs(self) -> bool:
        """Whether both brokers answered, and in two ways."""
        return self.captured is not None and self.captured != self.response


class Replay(Closeable):
    """A connection to the broker that gets the requests; use it in a ``with``.

    Args:
        address: The broker's listener.
        broker_id: The id of the captured broker; the other broker must have the same.
        endpoints: The address that stands for each address in the requests; by default the same port on loopback.
        broker_epoch: The broker epoch to put into requests; -1, which Kafka accepts from any controller.
        protocol, security: The security protocol of the listener and its settings.
        timeout_ms: The longest time to wait for the connection, and for each response.
    """

    def __init__(
        self,
        address: Address,
        broker_id: int,
        *,
        endpoints: Mapping[Address, Address] | None = None,
        broker_epoch: int = NO_BROKER_EPOCH,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._broker_id = broker_id
        self._endpoints = endpoints or {}
        self._broker_epoch = broker_epoch
        self._client = NodeClient(address, _CLIENT_ID, protocol=protocol, security=security, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def check(self, *, force: bool = False) -> None:
        """Make sure that the broker may be sent the requests.

        Args:
            force: Also a broker that has a controller.

        Raises:
            ConfigurationError: The broker has another id, or a controller.
            ChannelError: It cannot be reached.
        """
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(self._broker_id), configuration_keys=["broker.id", "node.id"]
        )
        (described,) = self._client.ask(DescribeConfigsRequest(resources=[resource]), 1).results
        if described.error_code:
            raise ConfigurationError(
                f"the broker at {show_address(self._client.address)} is not broker {self._broker_id}: "
                f"{described.error_message or error_name(described.error_code)}"
            )
        controller = self._client.ask(MetadataRequest(topics=[]), 1).controller_id
        if controller >= 0 and not force:
            raise ConfigurationError(
                f"broker {self._broker_id} has a controller, {controller}, which would take back what is replayed; "
                "replay to a broker without one, or name --force"
            )

    def send(self, exchange: Exchange) -> Replayed | None:
        """Send a captured request with its addresses and broker epoch rewritten, and wait for the response.

        Returns:
            What came of it; None if the capture does not hold the whole request.

        Raises:
            ChannelError: No response came.
        """
        message, version = exchange.request_message, exchange.api_version
        if message is None or version is None or exchange.api_key not in CONTROL_APIS:
            return None
        sent = rewrite(message, version, self._endpoints, self._broker_epoch)
        response = _responded(self._client.ask(sent, version))
        captured = exchange.response_message
        return Replayed(exchange, None if captured is None else _responded(captured), response)


def rewrite(message: Any, version: int, endpoints: Mapping[Address, Address], broker_epoch: int) -> Any:
    """Return a copy of a request that names no address of the captured cluster.

    Args:
        endpoints: The address that stands for each; an address that is not in it becomes the same port on loopback.
        broker_epoch: The broker epoch to put in, where this version has one.
    """
    message = codec.decode_request(message.api_key, version, codec.encode(message, version))
    prefix = prefix_of(message.api_key, version)
    if prefix is not None and prefix.broker_epoch_at is not None:
        message.broker_epoch = broker_epoch

    def other(host: str, port: int) -> Address:
        return endpoints.get((host, port), (_LOOPBACK, port))

    if message.api_key == ApiKey.LEADER_AND_ISR:
        for leader in message.live_leaders:
            leader.host_name, leader.port = other(leader.host_name, leader.port)
    elif message.api_key == ApiKey.UPDATE_METADATA:
        for broker in message.live_brokers:
            if version == 0:
                broker.v0_host, broker.v0_port = other(broker.v0_host, broker.v0_port)
            for endpoint in broker.endpoints:
                endpoint.host, endpoint.port = other(endpoint.host, endpoint.port)
    return message


def _responded(response: Any) -> Responded:
    partitions = [(e.topic_name, e.partition_index, e.error_code) for e in getattr(response, "partition_errors", ())]
    for topic in getattr(response, "topics", ()):
        name = uuid_to_json(topic.topic_id)
        partitions += [(name, e.partition_index, e.error_code) for e in topic.partition_errors]
    return Responded(response.error_code, tuple(sorted(p for p in partitions if p[2])))
