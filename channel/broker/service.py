"""From a frame to an answer: header, body, handler, header, body. What a broker closes the connection for is here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from channel.logs import get_logger
from kproto import codec, headers
from kproto.api import CONTROL_APIS, ApiKey, check_version, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, KprotoError, UnsupportedApi, UnsupportedVersion
from kproto.prefix import prefix_of

from .handlers import api_versions
from .hooks import Interception, RequestContext

if TYPE_CHECKING:
    from channel.network.listener import ReceivedRequest
    from channel.network.server import SocketServer

    from .embedded import EmbeddedBroker

__all__ = ["BrokerService", "SharedBodies", "SharedRequest"]

_log = get_logger(__name__)

_SHARED_FROM: Final = 4096
"""Smaller bodies are cheaper to decode than to remember."""


class SharedRequest:
    """A request decoded once for many brokers: everything is the first one's but the broker epoch."""

    __slots__ = ("broker_epoch", "message")

    def __init__(self, message: Any, broker_epoch: int) -> None:
        self.message = message
        self.broker_epoch = broker_epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    def to_json(self, version: int) -> dict[str, Any]:
        """Kafka's JSON form, with this broker's epoch."""
        form: dict[str, Any] = self.message.to_json(version)
        form["brokerEpoch"] = self.broker_epoch
        return form


class SharedBodies:
    """Remembers the last few large control requests, so that brokers of one process decode each once.

    Args:
        size: How many are remembered.
    """

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int, int], tuple[bytes, bytes, Any]] = OrderedDict()

    def decode(self, api_key: int, version: int, body: memoryview) -> Any:
        """The message; one that was seen before with another broker epoch is not decoded again.

        Raises:
            DecodeError: The bytes are no such message.
        """
        prefix = prefix_of(api_key, version)
        if prefix is None or len(body) < _SHARED_FROM:
            return codec.decode_request(api_key, version, body)
        head, epoch, rest = prefix.cut(body)
        if epoch is None:
            return codec.decode_request(api_key, version, body)
        tail = bytes(rest)  # views compare item by item, a hundred times slower
        key = (api_key, version, len(body))
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] == head and known[1] == tail:
            return SharedRequest(known[2], epoch)
        message = codec.decode_request(api_key, version, body)
        with self._lock:
            self._known[key] = (head, tail, message)
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return SharedRequest(message, epoch)


class BrokerService:
    """Answers the frames of one broker's listener.

    Args:
        broker: Who answers.
        server: Whose timers delay what is to be delayed.
        bodies: Shared by the brokers of a process.
    """

    def __init__(self, broker: EmbeddedBroker, server: SocketServer, bodies: SharedBodies | None = None) -> None:
        self.broker = broker
        self._server = server
        self._bodies = bodies or SharedBodies()

    def __call__(self, received: ReceivedRequest) -> None:
        """Take one frame; whatever cannot be read closes the connection without an answer, as a broker does."""
        payload = memoryview(received.payload)
        connection = received.connection
        try:
            header, at = headers.decode_request_header_from(payload)
            context = RequestContext(
                header.request_api_key,
                header.request_api_version,
                header.correlation_id,
                header.client_id_or_empty,
                connection.listener.name,
                f"{connection.remote[0]}:{connection.remote[1]}",
            )
            request = self._decode(context, payload[at:])
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            _log.warning("broker %d closes %s: %s", self.broker.broker_id, connection, e)
            received.close_connection()
            return
        if request is None:
            self._answer(received, context._replace(version=0), None, api_versions.unsupported())
            return
        intercept = self.broker.hooks.intercept
        plan = intercept(context, request) if intercept is not None else None
        if plan is None:
            self._handle(received, context, request)
        elif plan.delay_s > 0:
            self._server.call_later(
                round(plan.delay_s * 1000), lambda: self._follow_late(received, context, request, plan)
            )
        else:
            self._follow(received, context, request, plan)

    def _decode(self, context: RequestContext, body: memoryview) -> Any:
        """The body; None for an ApiVersions of an unknown version: the one such request that gets an answer."""
        try:
            check_version(context.api_key, context.version)
        except UnsupportedVersion:
            if context.api_key == ApiKey.API_VERSIONS:
                return None
            raise
        if context.api_key in CONTROL_APIS:
            return self._bodies.decode(context.api_key, context.version, body)
        return codec.decode_request(context.api_key, context.version, body)

    def _follow(self, received: ReceivedRequest, context: RequestContext, request: Any, plan: Interception) -> None:
        """Do what the interceptor wants."""
        if plan.drop:
            self._tell(context, request, None)
        elif plan.disconnect == "before":
            self._tell(context, request, None)
            received.close_connection()
        elif plan.disconnect == "after":
            self.broker.handle(context, request)
            self._tell(context, request, None)
            received.close_connection()
        elif plan.error is not None:
            self._answer(received, context, request, request.error_response(plan.error))
        elif plan.answer is not None:
            self._answer(received, context, request, plan.answer)
        else:
            self._handle(received, context, request)

    def _follow_late(
        self, received: ReceivedRequest, context: RequestContext, request: Any, plan: Interception
    ) -> None:
        try:
            self._follow(received, context, request, plan)
        except Exception:  # noqa: BLE001  (as if it had failed at once: the peer must not wait for ever)
            _log.exception("broker %d closes %s", self.broker.broker_id, received.connection)
            received.close_connection()

    def _handle(self, received: ReceivedRequest, context: RequestContext, request: Any) -> None:
        try:
            answer = self.broker.handle(context, request)
        except UnsupportedVersion as e:
            _log.warning("broker %d closes %s: %s", self.broker.broker_id, received.connection, e)
            received.close_connection()
            return
        self._answer(received, context, request, answer)

    def _answer(self, received: ReceivedRequest, context: RequestContext, request: Any, answer: Any) -> None:
        header = headers.encode_response_header(
            headers.response_header(context.correlation_id), response_header_version(context.api_key, context.version)
        )
        try:
            body = codec.encode(answer, context.version)
        except KprotoError:
            _log.exception("broker %d cannot write its answer", self.broker.broker_id)
            if context.api_key not in CONTROL_APIS:
                received.close_connection()  # only the control requests say what an error answer must name
                return
            body = codec.encode(request.error_response(ErrorCode.UNKNOWN_SERVER_ERROR), context.version)
        received.respond([header, body])
        self._tell(context, request, answer)

    def _tell(self, context: RequestContext, request: Any, answer: Any) -> None:
        if self.broker.hooks.answered is None:
            return
        try:
            self.broker.hooks.answered(context, request, answer)
        except Exception:  # noqa: BLE001  (who only watches must not cost the peer its answer)
            _log.exception("broker %d: the hook for answers failed", self.broker.broker_id)
