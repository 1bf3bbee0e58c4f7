"""Requests of administrators at a fleet's broker: forwarded to the controller in a migration to KRaft, else refused."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from channel.api_errors import error_response
from channel.errors import IllegalState
from channel.logs import get_logger
from channel.network.request import MessageRequest
from channel.network.server import serialized_principal
from kproto import codec, headers, messages
from kproto.api import ApiKey, api_name, response_header_version
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from channel.network.request import ClientResponse

    from .hooks import RequestContext
    from .links import Candidacy
    from .to_controller import NodeToControllerChannel

_log = get_logger(__name__)

_SERVED: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})


class AdministratorRequests:
    """Serves CreateTopics, DeleteTopics and CreatePartitions at a broker; a ``ControllerApis``.

    The active controller serves them itself. Another broker forwards them in an Envelope if it takes part in a
    migration to KRaft, as Kafka's brokers do, since clients cannot reach a KRaft controller. Without a migration it
    answers NOT_CONTROLLER, and the client asks the controller that the broker's metadata name.

    Args:
        candidacy: The broker's part in the controller election; None if it does not stand.
        forwarding: The broker's channel for forwarded requests; None without a migration.

    Attributes:
        keys: The API keys served here: the three, and those of the candidacy.
    """

    def __init__(self, candidacy: Candidacy | None, forwarding: NodeToControllerChannel | None) -> None:
        self._candidacy = candidacy
        self._forwarding = forwarding
        self.keys: Set[int] = _SERVED if candidacy is None else _SERVED | candidacy.apis.keys

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Serve, forward or refuse a request; a response of None closes the connection."""
        candidacy = self._candidacy
        if candidacy is not None and (candidacy.is_active or context.api_key not in _SERVED):
            candidacy.apis(context, request, answer)
        elif self._forwarding is None:
            answer(error_response(context.api_key, request, ErrorCode.NOT_CONTROLLER))
        else:
            self._forward(self._forwarding, context, request, answer)

    def _forward(
        self,
        channel: NodeToControllerChannel,
        context: RequestContext,
        request: Any,
        answer: Callable[[Any], None],
    ) -> None:
        try:
            channel.send_request(
                MessageRequest(_envelope(context, request)),
                lambda response: answer(_response(channel.broker_id, context, request, response)),
                lambda: answer(error_response(context.api_key, request, ErrorCode.REQUEST_TIMED_OUT)),
            )
        except IllegalState:  # the broker is going down
            answer(None)


def _envelope(context: RequestContext, request: Any) -> messages.EnvelopeRequest:
    header = headers.request_header(context.api_key, context.version, context.correlation_id, context.client_id)
    host = context.peer.rpartition(":")[0].partition("%")[0]
    return messages.EnvelopeRequest(
        request_data=headers.encode_request_header(header) + codec.encode(request, context.version),
        request_principal=serialized_principal(context.principal),
        client_host_address=ip_address(host).packed,
    )


def _response(broker_id: int, context: RequestContext, request: Any, forwarded: ClientResponse) -> Any:
    """Return the response for the client; None to close its connection, so that it asks for the API versions again."""
    envelope = forwarded.body
    if envelope is None:
        failure = forwarded.failure
    elif envelope.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return None
    elif envelope.error_code != ErrorCode.NONE:
        failure = error_name(envelope.error_code)
    else:
        data = memoryview(envelope.response_data or b"")
        try:
            _, at = headers.decode_response_header_from(data, response_header_version(context.api_key, context.version))
            return codec.decode_response(context.api_key, context.version, data[at:])
        except DecodeError as e:
            failure = str(e)
    name = api_name(context.api_key)
    _log.warning("broker %d: the controller did not take a forwarded %s: %s", broker_id, name, failure)
    return error_response(context.api_key, request, ErrorCode.UNKNOWN_SERVER_ERROR)
