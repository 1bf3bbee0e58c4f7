"""A selector's traffic as it is reported to metrics and recorder."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.clock import Clock

    from .channel import Channel
    from .frames import Send
    from .recorder import Direction, Recorder
    from .transport import Bytes

__all__ = ["Traffic"]

_log = get_logger(__name__)
_length = struct.Struct(">i")


class Traffic:
    """Reports bytes and frames to the metrics of their channel and to the recorder.

    Bytes are counted as they move, frames when they are whole. A recorder that raises is not called again, which is
    logged: its failure must not end a connection.

    Args:
        recorder: Records every frame, None for no recording.
        clock: The source of the time of day.
    """

    __slots__ = ("_clock", "recorder")

    def __init__(self, recorder: Recorder | None, clock: Clock) -> None:
        self.recorder = recorder
        self._clock = clock

    def opened(self, channel: Channel, *, accepted: bool) -> None:
        """Count a connection as established."""
        metrics = channel.metrics
        if metrics is not None:
            metrics.created.value += 1
            channel.node_metrics = metrics.node(channel.id)
            if accepted:
                metrics.client_changed(channel, ("unknown", "unknown"))
        if self.recorder is not None:
            ends = channel.transport
            try:
                self.recorder.opened(ends.local, ends.remote, self._clock.wall_nanoseconds(), initiator=not accepted)
            except Exception:  # noqa: BLE001
                self._stop()

    def read(self, channel: Channel, count: int, payload: bytearray | None) -> None:
        """Count received bytes, and the frame that they complete."""
        metrics = channel.metrics
        if metrics is not None:
            node = channel.node_metrics
            if count:
                metrics.reads += 1
                metrics.incoming.value += count
                if node is not None:
                    node.incoming.value += count
            if payload is not None:
                metrics.responses.value += 1
                if node is not None:
                    node.response.value += 1
        if payload is not None and self.recorder is not None:
            self._record("received", channel, (_length.pack(len(payload)), payload))

    def wrote(self, channel: Channel, count: int, send: Send | None) -> None:
        """Count sent bytes, and the frame that they complete."""
        metrics = channel.metrics
        if metrics is not None:
            node = channel.node_metrics
            if count:
                metrics.writes += 1
                metrics.outgoing.value += count
                if node is not None:
                    node.outgoing.value += count
            if send is not None:
                metrics.requests.value += 1
                if send.size > metrics.request_size_max:
                    metrics.request_size_max = send.size
                if node is not None:
                    node.request.value += 1
                    node.size.record(send.size)
        if send is not None and self.recorder is not None:
            self._record("sent", channel, send.buffers)

    def closed(self, channel: Channel) -> None:
        """Count a connection as closed."""
        metrics = channel.metrics
        if metrics is not None:
            metrics.closed.value += 1
            metrics.forget_node(channel.id)
            metrics.client_changed(channel, None)
            metrics.cipher_changed(channel, None)
        if self.recorder is not None and channel.connected:
            ends = channel.transport
            try:
                self.recorder.closed(ends.local, ends.remote, self._clock.wall_nanoseconds())
            except Exception:  # noqa: BLE001
                self._stop()

    def _record(self, direction: Direction, channel: Channel, buffers: Sequence[Bytes]) -> None:
        recorder, ends = self.recorder, channel.transport
        assert recorder is not None
        try:
            recorder.record(direction, ends.local, ends.remote, self._clock.wall_nanoseconds(), buffers)
        except Exception:  # noqa: BLE001
            self._stop()

    def _stop(self) -> None:
        _log.exception("the recorder failed; nothing more is recorded")
        self.recorder = None
