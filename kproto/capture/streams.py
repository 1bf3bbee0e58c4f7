"""One direction's bytes -> frames, whichever direction it is.

While the boundaries are known a frame is cut by its size alone, and what nobody wants is passed over without a copy.
Where they are lost a search finds the next frame that can be trusted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from .tcp import FOREVER

if TYPE_CHECKING:
    from .correlate import Conversation
    from .search import Search, Step

__all__ = ["StreamReader"]

_SEARCH_BYTES: Final = 256 << 20
"""So many bytes are searched for a frame in any stream, then it is left alone."""


class StreamReader:
    """Cutting at known boundaries; the two directions differ in what a frame's beginning says."""

    _least: int

    def __init__(self, conversation: Conversation, search: Search, in_step: bool) -> None:
        self.skip_to = 0
        self._conversation = conversation
        self._search = search
        self._searching = not in_step
        self._doubtful = not in_step  # nothing but the search has confirmed the boundaries yet
        self._at = 0  # stream offset of the next frame
        self._held = bytearray()  # its bytes so far
        self._need = self._least
        self._first_ns = self._last_ns = 0
        self._queue: deque[tuple[int, bytes, int]] = deque()

    @property
    def searching(self) -> bool:
        """Whether the boundaries are lost at the moment."""
        return self._searching

    def data(self, offset: int, data: bytes, time_ns: int) -> None:
        """Take the next bytes of the stream."""
        if not self._conversation.counted:
            self._conversation.count()
        queue = self._queue
        queue.append((offset, data, time_ns))
        while queue:
            offset, data, time_ns = queue.popleft()
            if offset < self.skip_to:
                data = data[self.skip_to - offset :]
                offset = self.skip_to
                if not data:
                    continue
            if self._searching:
                self._look(offset, data, time_ns)
            else:
                self._cut(data, time_ns)
        if self._conversation.waiting:
            self._conversation.settle()

    def _cut(self, data: bytes, time_ns: int) -> None:
        """Take frames off a stream in step."""
        if self._held:
            self._held += data
            self._last_ns = max(self._last_ns, time_ns)
            if len(self._held) < self._need:
                return
            data = bytes(self._held)
        else:
            self._first_ns = self._last_ns = time_ns
        at, size = 0, len(data)
        while size - at >= self._need:
            taken = self._take(data, at, size)
            if taken < 0:
                self._queue.appendleft((self._at, data[at:], time_ns))
                self._held = bytearray()
                return
            if not taken:
                continue  # it needs more to be sure
            at += taken
            self._at += taken
            self._need = self._least
            self._first_ns = self._last_ns = time_ns
        self._held = bytearray(data[at:])
        if at >= size:
            self.skip_to = self._at

    def _take(self, data: bytes, at: int, end: int) -> int:
        """The bytes of the frame at ``at``; 0 if ``_need`` of them are needed first; -1 if the step is lost."""
        raise NotImplementedError

    def _look(self, offset: int, data: bytes, time_ns: int) -> None:
        """Search a stream that is out of step."""
        start = self._search.data(offset, data, time_ns)
        if start is None:
            if self._search.seen > _SEARCH_BYTES:
                self.stop()
            return
        self._found(self._search.step)
        self._searching = False
        self._doubtful = True
        self._at = self.skip_to = start
        self._need = self._least
        self._queue.extendleft(reversed(self._search.pieces(start)))
        self._search.clear()

    def _found(self, step: Step | None) -> None:
        """The search has met a frame."""
        raise NotImplementedError

    def lose_step(self) -> None:
        """The next boundary is not known any more."""
        self._searching = True
        self._held = bytearray()
        self._need = self._least
        self._search.clear()

    def lost(self, offset: int, length: int, time_ns: int) -> None:
        """Bytes that will never come."""
        end = offset + length
        if self._searching:
            self._search.clear()
            self.skip_to = max(self.skip_to, end)
            return
        data, self._held = bytes(self._held), bytearray()
        frame_end = self._broken(data) if data else -1
        self._conversation.note_gap(length)
        if data:
            self._need = self._least
            if frame_end >= end:
                self._at = self.skip_to = frame_end
                return
        elif self.skip_to >= end > offset:
            return
        self.lose_step()
        self._at = self.skip_to = end

    def _broken(self, data: bytes) -> int:
        """Give out what there is of a frame whose next byte is lost; the stream offset of its end, -1 if not known."""
        raise NotImplementedError

    def closed(self, time_ns: int) -> None:
        """No more will come."""
        if self._held and not self._searching:
            data, self._held = bytes(self._held), bytearray()
            self._broken(data)
        self.stop()
        self._conversation.stream_closed()

    def stop(self) -> None:
        """Read no more."""
        self.skip_to = FOREVER
        self._held = bytearray()
        self._queue.clear()
        self._search.clear()
