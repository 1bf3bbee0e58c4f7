"""Requests of clients and tools to a controller's node, which answers them, or passes them to a live broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.api_errors import error_response
from channel.broker.metadata_cache import INTERNAL_TOPICS
from channel.lead.events import CONFIG_APIS, CONTROLLER_APIS, ApiRequest
from channel.logs import get_logger
from channel.threads import once
from kproto import codec, headers, messages
from kproto.api import ApiKey, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, KprotoError, UnsupportedApi, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext
    from channel.config import ChannelConfig
    from channel.lead.election import Controller

    from .frame_relay import FrameRelay


_log = get_logger(__name__)

_BROKER: Final = 4
_OF_RESOURCES: Final = CONFIG_APIS | {ApiKey.DESCRIBE_CONFIGS}
_TRANSACTION_STATES: Final = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip


_OF_TOPICS: Final = {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}
"""The controller's APIs that Kafka refuses topic by topic."""

_BY_RIGHTS: Final = _OF_RESOURCES | {ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID}
"""The requests that any broker may answer, according to the client's rights."""


class SuperUsers:
    """The users who may do everything where there is an authorizer; the node reads no ACLs and grants others nothing.

    Args:
        config: Kafka's ``authorizer.class.name``; without it everybody may do everything. Kafka's ``super.users``.
    """

    def __init__(self, config: ChannelConfig) -> None:
        self.has_authorizer = config.authorizer_class_name is not None
        self._names = frozenset(filter(None, map(str.strip, (config.super_users or "").split(";"))))

    def __contains__(self, context: RequestContext) -> bool:
        """Whether the sender of a request may do everything."""
        return not self.has_authorizer or context.principal in self._names

    def refusal(self, context: RequestContext, request: Any) -> Any:
        """Make Kafka's response to a request to the controller that its sender may not make."""
        if context.api_key == ApiKey.ENVELOPE:
            return messages.EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        of_topics = context.api_key in _OF_TOPICS
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if of_topics else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return error_response(context.api_key, request, code)


class ForwardedRequests:
    """Hands requests of a broker's listener to its controller's event thread; a ``ControllerApis``.

    Args:
        controller: The candidate that serves the requests, or refuses them while it is not active.

    Attributes:
        keys: The API keys that a candidate's listener serves besides those of a broker, Envelope among them.
    """

    keys: Set[int] = CONTROLLER_APIS | {ApiKey.ENVELOPE}

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Queue a request as an event; a response of None closes the connection."""
        if context.api_key == ApiKey.ENVELOPE:
            self._unwrap(request, answer)
        else:
            self._ask(context.api_key, context.version, request, answer)

    def _ask(self, api_key: int, version: int, request: Any, answer: Callable[[Any], None]) -> None:
        self._controller.ask(ApiRequest(api_key, version, request, once(answer)))

    def _unwrap(self, envelope: Any, answer: Callable[[Any], None]) -> None:
        """Serve a request that a broker forwarded in an Envelope; its response is wrapped, with its own header."""
        try:
            data = memoryview(envelope.request_data)
            header, at = headers.decode_request_header_from(data)
            key, version = header.request_api_key, header.request_api_version
            if key not in CONTROLLER_APIS | CONFIG_APIS:
                raise UnsupportedApi(key)  # noqa: TRY301
            request = codec.decode_request(key, version, data[at:])
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            _log.warning("controller %d refuses an envelope: %s", self._controller.controller_id, e)
            answer(messages.EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        def wrap(response: Any) -> None:
            first = headers.encode_response_header(
                headers.response_header(header.correlation_id), response_header_version(key, version)
            )
            wrapped = messages.EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
            if self._controller.is_active:
                try:
                    wrapped = messages.EnvelopeResponse(response_data=first + codec.encode(response, version))
                except KprotoError:
                    _log.exception("controller %d cannot write its answer", self._controller.controller_id)
                    wrapped = messages.EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            answer(wrapped)

        self._ask(key, version, request, wrap)


class NodeRequests:
    """Answers what a node without records can answer, and hands the rest to its controller; a ``ControllerApis``.

    The node coordinates no groups and no transactions, so its lists of these are empty, and so is its log directory.

    Args:
        broker: The node as a broker.
        controller: The node's controller.
        super_users: The principals that may send requests to the controller.

    Attributes:
        keys: The API keys that are answered here.
    """

    keys: Set[int] = (
        ForwardedRequests.keys
        | CONFIG_APIS
        | {ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_TRANSACTIONS}
    )

    def __init__(self, broker: EmbeddedBroker, controller: Controller, super_users: SuperUsers) -> None:
        self._broker = broker
        self._super_users = super_users
        self._forward = ForwardedRequests(controller)

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Answer a request; a response of None closes the connection."""
        match context.api_key:
            case ApiKey.FIND_COORDINATOR:
                answer(_coordinators(self._broker, context, request))
            case ApiKey.LIST_GROUPS:
                answer(messages.ListGroupsResponse())
            case ApiKey.DESCRIBE_LOG_DIRS:
                # An answer without any directory is a refusal to Kafka's clients.
                answer(messages.DescribeLogDirsResponse(results=[messages.DescribeLogDirsResult(log_dir="none")]))
            case ApiKey.LIST_TRANSACTIONS:
                unknown = [state for state in request.state_filters if state not in _TRANSACTION_STATES]
                answer(messages.ListTransactionsResponse(unknown_state_filters=unknown))
            case _ if context in self._super_users:
                self._forward(context, request, answer)
            case _:
                answer(self._super_users.refusal(context, request))


