"""A broker's request service: it decodes frames, calls handlers, and encodes answers or closes the connection."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from channel.api_errors import error_response
from channel.errors import IllegalState
from channel.logs import PeerLines, get_logger
from kproto import codec, headers
from kproto.api import CONTROL_APIS, ApiKey, api_name, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, FrameTooLarge, KprotoError, UnsupportedApi, UnsupportedVersion

from .delayed_answers import DELAYED_APIS, DelayedAnswers
from .embedded import LARGEST_BODY, LARGEST_CONTROLLER_BODY, LARGEST_RECORD_BODY, RECORD_VERSIONS, SLOW
from .handlers import error_answer, handle, unsupported_api_versions
from .hooks import NO_RESPONSE, Interception, RequestContext
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.network.server import ReceivedRequest, SocketServer

    from .embedded import EmbeddedBroker
    from .hooks import RecordApis

_log = get_logger(__name__)


SETTINGS_S: Final = 10.0
"""The time in which a DescribeConfigs is answered, with REQUEST_TIMED_OUT if its settings have not been read."""


SETTINGS_READ_S: Final = 5.0
"""The longest wait for ZooKeeper, so that a thread is free again soon after ZooKeeper has gone away."""


def settings_worker(name: str) -> Worker:
    """Make the worker that reads settings for the brokers of a process, of which ZooKeeper may have to be asked.

    Its threads alone wait for that; requests that find 64 others before them are answered REQUEST_TIMED_OUT at once.

    Args:
        name: Names its threads.
    """
    return Worker(f"{name}-settings-thread", threads=2, most_waiting=64)


class BrokerService:
    """Answers the frames of one broker's listener.

    Control requests are served on the network thread. APIs whose codec is slow are served on the worker, so that a
    large message holds up no other broker of the process.

    Args:
        broker: The broker that answers.
        server: The socket server, whose timers delay requests.
        worker: Serves the slow APIs.
        settings: Serves DescribeConfigs; see ``settings_worker``.
        delayed: The answers that wait for metadata.
    """

    def __init__(
        self, broker: EmbeddedBroker, server: SocketServer, worker: Worker, settings: Worker, delayed: DelayedAnswers
    ) -> None:
        self.broker = broker
        self._delayed = delayed
        self._server = server
        self._worker = worker
        self._settings = settings
        self._tell = PeerLines(_log)

    def __call__(self, received: ReceivedRequest) -> None:
        """Take a frame; an unreadable frame closes the connection without an answer, as in Kafka."""
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
                len(payload),
                connection.principal,
            )
            body = payload[at:]
            passed_on = self.broker.hooks.passed_on
            if passed_on is not None and passed_on.takes(context, body):
                passed_on(
                    context,
                    bytes(payload),
                    lambda answer: received.close_connection() if answer is None else received.respond([answer]),
                )
                return
            largest: int | None = LARGEST_BODY.get(context.api_key)  # type: ignore[call-overload]
            if context.api_key in self.broker.controller_keys:
                largest = LARGEST_CONTROLLER_BODY
            elif context.api_key in LARGEST_RECORD_BODY:
                largest = self._largest_record_body(context)
            if largest is not None and len(body) > largest:
                raise FrameTooLarge(
                    f"a {api_name(context.api_key)} request of {len(body)} bytes; an embedded broker reads {largest}"
                )
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            self._refuse(received, e)
            return
        self._run(context, received, lambda: self._serve(received, context, body))

    def _largest_record_body(self, context: RequestContext) -> int:
        """Return the longest body of a record request; an ``UnsupportedVersion`` closes the connection."""
        name, api_key = api_name(context.api_key), ApiKey(context.api_key)
        records = self.broker.records
        if records is None or api_key not in records.keys:
            detail = f"{name} of client {context.client_id!r}, but this node stores no records"
            raise UnsupportedVersion(api_key, context.version, name, detail=detail)
        low, high = RECORD_VERSIONS.get(api_key, (0, api_key.info.max_version))
        if not low <= context.version <= high:
            raise UnsupportedVersion(api_key, context.version, name, low, high)
        return LARGEST_RECORD_BODY[api_key]

    def _run(self, context: RequestContext, received: ReceivedRequest, work: Callable[[], None]) -> None:
        """Serve the request on its API's thread; a failure closes the connection, so that the peer stops waiting."""

        def guarded() -> None:
            try:
                work()
            except BaseException as e:  # noqa: BLE001  (a hook may even raise pytest's own exceptions)
                _log.exception("broker %d closes %s", self.broker.broker_id, received.connection)
                self.broker.note_failure(e)
                received.close_connection()

        if context.api_key in SLOW or context.api_key in self.broker.controller_keys:
            self._worker.submit(guarded, received.close_connection)
        else:
            guarded()

    def _serve(self, received: ReceivedRequest, context: RequestContext, body: memoryview) -> None:
        try:
            if context.api_key == ApiKey.UPDATE_METADATA:
                request = self.broker.metadata.updates.decode(context.version, body)
            else:
                request = codec.decode_request(context.api_key, context.version, body)
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            if isinstance(e, UnsupportedVersion) and context.api_key == ApiKey.API_VERSIONS:
                self._answer(received, context._replace(version=0), None, unsupported_api_versions())
            else:
                self._refuse(received, e)
            return
        intercept = self.broker.hooks.intercept
        plan = intercept(context, request) if intercept is not None else None
        if plan is None:
            self._handle(received, context, request)
        elif plan.delay_s > 0:
            self._server.call_later(
                round(plan.delay_s * 1000),
                lambda: self._run(context, received, lambda: self._follow(received, context, request, plan)),
            )
        else:
            self._follow(received, context, request, plan)

    def _refuse(self, received: ReceivedRequest, error: KprotoError) -> None:
        self._tell(logging.WARNING, "broker %d closes %s: %s", self.broker.broker_id, received.connection, error)
        received.close_connection()

    def _follow(self, received: ReceivedRequest, context: RequestContext, request: Any, plan: Interception) -> None:
        """Carry out the interceptor's order."""
        if plan.drop:
            self._report(context, request, None)
        elif plan.disconnect == "before":
            self._lose(received, context, request, None)
        elif plan.disconnect == "after":
            self._handle(received, context, request, partial(self._lose, received, context, request))
        elif plan.drop_answer:
            self._handle(received, context, request, lambda _: self._report(context, request, None))
        elif plan.error is not None:
            self._answer(received, context, request, error_answer(self.broker, context, request, plan.error))
        elif plan.answer is not None:
            if (plan.answer.api_key, plan.answer.kind) != (context.api_key, "response"):
                raise TypeError(f"an Interception answers {api_name(context.api_key)} by {plan.answer!r}")
            self._answer(received, context, request, plan.answer)
        else:
            self._handle(received, context, request)

    def _lose(self, received: ReceivedRequest, context: RequestContext, request: Any, answer: Any) -> None:
        """Close the connection of a request, its answer lost."""
        self._report(context, request, None)
        received.close_connection()

    def _handle(
        self,
        received: ReceivedRequest,
        context: RequestContext,
        request: Any,
        answer: Callable[[Any], None] | None = None,
    ) -> None:
        """Have a request served; ``answer`` takes the response, by default to send it."""
        answer = answer or partial(self._answer, received, context, request)
        controller, records = self.broker.controller_apis, self._records_for(context)
        if controller is not None and context.api_key in controller.keys:
            if context.api_key in DELAYED_APIS and (self.broker.cluster_controller or not self.broker.is_led_by_kraft):
                answer = self._delayed.until_shown(context.api_key, request, self.broker.metadata, answer)
            controller(context, request, answer)
        elif records is not None:
            records(context, request, answer)
        elif context.api_key == ApiKey.DESCRIBE_CONFIGS:
            self._describe(context, request, answer)
        else:
            try:
                response = handle(self.broker, context, request)
            except UnsupportedVersion as e:
                self._refuse(received, e)
                return
            if context.api_key == ApiKey.UPDATE_METADATA:
                self._delayed.check()
            answer(response)

    def _describe(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Answer with settings, which may be read over the network: on other threads, and within a time limit."""
        left = [answer]  # whoever takes it answers

        def respond(made: Callable[[], Any]) -> None:
            with contextlib.suppress(IndexError):
                first = left.pop()
                try:
                    first(made())
                except Exception:  # noqa: BLE001
                    _log.exception("broker %d cannot describe settings", self.broker.broker_id)
                    first(None)

        def describe() -> None:
            try:
                response = handle(self.broker, context, request)
            except Exception:  # noqa: BLE001  (it is logged)
                response = None
            respond(lambda: response)

        def give_up() -> None:
            respond(lambda: error_response(ApiKey.DESCRIBE_CONFIGS, request, ErrorCode.REQUEST_TIMED_OUT))

        def expire() -> None:
            if left:
                _log.warning("broker %d: settings were not read within %g s", self.broker.broker_id, SETTINGS_S)
                self._worker.submit(give_up)  # its encoding takes long

        try:
            self._settings.submit(describe, give_up)
        except IllegalState as e:
            _log.warning("broker %d: settings are not read: %s", self.broker.broker_id, e)
            give_up()
        else:
            self._server.call_later(round(SETTINGS_S * 1000), expire)

    def _records_for(self, context: RequestContext) -> RecordApis | None:
        """Return what serves a record request, None for other requests."""
        if context.api_key not in LARGEST_RECORD_BODY:
            return None
        records = self.broker.records
        return records if records is not None and context.api_key in records.keys else None

    def _answer(self, received: ReceivedRequest, context: RequestContext, request: Any, answer: Any) -> None:
        """Send an answer; without one the connection ends."""
        if answer is None:
            received.close_connection()
            return
        if answer is NO_RESPONSE:
            self._report(context, request, None)
            received.complete()
            return
        header = headers.encode_response_header(
            headers.response_header(context.correlation_id), response_header_version(context.api_key, context.version)
        )
        try:
            body = codec.encode(answer, context.version)
        except Exception as e:  # noqa: BLE001 - nobody else would answer, or end the connection
            _log.exception("broker %d cannot write its answer", self.broker.broker_id)
            self.broker.note_failure(e)
            if context.api_key not in CONTROL_APIS:
                received.close_connection()  # only the control requests list the partitions that an error must name
                return
            body = codec.encode(request.error_response(ErrorCode.UNKNOWN_SERVER_ERROR), context.version)
        self._report(
            context, request, answer
        )  # called before the answer goes out, as the peer may read the hook's notes once it has the answer
        received.respond([header, body])

    def _report(self, context: RequestContext, request: Any, answer: Any) -> None:
        if self.broker.hooks.answered is None:
            return
        try:
            self.broker.hooks.answered(context, request, answer)
        except BaseException as e:  # noqa: BLE001  (a hook that only watches must not cost the peer its answer)
            _log.exception("broker %d: the hook for answers failed", self.broker.broker_id)
            self.broker.note_failure(e)
