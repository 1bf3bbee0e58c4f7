"""A server's bytes -> responses, each read as the request it answers says."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from .model import GAP, WHOLE, Frame
from .search import ResponseSearch
from .streams import StreamReader

if TYPE_CHECKING:
    from .correlate import Asked, Conversation
    from .search import Step

__all__ = ["ResponseReader"]

_PAIR: Final = struct.Struct(">ii").unpack_from


class ResponseReader(StreamReader):
    """A server's stream.

    Args:
        conversation: The connection.
        in_step: Whether the stream is known from its first byte.
    """

    _least = 8

    def __init__(self, conversation: Conversation, in_step: bool) -> None:
        super().__init__(conversation, ResponseSearch(conversation, conversation.limit), in_step)
        self._answers: Asked | None = None  # the request whose response is being read
        self._known = False  # whether that was looked up

    def _take(self, data: bytes, at: int, end: int) -> int:
        size: int
        size, correlation_id = _PAIR(data, at)
        conversation = self._conversation
        if not 4 <= size <= conversation.limit:
            if 0 <= size < 4 and conversation.answer_token():
                return size + 4
            if not self._doubtful:
                conversation.bad(f"no response where one should begin (size {size})", self._at)
            self.lose_step()
            return -1
        if not self._known:
            self._answers = conversation.answered(correlation_id)
            if self._answers is None and conversation.answer_token():
                return size + 4
            self._known = True
        asked = self._answers
        wanted = asked.frame is not None if asked is not None else conversation.keeps_unmatched(size)
        if wanted and end - at < size + 4:
            self._need = size + 4
            return 0
        self._known = self._doubtful = False
        payload = data[at + 4 : at + 4 + size] if wanted else b""
        self._give(size, correlation_id, asked, payload, WHOLE, wanted)
        return size + 4

    def _give(
        self, size: int, correlation_id: int, asked: Asked | None, payload: bytes, status: int, wanted: bool
    ) -> None:
        conversation = self._conversation
        if not wanted:
            conversation.passed(asked)
            return
        frame = Frame(
            conversation.connection,
            "resp",
            self._at,
            self._first_ns,
            self._last_ns,
            status,
            size,
            payload,
            None,
            None,
            correlation_id,
            None,
            min(4, len(payload)),
            conversation.file,
        )
        conversation.responded(asked, frame)

    def _found(self, step: Step | None) -> None:
        if step is not None and step.correlation_id is not None:
            self._conversation.passed(self._conversation.answered(step.correlation_id))

    def lose_step(self) -> None:
        """The next boundary is not known any more; which of the open requests were answered is not either."""
        super().lose_step()
        self._known = False
        self._conversation.responses_lost()

    def _broken(self, data: bytes) -> int:
        if len(data) < 8:
            return -1
        size: int
        size, correlation_id = _PAIR(data, 0)
        if not 4 <= size <= self._conversation.limit or (self._doubtful and not self._known):
            return -1
        asked = self._answers if self._known else self._conversation.answered(correlation_id)
        self._known = False
        if asked is not None:
            self._give(size, correlation_id, asked, data[4:], GAP, asked.frame is not None)
        return self._at + 4 + size