class PassedRequests:
    """Decides which requests go to a live broker, and passes them on; a ``PassedOn``.

    Where the node cannot speak for a client, it closes the connection, and the client asks another broker: Kafka's
    clients try no other broker after an error that an answer names.

    Args:
        broker: The node as a broker.
        relay: Passes frames to brokers.
        super_users: The principals that the node answers itself, without asking a broker for their rights.

    Where brokers have an authorizer nothing is passed on at all: it would decide by this node's address in place of the
    client's, and brokers in ZooKeeper mode take no Envelope, which could name the client's.

    Attributes:
        keys: The API keys of which some or all requests are passed on.
        brokers_authorize: Whether the brokers have an authorizer; the owner sets it where ZooKeeper holds ACLs.
    """

    keys: Set[int] = _BY_RIGHTS | {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
    }

    def __init__(self, broker: EmbeddedBroker, relay: FrameRelay, super_users: SuperUsers) -> None:
        self._broker = broker
        self._relay = relay
        self._super_users = super_users
        self.brokers_authorize = super_users.has_authorizer
        self._has_told = False

    def takes(self, context: RequestContext, body: memoryview) -> bool:
        """Whether a request goes to another broker.

        Raises:
            DecodeError: The request is damaged.
        """
        key = context.api_key
        if key not in self.keys:
            return False
        if key in _BY_RIGHTS and context not in self._super_users:
            # Brokers alone everybody may see; and a broker that has just started does not know them yet.
            return key != ApiKey.METADATA or not _asks_for_brokers(context, body)
        if key == ApiKey.FIND_COORDINATOR:  # a broker creates the topic of its coordinators when it is first asked
            request = codec.decode_request(key, context.version, body)
            topic = _topic_of(request.key_type)
            return topic is not None and not self._broker.metadata.contains(topic)
        if key in _OF_RESOURCES:
            own = _BROKER, str(self._broker.broker_id)
            resources = codec.decode_request(key, context.version, body).resources
            return own not in {(each.resource_type, each.resource_name) for each in resources}
        return key not in _BY_RIGHTS

    def __call__(self, context: RequestContext, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Pass a request on; ``answer`` takes the response, None to close the connection, from any thread."""
        if self.brokers_authorize:
            if not self._has_told:
                self._has_told = True
                _log.warning(
                    "the connection of %s (%s) is closed: the brokers have an authorizer, so that requests which a "
                    "broker has to answer are not passed on, and clients ask another broker; told once",
                    context.principal, context.peer,
                )  # fmt: skip
            answer(None)
            return
        self._relay(context.principal, frame, answer)


def _asks_for_brokers(context: RequestContext, body: memoryview) -> bool:
    """Whether a Metadata request names no topic, which in version 0 asks for all topics."""
    topics = codec.decode_request(ApiKey.METADATA, context.version, body).topics
    return context.version > 0 and topics is not None and not topics


def _topic_of(key_type: int) -> str | None:
    """The internal topic that holds the keys of a type, None for an unknown type."""
    return INTERNAL_TOPICS[key_type] if 0 <= key_type < len(INTERNAL_TOPICS) else None


def _coordinators(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Name the leaders of the internal topics' partitions."""
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    found = [_coordinator(broker, context, request.key_type, key) for key in keys]
    if context.version >= 4:
        return messages.FindCoordinatorResponse(coordinators=found)
    names = "error_code", "error_message", "node_id", "host", "port"
    return messages.FindCoordinatorResponse(**{name: getattr(found[0], name) for name in names})


def _coordinator(broker: EmbeddedBroker, context: RequestContext, key_type: int, key: str) -> Any:
    def unknown(code: ErrorCode) -> Any:
        return messages.Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=None)

    topic = _topic_of(key_type)
    if topic is None:
        return unknown(ErrorCode.INVALID_REQUEST)
    metadata = broker.metadata
    for each in metadata.topic_metadata([topic], context.listener):
        partition = _partition_of(key, len(each.partitions))
        leader = next((p.leader_id for p in each.partitions if p.partition_index == partition), -1)
        node = next((n for n in metadata.nodes(context.listener)[0] if n.id == leader), None)
        if node is not None:
            return messages.Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message=None)
    return unknown(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _partition_of(key: str, count: int) -> int:
    """The partition that holds a group or a transactional id: by Java's hash code of the text."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % max(count, 1)
