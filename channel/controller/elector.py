"""A broker's part in the controller election: it reads, creates and deletes ``/controller``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.logs import get_logger
from channel.zookeeper.cluster import delete_controller, read_controller, register_controller
from channel.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.zookeeper.cluster import WonElection
    from channel.zookeeper.session import ZooKeeperSession

__all__ = ["NO_CONTROLLER", "Elector"]

NO_CONTROLLER: Final = -1


class Elector:
    """Holds one broker's state of the controller election; on the event thread only.

    A registration of the same broker id by another session counts as another controller's: that of an earlier process
    whose session has not expired yet, or of a second process with the same id.

    Args:
        session: The session that will own the ephemeral node ``/controller``.
        controller_id: The broker id to register.
        changed: Called when ``/controller`` has changed, on a thread of the session's.

    Attributes:
        active_id: The active controller's broker id, -1 if there is none or none is known.
        is_active: Whether this broker is the controller.
        is_kraft: Whether the active controller is a KRaft controller, which has taken the cluster over in a migration.
    """

    def __init__(self, session: ZooKeeperSession, controller_id: int, changed: Callable[[], object]) -> None:
        self.active_id = NO_CONTROLLER
        self.is_active = False
        self.is_kraft = False
        self._session = session
        self._id = controller_id
        self._log = get_logger(__name__, f"[Controller id={controller_id}]")
        session.watch_node(CONTROLLER, changed)

    def look(self) -> None:
        """Read ``/controller``, and watch it until its next change."""
        found = read_controller(self._session)
        self.active_id = NO_CONTROLLER if found is None else found[0].broker_id
        self.is_kraft = found is not None and found[0].kraft_epoch >= 0
        self.is_active = found is not None and found[0].broker_id == self._id and found[1].owner == self._session.id

    def elect(self) -> WonElection | None:
        """Stand for election if there is no controller.

        Returns:
            The epoch of a won election; None if there is a controller.

        Raises:
            ControllerMoved: Another broker was quicker.
        """
        self.look()
        if self.active_id == self._id and not self.is_active:
            self._log.warning(
                "another ZooKeeper session leads as controller %d: waiting until it ends. "
                "If its process is no former run of this one, choose another id",
                self._id,
            )
            return None
        if self.active_id != NO_CONTROLLER:
            self._log.debug("broker %d is the controller; waiting", self.active_id)
            return None
        election = register_controller(self._session, self._id)
        self.active_id, self.is_active = self._id, True
        self._log.info("elected as the controller; epoch is %d, its znode's version %d", *election)
        return election

    def forget(self) -> None:
        """Forget the active controller, as the session has expired or this broker is resigning."""
        self.active_id, self.is_active = NO_CONTROLLER, False

    def withdraw(self) -> None:
        """Delete this broker's own ``/controller``, though ``/controller_epoch`` has been written since its election.

        Raises:
            ControllerMoved: Another broker was elected meanwhile.
        """
        epoch = self._session.exists(CONTROLLER_EPOCH)
        self.look()
        is_ours = self.is_active
        self.forget()
        if is_ours and epoch is not None:
            delete_controller(self._session, epoch.version)
        elif is_ours:
            self._session.delete(CONTROLLER)

    def release(self, fence: int) -> None:
        """Delete ``/controller``, so that any broker may stand for election.

        Args:
            fence: The version of ``/controller_epoch`` that this broker was elected with.

        Raises:
            ControllerMoved: Another broker was elected already.
        """
        self.forget()
        delete_controller(self._session, fence)
