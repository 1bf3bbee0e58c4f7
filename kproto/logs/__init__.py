"""Logs of brokers and controllers, in every form that people keep them in.

A log is read in two layers that know nothing of each other. ``wrappers`` takes off what the logging system, the
container runtime or a person put around a line: JSON of Docker, log4j2, filebeat, journald, syslog's header, a prefix,
colours, pieces of long lines, pretty-printed JSON; ``times`` reads the times that are left. What a line says is read by
``request_lines`` (``kafka-request.log``); ``kproto.capture.log_reader`` makes the frames of it that a capture gives.
``docs/inputs.md`` lists what is read, from which release, and what it cannot show.
"""

from __future__ import annotations

from .reading import LogReading

__all__ = ["LogReading"]
