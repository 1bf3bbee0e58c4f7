"""Requests that arrive at a candidate's listener, directly or in an Envelope, are handed to its controller."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from channel.controller.api_requests import CONFIG_APIS, CONTROLLER_APIS, api_request
from channel.logs import get_logger
from kproto import codec, headers, messages
from kproto.api import ApiKey, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, UnsupportedApi, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from channel.broker.hooks import RequestContext
    from channel.controller.controller import Controller
    from kproto.messages import RequestHeader

__all__ = ["ForwardedRequests"]

_log = get_logger(__name__)


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
        self._controller.ask(api_request(api_key, version, request, _once(answer)))

    def _unwrap(self, envelope: Any, answer: Callable[[Any], None]) -> None:
        """Serve a request that a broker forwarded in an Envelope; its response is wrapped, with its own header."""
        try:
            header, request = _inner_request(memoryview(envelope.request_data))
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            _log.warning("controller %d refuses an envelope: %s", self._controller.controller_id, e)
            answer(messages.EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        key, version = header.request_api_key, header.request_api_version

        def wrap(response: Any) -> None:
            first = headers.encode_response_header(
                headers.response_header(header.correlation_id), response_header_version(key, version)
            )
            if not self._controller.is_active:
                answer(messages.EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            else:
                answer(messages.EnvelopeResponse(response_data=first + codec.encode(response, version)))

        self._ask(key, version, request, wrap)


def _inner_request(data: memoryview) -> tuple[RequestHeader, Any]:
    """Decode header and body of the request in an envelope."""
    header, at = headers.decode_request_header_from(data)
    if header.request_api_key not in CONTROLLER_APIS | CONFIG_APIS:
        raise UnsupportedApi(header.request_api_key)
    return header, codec.decode_request(header.request_api_key, header.request_api_version, data[at:])


def _once(answer: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap a respond function so that only its first call counts: an event may fail after it has responded."""
    sent = threading.Lock()

    def first(response: Any) -> None:
        if sent.acquire(blocking=False):
            answer(response)

    return first
