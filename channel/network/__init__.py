"""Frames over sockets: a selector, a client for many nodes, a server, a recorder. No controller, no broker."""
