"""Who looks on while a selector works: metrics and the recorder."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from channel.clock import Clock

    from .channel import Channel
    from .frames import Receive, Send
    from .recorder import Recorder
    from .selector_metrics import SelectorMetrics

__all__ = ["Traffic"]

_length = struct.Struct(">i")


class Traffic:
    """Tells metrics and recorder what has passed. Bytes are counted as they move, frames when they are whole."""

    __slots__ = ("_clock", "_metrics", "_recorder")

    def __init__(self, metrics: SelectorMetrics | None, recorder: Recorder | None, clock: Clock) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock

    def opened(self, channel: Channel, *, accepted: bool) -> None:
        """A connection stands."""
        metrics = self._metrics
        if metrics is not None:
            metrics.created.value += 1
            channel.node_metrics = metrics.node(channel.id)
            if accepted:
                metrics.client_changed(channel, ("unknown", "unknown"))
        if self._recorder is not None:
            ends = channel.transport
            self._recorder.opened(ends.local, ends.remote, self._clock.wall_nanoseconds(), initiator=not accepted)

    def authenticated(self) -> None:
        """A connection got through its handshake and authentication."""
        if self._metrics is not None:
            self._metrics.authenticated.value += 1

    def not_authenticated(self) -> None:
        """A connection did not."""
        if self._metrics is not None:
            self._metrics.not_authenticated.value += 1

    def read(self, channel: Channel, count: int) -> None:
        """So many bytes came in."""
        metrics = self._metrics
        if metrics is not None:
            metrics.io.value += 1
            metrics.incoming.value += count
            if channel.node_metrics is not None:
                channel.node_metrics.incoming.value += count

    def wrote(self, channel: Channel, count: int) -> None:
        """So many bytes went out."""
        metrics = self._metrics
        if metrics is not None:
            metrics.io.value += 1
            metrics.outgoing.value += count
            if channel.node_metrics is not None:
                channel.node_metrics.outgoing.value += count

    def received(self, channel: Channel, receive: Receive) -> None:
        """A frame is whole."""
        if self._metrics is not None:
            self._metrics.responses.value += 1
            if channel.node_metrics is not None:
                channel.node_metrics.response.value += 1
        if self._recorder is not None:
            assert receive.payload is not None
            pieces = (_length.pack(receive.requested), receive.payload)
            ends = channel.transport
            self._recorder.record("received", ends.local, ends.remote, self._clock.wall_nanoseconds(), pieces)

    def sent(self, channel: Channel, send: Send) -> None:
        """A frame has gone out."""
        metrics = self._metrics
        if metrics is not None:
            metrics.requests.value += 1
            if send.size > metrics.request_size_max:
                metrics.request_size_max = send.size
            if channel.node_metrics is not None:
                channel.node_metrics.request.value += 1
                channel.node_metrics.size.record(send.size)
        if self._recorder is not None:
            ends = channel.transport
            self._recorder.record("sent", ends.local, ends.remote, self._clock.wall_nanoseconds(), send.buffers)

    def metrics_alone(self) -> SelectorMetrics | None:
        """The metrics, if nobody else needs to hear of every frame and no connection has metrics of its own.

        Raises:
            LookupError: Somebody does.
        """
        metrics = self._metrics
        if self._recorder is not None or (metrics is not None and metrics.per_connection):
            raise LookupError("frames must pass the selector")
        return metrics

    def closed(self, channel: Channel) -> None:
        """A connection is no more."""
        if self._metrics is not None:
            self._metrics.closed.value += 1
            self._metrics.forget_node(channel.id)
            self._metrics.client_changed(channel, None)
        if self._recorder is not None and channel.connected:
            ends = channel.transport
            self._recorder.closed(ends.local, ends.remote, self._clock.wall_nanoseconds())

    def polled(self, waited_ns: int, worked_ns: int) -> None:
        """One poll took so long."""
        metrics = self._metrics
        if metrics is not None:
            metrics.selects.value += 1
            metrics.io_wait_ns += waited_ns
            metrics.io_ns += worked_ns
