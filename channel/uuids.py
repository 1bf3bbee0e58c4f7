"""Random ids of clusters, topics and processes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kproto.types import Uuid

__all__ = ["random_uuid"]

_DASH: Final = 62
"""The place of ``-`` in URL-safe base64: an id whose first six bits are this number begins with it."""


def random_uuid() -> Uuid:
    """Draw a random UUID as Kafka does: none that Kafka reserves, and none whose text begins with ``-``.

    The command lines of Kafka's own tools would take such a text for an option. The reserved ids, 0 and 1, have no
    version, unlike every random UUID.
    """
    while True:
        drawn = uuid.uuid4().bytes
        if drawn[0] >> 2 != _DASH:
            return drawn
