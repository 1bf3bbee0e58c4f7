"""The addresses of ZooKeeper's servers."""

from __future__ import annotations

import socket

from kazoo.hosts import collect_hosts

__all__ = ["unknown_hosts"]


def unknown_hosts(hosts: str) -> list[str]:
    """List the host names of ZooKeeper's addresses that have no IP address."""
    unknown = []
    for host, port in collect_hosts(hosts)[0]:
        try:
            socket.getaddrinfo(host, port)
        except OSError:
            unknown.append(host)
    return unknown
