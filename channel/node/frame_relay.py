"""Requests that any broker may answer, passed frame by frame from a node that does not serve them to a live broker."""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from channel.broker.worker import Worker
from channel.errors import AuthenticationFailed, IllegalState
from channel.locks import guards, guards_changes, new_lock
from channel.logs import get_logger
from channel.network.frames import Send
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.network.server import ANONYMOUS
from channel.network.sockets import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from channel.network.sockets import ChannelBuilder
    from channel.security import SecurityConfig
    from channel.types import Node, SecurityProtocol

    ChannelsOf: TypeAlias = Callable[[str], ChannelBuilder | None]

_log = get_logger(__name__)

_AT_ONCE: Final = 8
"""The number of requests that wait for brokers at a time."""

_ATTEMPTS: Final = 3
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 60.0
_LARGEST_ANSWER: Final = 100 * 1024 * 1024
_CLIENT: Final = "controller-relay"
_BROKER: Final = "broker"


def channels_of_clients(protocol: SecurityProtocol, security: SecurityConfig) -> ChannelsOf:
    """Return a function that makes the channels on which brokers take this node for one of its clients.

    Brokers decide by the principal of a connection what may be asked on it, so a client's request must not arrive on a
    connection of the node's own principal. With SASL the node authenticates as the client, whose password it knows.
    With TLS alone the node shows no certificate, as a client without one does; a client with a certificate cannot be
    spoken for.

    Args:
        protocol: The security protocol of the node's listener and of the brokers'.
        security: The node's settings, with the users that it accepts.

    Returns:
        A function that takes a principal, and returns the builder of its channels; None if the node cannot speak for
        the client.
    """
    if not protocol.uses_sasl:
        bare = dataclasses.replace(
            security, ssl_keystore_location=None, ssl_keystore_certificate_chain=None, ssl_keystore_key=None
        )
        anonymous = client_channels(protocol, bare, _CLIENT)
        return lambda principal: anonymous if principal == ANONYMOUS else None

    @functools.cache
    def of_user(principal: str) -> ChannelBuilder | None:
        user = principal.removeprefix("User:")
        password = security.users.get(user)
        if password is None:
            return None
        as_user = dataclasses.replace(security, sasl_username=user, sasl_password=password)
        return client_channels(protocol, as_user, _CLIENT)

    return of_user


class FrameRelay:
    """Passes frames to brokers, each over a connection of its own, and their answers back.

    A frame goes to another broker if its broker cannot be reached, but never twice.

    Args:
        name: Names the threads, which start with the first frame.
        brokers: Returns the brokers that can be asked; called on the relay's threads.
        channels_of: Makes the channels for a client; see ``channels_of_clients``.
    """

    def __init__(self, name: str, brokers: Callable[[], Sequence[Node]], channels_of: ChannelsOf) -> None:
        self._name = name
        self._brokers = brokers
        self._channels_of = channels_of
        self._worker = Worker(name, _AT_ONCE)
        self._lock = new_lock("frame relay")
        self._open: set[Selector] = set()
        self._is_closed = False

    def __call__(self, principal: str, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Pass a client's request on, without its size; ``answer`` takes the response, or None.

        It is called on a thread of the relay; at once, with None, if the node cannot speak for the client.
        """
        channels = self._channels_of(principal)
        try:
            if channels is not None:
                self._worker.submit(partial(self._ask, channels, frame, answer))
                return
        except IllegalState:
            _log.debug("%s: the relay is closed", self._name)
        answer(None)

    @property
    def error(self) -> BaseException | None:
        """The error that has ended one of its threads, after which no frame is passed on; None while all go on."""
        return self._worker.error

    def close(self, timeout_s: float | None = None) -> bool:
        """Close the connections, and end the threads. Harmless if closed.

        Returns:
            Whether the threads have ended within this time; a line in the log names each that has not.
        """
        with self._lock:
            self._is_closed = True
            for each in self._open:
                each.wakeup()
        return self._worker.close(timeout_s)

    def _ask(self, channels: ChannelBuilder, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        response = None
        try:
            response = self._response(channels, frame)
        except (OSError, AuthenticationFailed) as e:
            _log.warning("%s: a request to a broker was not answered: %s", self._name, e)
        finally:
            answer(response)

    def _response(self, channels: ChannelBuilder, frame: bytes) -> bytes:
        brokers = list(self._brokers())
        random.shuffle(brokers)
        error = OSError("there is no live broker")
        for broker, address in _addresses(brokers[:_ATTEMPTS]):
            if isinstance(address, OSError):
                error = address
                continue
            selector = Selector(channel_builder=channels, max_receive_size=_LARGEST_ANSWER)
            try:
                with self._lock:
                    if self._is_closed:
                        raise OSError("the relay is closed")
                    self._open.add(selector)
                try:
                    selector.connect(_BROKER, (address, broker.port), host=broker.host)
                    self._poll(selector, _CONNECT_S, lambda: selector.is_channel_ready(_BROKER))  # noqa: B023
                except OSError as e:
                    error = e
                    continue
                selector.send(Send.framed(_BROKER, [frame]))
                self._poll(selector, _ANSWER_S, lambda: bool(selector.completed_receives))  # noqa: B023
                payload = selector.completed_receives[0].payload
                assert payload is not None
                return bytes(payload)
            finally:
                with self._lock:
                    self._open.discard(selector)
                selector.close()
        raise error

    def _poll(self, selector: Selector, seconds: float, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not is_done():
            left = deadline - time.monotonic()
            if self._is_closed or left <= 0:
                raise OSError("the relay is closed" if self._is_closed else f"no answer within {seconds:g} s")
            selector.poll(int(left * 1000) + 1)
            end = selector.disconnected.get(_BROKER)
            if end is not None and not selector.completed_receives:
                raise end.error or OSError("the broker closed the connection, or sent no response of Kafka's protocol")


guards(FrameRelay, "_lock", "_open")
guards_changes(FrameRelay, "_lock", "_is_closed")


def _addresses(brokers: Sequence[Node]) -> Iterator[tuple[Node, str | OSError]]:
    """Yield the brokers with each of their addresses, or the error of one whose name is not resolved."""
    for broker in brokers:
        try:
            found = resolve(broker.host)
        except OSError as e:
            yield broker, e
        else:
            yield from ((broker, address) for address in found)
