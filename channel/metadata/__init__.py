"""A client's metadata of its cluster: snapshots, their refresh, and the clients that wait for it or show it."""
