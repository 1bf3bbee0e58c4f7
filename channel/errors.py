"""Every error that the channel raises on purpose, beside kproto's own::

    ChannelError                    the root, a ``kproto.KprotoError``; never raised itself
    +-- IllegalState                a call that is not allowed in the object's present state: the caller's mistake
    |   +-- CorrelationIdMismatch   a response with another correlation id than the oldest in-flight request's
    +-- Disconnected                the connection could not be made, or ended; an ``OSError``
    |   +-- ClientClosed            because this side is closing or closed
    |   +-- InvalidReceive          because a frame's length is negative or above the limit
    |   +-- RequestTimeout          because no response came in time
    |       +-- TopicNotKnown       because a topic or partition did not become known in time
    +-- AuthenticationFailed        one side rejected the other's certificate or credentials
    +-- BrokerNotAvailable          no broker with that id, or no broker that could be asked
    +-- ControllerMoved             another controller has been elected (error code 11)
    +-- StaleBrokerEpoch            a request for an earlier registration of this broker (error code 77)
    +-- InvalidTopic                a topic's name that Kafka does not allow (error code 17)
    +-- TopicAuthorizationFailed    a topic that this client may not see (error code 29)
    +-- NoUsableVersion             no version of a request suits both sides; a ``kproto.UnsupportedVersion``
    +-- ZooKeeperError              ZooKeeper refused a request
        +-- NoNode                  because the znode does not exist
        +-- NodeExists              because the znode exists already
        +-- BadVersion              because the znode has another version than the request demands
        +-- NotEmpty                because the znode has children
        +-- SessionExpired          because the session has expired

Wrong arguments are ``ValueError``, wrong settings ``kproto.ConfigurationError``, bad bytes ``kproto.DecodeError``.
"""

from __future__ import annotations

from kproto.api import api_name
from kproto.errors import KprotoError, UnsupportedVersion


class ChannelError(KprotoError):
    """The root of the channel's errors."""


class IllegalState(ChannelError, RuntimeError):
    """A call is not allowed in the object's present state."""


class CorrelationIdMismatch(IllegalState):
    """A response has another correlation id than the oldest in-flight request of its connection."""


class Disconnected(ChannelError, ConnectionError):
    """The connection could not be made, or ended before the response."""


class ClientClosed(Disconnected):
    """This client is closing or closed."""


class InvalidReceive(Disconnected):
    """A frame's length is negative or above the limit; the connection cannot be read on."""


class RequestRefused(ChannelError):
    """A broker has answered a request with an error."""


class RequestTimeout(Disconnected, TimeoutError):
    """No response came within the request timeout; the connection is closed."""


class AuthenticationFailed(ChannelError):
    """One side rejected the other's certificate or credentials."""


class BrokerNotAvailable(ChannelError):
    """No broker has that id, or no broker could be asked."""


class ControllerMoved(ChannelError):
    """Another controller has been elected: a newer controller epoch exists."""


class StaleBrokerEpoch(ChannelError):
    """The request is meant for an earlier registration of this broker."""


class InvalidTopic(ChannelError):
    """A topic's name is not allowed."""


class TopicNotKnown(RequestTimeout):
    """A topic or partition did not become known in time.

    Attributes:
        error_code: The topic's error in the last Metadata response, 0 if there was none.
    """

    def __init__(self, text: str, error_code: int = 0) -> None:
        super().__init__(text)
        self.error_code = error_code


class TopicAuthorizationFailed(ChannelError):
    """This client may not see the topic."""


class NoUsableVersion(ChannelError, UnsupportedVersion):
    """No version of a request suits both this side and the node; it was never sent."""

    def __init__(self, api_key: int, version: int, why: str) -> None:
        UnsupportedVersion.__init__(self, api_key, version, api_name(api_key))
        self.why = why

    def __str__(self) -> str:
        return f"{self.name} ({self.api_key}): {self.why}"


class ZooKeeperError(ChannelError):
    """ZooKeeper refused a request."""


class NoNode(ZooKeeperError):
    """There is no such znode."""


class NodeExists(ZooKeeperError):
    """There is such a znode already."""


class NodeTooLarge(ZooKeeperError):
    """The request is larger than ZooKeeper takes."""


class BadVersion(ZooKeeperError):
    """The znode has another version than the request demands."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class SessionExpired(ZooKeeperError):
    """The ZooKeeper session has expired, and its ephemeral znodes and watches with it."""
