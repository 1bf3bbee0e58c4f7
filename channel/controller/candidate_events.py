"""The events of a candidate's life: elections, the end and the beginning of its session, its own end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import ClassVar

from .events import ControllerEvent, ControllerState

__all__ = ["Abandon", "ControllerChange", "Expire", "Reelect", "Resign"]


@dataclass(frozen=True, slots=True)
class ControllerChange(ControllerEvent):
    """``/controller`` was or may have been created, changed or deleted; also the first event."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class Expire(ControllerEvent):
    """The session has expired."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLER_CHANGE
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Reelect(ControllerEvent):
    """A new session has begun."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class Resign(ControllerEvent):
    """The process ends: resign."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLER_SHUTDOWN
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Abandon(Resign):
    """The process dies: close the channels, and leave ZooKeeper as it is."""
