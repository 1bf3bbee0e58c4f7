"""The controller of a cluster: it stands for election in ZooKeeper, is active while elected, and resigns when not.

All its work is done on the event thread, one event after the other; ZooKeeper's watches and brokers' answers only queue
events. The parts of an active controller, with the channels to the brokers, are made at its election and closed at its
resignation, so that no two send paths are alive at a time.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from channel.api_errors import error_response
from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import ChannelError, ControllerMoved, IllegalState, SessionExpired
from channel.logs import bounded, get_logger
from channel.threads import Startable, close_all, ends_with_process, first_error, time_left
from channel.zookeeper.cluster_state import (
    create_persistent_nodes,
    delete_controller,
    read_controller,
    register_controller,
)
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.errors import KprotoError

from .events import ApiRequest, ControllerEvent, ControllerEventManager, ControllerState, controller_stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.metrics import Metrics
    from channel.zookeeper.cluster_state import WonElection

    from .leadership import Leadership


@dataclass(frozen=True, slots=True)
class ControllerChange(ControllerEvent, state=ControllerState.CONTROLLER_CHANGE):
    """``/controller`` was or may have been created, changed or deleted; also the first event of each session."""


@dataclass(frozen=True, slots=True)
class Expire(ControllerEvent, state=ControllerState.CONTROLLER_CHANGE):
    """The session has expired."""

    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Resign(ControllerEvent, state=ControllerState.CONTROLLER_SHUTDOWN):
    """The process ends: resign."""

    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Abandon(Resign):
    """The process dies: close the channels, and leave ZooKeeper as it is."""


NO_CONTROLLER: Final = -1

_GROUP: Final = "kafka.controller:type=KafkaController"
_MOST_SECONDS_AWAY: Final = 3
"""The time that an ending controller waits for a ZooKeeper that cannot be reached."""

_AGAIN_AFTER_S: Final = 1.0
"""The pause before a controller that failed to take over stands for election again, as the cause may last a while."""
_AGAIN_MAX_S: Final = 30.0
"""The longest such pause: each failure doubles it, until a leadership has lasted longer than this."""


class Controller(Startable):
    """A candidate for the controller election of a cluster, and its active controller while elected.

    A registration of the same broker id by another session counts as another controller's: that of an earlier process
    whose session has not expired yet, or of a second process with the same id.

    Args:
        controller_id: The broker id to register.
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot; or a broker's
            session, whose owner starts and ends it, and calls ``session_expired`` and ``session_began``.
        lead: Makes an elected controller's leadership; see ``LeadershipSettings``.
        metrics: Takes the figures.
        session_timeout_ms: The time after the process's death at which ZooKeeper deletes ``/controller``.
        can_register: Returns whether the controller's own listener could be registered now; if not, it does not stand
            for election.
        register_broker: Registers the controller's own listener as a broker's, once it is elected; None without a
            listener.
        unregister_broker: Ends this registration, once it has resigned.
        on_change: Takes the active controller's broker id (-1: none is known) and, if it is this broker, the
            controller epoch (else 0), at each change; on the event thread.

    Attributes:
        events: The event manager, whose ``put`` takes requests as events.
        epoch: The controller epoch while it is active, else 0.
        active_id: The broker id of the active controller, -1 if none is known.
        is_led_by_kraft: Whether a KRaft controller has taken the cluster over.

    Raises:
        ConfigurationError: ``zookeeper`` names no server.
    """

    def __init__(
        self,
        controller_id: int,
        zookeeper: str | ZooKeeperSession,
        lead: Callable[[ZooKeeperSession, WonElection, Callable[[ControllerEvent], object]], Leadership],
        metrics: Metrics,
        *,
        session_timeout_ms: int = 18_000,
        can_register: Callable[[ZooKeeperSession], bool] = lambda session: True,
        register_broker: Callable[[ZooKeeperSession], None] | None = None,
        unregister_broker: Callable[[ZooKeeperSession], None] | None = None,
        on_change: Callable[[int, int], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.controller_id = controller_id
        self.epoch = 0
        self.active_id = NO_CONTROLLER
        self.is_led_by_kraft = False
        self._is_elected = False
        self._lead = lead
        self._metrics = metrics
        self._can_register = can_register
        self._register_broker = register_broker
        self._unregister_broker = unregister_broker
        self._on_change = on_change
        self._reported = (NO_CONTROLLER, 0)
        self._leadership: Leadership | None = None
        self._fence = 0
        self._is_closed = False
        self._has_started = False
        self._is_pausing = False
        self._failures = 0
        self._led_since = math.inf
        self._again: threading.Timer | None = None
        self._log = get_logger(__name__, f"[Controller id={controller_id}]")
        self._owns_session = isinstance(zookeeper, str)
        self.session = (
            ZooKeeperSession(
                zookeeper,
                timeout_ms=session_timeout_ms,
                on_expired=self.session_expired,
                on_new_session=self.session_began,
                metrics=metrics,
            )
            if isinstance(zookeeper, str)
            else zookeeper
        )
        self.events = ControllerEventManager(
            controller_id, self, clock, metrics, controller_stats(metrics), on_died=self._give_up
        )
        self.session.watch_node(CONTROLLER, lambda: self.events.put(ControllerChange()))
        metrics.gauge(_GROUP, "ActiveControllerCount", lambda: int(self.is_active), doc="1 while this broker leads")
        metrics.gauge(_GROUP, "ControllerState", lambda: self.events.state.number, doc="The event being processed")
        ends_with_process(self)

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, and has taken over."""
        return self.epoch > 0

    @property
    def error(self) -> BaseException | None:
        """The error after which it can lead no more: of its event thread or of its session; None while all is well."""
        return first_error(self.events, self.session)

    # ---- starting and ending

    def start(self) -> None:
        """Connect to ZooKeeper, and stand for election.

        Raises:
            Disconnected: No ZooKeeper answers.
            SessionExpired: The session has expired before the start was over.
        """
        if self._owns_session:
            self.session.start()
        try:
            create_persistent_nodes(self.session)
        except BaseException:
            self._end_session()
            raise
        self.events.start()
        self._has_started = True
        self.events.put(ControllerChange())

    def close(self, timeout_s: float | None = None) -> None:
        """Resign if active, and end the session: another broker can be elected at once. Harmless if closed.

        Args:
            timeout_s: The longest time to wait for the present event; the log names what has not ended then, and the
                session is ended all the same.
        """
        self._close(Resign(), timeout_s)

    def abandon(self) -> None:
        """End as kill -9 does: ``/controller`` stays until the session expires. Harmless if closed."""
        self._close(Abandon(), None)

    def _close(self, last: Resign, timeout_s: float | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        left_s = time_left(timeout_s)
        had_ended = self.events.is_shutdown_complete  # the event thread, which ends with the process too

        def end_events() -> None:
            self.events.clear_and_put(last)
            is_over = self._await(last, deadline)
            self.events.close(left_s() if is_over else 0)

        def end_leadership() -> None:
            if (self.events.has_died or had_ended) and type(last) is Resign:
                self._give_up()
            self._end_leadership(left_s())  # the session may have expired, and its event replaced the queued one

        if self._again is not None:
            self._again.cancel()
        close_all(
            partial(self._metrics.remove, _GROUP, "ActiveControllerCount"),
            partial(self._metrics.remove, _GROUP, "ControllerState"),
            *((end_events, end_leadership, lambda: self._end_session(left_s())) if self._has_started else ()),
        )

    def _await(self, last: Resign, deadline: float) -> bool:
        """Wait until the last event is over, or ZooKeeper has stayed away for too long.

        Requests to a ZooKeeper that is away end with the session. An own session is closed; a broker's is left to its
        owner, and the event thread ends once its owner has closed it or ZooKeeper is back.

        Returns:
            Whether the event thread is at its end.
        """
        seconds_away = 0
        while not last.done.wait(max(0.0, min(1.0, deadline - time.monotonic()))):
            if self.events.has_died or self.events.is_shutdown_complete:
                return True  # it will process nothing more
            if time.monotonic() >= deadline:
                return False
            seconds_away = 0 if self.session.is_connected else seconds_away + 1
            if seconds_away == _MOST_SECONDS_AWAY:
                self._log.warning("ZooKeeper is away: /controller stays until the session has expired there")
                if not self._owns_session:
                    return False
                self.session.close(min(_MOST_SECONDS_AWAY, deadline - time.monotonic()))  # to end it takes far longer
        return True

    def _end_session(self, timeout_s: float | None = None) -> None:
        if self._owns_session:
            self.session.close(timeout_s)

    def forget_in_child(self) -> None:
        """Count as closed in a forked child: threads and connections are the parent's."""
        self._is_closed = True

    def ask(self, event: ControllerEvent) -> None:
        """Queue a request; its callback gets the answer, even if this broker is not the controller."""
        queued = self.events.put(event)
        if self._is_closed:
            queued.preempt(self)  # the event thread has ended, or ends without it

    def session_expired(self) -> None:
        """Drop all queued events and resign, before the next session begins."""
        expire = Expire()
        self.events.clear_and_put(expire)
        while not expire.done.wait(1.0):
            if self._is_closed or self.session.is_closed or self.events.has_died:
                return

    def session_began(self) -> None:
        """Stand for election in a new session."""
        self.events.put(ControllerChange())

    # ---- events

    def process(self, event: ControllerEvent) -> None:
        """Do the work of an event; on the event thread."""
        try:
            match event:
                case ControllerChange():
                    self._maybe_resign()
                    self._elect()
                case Expire():
                    self._forget()
                    self._resign()
                case Abandon():
                    self._forget()
                    self._end_leadership()
                case Resign():
                    self._give_up()
                case _:
                    if self._leadership is None:
                        refuse(event)
                    else:
                        self._leadership.process(event)
        except ControllerMoved as e:
            self._log.info("ControllerMoved while processing %s: %s", bounded(event), e)
            refuse(event)
            self._lose()
        except SessionExpired as e:
            self._log.warning("while processing %s: %s", bounded(event), e)
            refuse(event)
        except IllegalState:
            if not self.session.is_closed:
                self._log.exception(
                    "while processing %s; some brokers may not know of it: standing again", bounded(event)
                )
            refuse(event)
            self._move()
        except Exception as e:
            refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)  # this is the active controller: no other would answer
            if not isinstance(event, ControllerChange):
                raise
            # Whatever it was, no change of /controller may follow that would make this broker stand again.
            self._log.error("cannot stand for election now: %s", e, exc_info=not isinstance(e, KprotoError))
            self._stand_later()
        finally:
            self._report()
            if isinstance(event, (Expire, Resign)):
                event.done.set()

    def _report(self) -> None:
        now = (self.active_id, self.epoch)
        if now != self._reported:
            self._reported = now
            if self._on_change is not None:
                try:
                    self._on_change(*now)
                except Exception:  # noqa: BLE001  (it must not hold up the end of the controller)
                    self._log.exception("the observer of elections failed at %s", now)

    def preempt(self, event: ControllerEvent) -> None:
        """Refuse an event that will not be processed; on the thread that cleared the queue."""
        refuse(event)
        if isinstance(event, (Expire, Resign)):
            event.done.set()

    def _look(self) -> None:
        """Read ``/controller``, and watch it until its next change."""
        found = read_controller(self.session)
        self.active_id = NO_CONTROLLER if found is None else found[0].broker_id
        self.is_led_by_kraft = found is not None and found[0].kraft_epoch >= 0
        is_own_id = self.active_id == self.controller_id
        self._is_elected = found is not None and is_own_id and found[1].owner == self.session.id

    def _forget(self) -> None:
        """Forget the active controller, as the session has expired or this broker is resigning."""
        self.active_id, self._is_elected = NO_CONTROLLER, False

    def _maybe_resign(self) -> None:
        """Check whether this broker still is the controller, and resign if it is not any more."""
        self._look()
        if self._leadership is not None and not self._is_elected:
            self._log.info("broker %d is the controller now; resigning", self.active_id)
            self._resign()

    def _lose(self) -> None:
        """Resign, as another broker was elected; or as somebody has written ``/controller_epoch``: then stand again."""
        self._maybe_resign()
        if self._leadership is None:
            return
        self._log.error(
            "%s was written, though no other broker was elected: giving up controller epoch %d",
            CONTROLLER_EPOCH,
            self.epoch,
        )
        try:
            self._resign()
            self._withdraw()
        finally:
            self._stand_later()

    def _withdraw(self) -> None:
        """Delete this broker's own ``/controller``, though ``/controller_epoch`` has been written since its election.

        Raises:
            ControllerMoved: Another broker was elected meanwhile.
        """
        epoch = self.session.exists(CONTROLLER_EPOCH)
        self._look()
        is_ours = self._is_elected
        self._forget()
        if is_ours and epoch is not None:
            delete_controller(self.session, epoch.version)
        elif is_ours:
            self.session.delete(CONTROLLER)

    def _elect(self) -> None:
        if self._is_closed or self._is_pausing:
            return
        if not self._can_register(self.session):
            self._stand_later()
            return
        self._look()
        if self.active_id == self.controller_id and not self._is_elected:
            self._log.warning(
                "another ZooKeeper session leads as controller %d: waiting until it ends. "
                "If its process is no former run of this one, choose another id",
                self.controller_id,
            )
        if self.active_id != NO_CONTROLLER:
            self._log.debug("broker %d is the controller; waiting", self.active_id)
            return
        try:
            election = register_controller(self.session, self.controller_id)
        except ControllerMoved as e:
            self._log.info("lost the election: %s", e)
            self._maybe_resign()
            if self.active_id == NO_CONTROLLER:
                self._stand_later()
            return
        self.active_id, self._is_elected = self.controller_id, True
        self._log.info("elected as the controller; epoch is %d, its znode's version %d", *election)
        self._fence = election.epoch_zk_version
        try:
            if self._register_broker is not None:
                self._register_broker(self.session)
            self._leadership = self._lead(self.session, election, self.events.put)
            self._leadership.start()
            self.epoch = election.epoch
            self._led_since = time.monotonic()
        except ControllerMoved:
            raise
        except SessionExpired:
            raise  # the Expire event resigns
        except Exception:  # noqa: BLE001  (whatever it was, another broker may do better)
            self._log.exception("controller epoch %d could not begin; standing again", election.epoch)
            self._move()

    def _move(self) -> None:
        """Resign so that any broker can be elected, and stand for election again after a pause."""
        if time.monotonic() - self._led_since > _AGAIN_MAX_S:
            self._failures = 0
        self._led_since = math.inf
        pause_s = min(_AGAIN_MAX_S, _AGAIN_AFTER_S * 2 ** min(self._failures, 10))
        self._failures += 1
        try:
            self._stand_later(pause_s)
        finally:
            self._give_up()

    def _stand_later(self, pause_s: float | None = None) -> None:
        """Stand for election again after a pause, and not before, even if ``/controller`` is free."""
        if self._is_closed:
            return
        self._is_pausing = True

        def stand() -> None:
            self._is_pausing = False
            self.events.put(ControllerChange())

        if self._again is not None:
            self._again.cancel()
        self._again = threading.Timer(_AGAIN_AFTER_S if pause_s is None else pause_s, stand)
        self._again.name, self._again.daemon = "controller-election-pause", True
        try:
            self._again.start()
        except RuntimeError:  # the system gives no thread: the pause is made here
            self._log.exception("no thread for the pause before the next election")
            time.sleep(_AGAIN_AFTER_S)
            stand()

    def _give_up(self) -> None:
        """Resign, and delete ``/controller``."""
        if not self._is_elected:
            return
        fence = self._fence
        self._resign()
        self._forget()
        try:
            delete_controller(self.session, fence)
        except ControllerMoved as e:
            self._log.warning("gave up a leadership that another broker has already: %s", e)
        except ChannelError as e:
            self._log.warning("could not delete /controller; it ends with the session: %s", e)

    def _resign(self) -> None:
        """Close the channels to all brokers, drop the context, and end the registration as a broker."""
        self._end_leadership()
        if self._unregister_broker is not None:
            self._unregister_broker(self.session)

    def _end_leadership(self, timeout_s: float | None = None) -> None:
        leadership, self._leadership = self._leadership, None
        self.epoch, self._fence = 0, 0
        if leadership is not None:
            self._log.info("resigning")
            leadership.close(timeout_s)
            self._log.info("resigned")


def refuse(event: ControllerEvent, code: ErrorCode = ErrorCode.NOT_CONTROLLER) -> None:
    """Answer a request with an error, by which its sender looks for the active controller; other events need none."""
    if isinstance(event, ApiRequest):
        if event.api_key == ApiKey.CONTROLLED_SHUTDOWN and code == ErrorCode.NOT_CONTROLLER:
            code = ErrorCode.STALE_CONTROLLER_EPOCH  # as Kafka's brokers answer this one
        event.callback(error_response(event.api_key, event.request, code))
