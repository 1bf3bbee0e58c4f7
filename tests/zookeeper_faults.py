"""Faults of ZooKeeper sessions."""

from kazoo.client import KazooClient

from channel.zookeeper.session import ZooKeeperSession


def expire(session: ZooKeeperSession) -> None:
    """Have ZooKeeper end a session, as it does with one that has been silent for too long."""
    thief = KazooClient(session.hosts, client_id=session._client.client_id)
    thief.start(10)
    thief.stop()
    thief.close()
