"""The settings that a topic can have: their names, and the values that Kafka 3.9 accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_INT: Final = 1 << 31
_LONG: Final = 1 << 63
_NEAREST_VERSIONS: Final = re.compile(
    r"0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)(-IV[0-9]|\.[0-9]+)*|[1-3]\.[0-9](-IV[0-9]|\.[0-9]+)*"
)


def _whole(least: int, limit: int = _LONG, most: int | None = None) -> Callable[[str], str | None]:
    """Return a check for whole numbers of 32 or 64 bits."""
    highest = limit - 1 if most is None else most

    def check(text: str) -> str | None:
        if not _WHOLE.fullmatch(text) or not -limit <= int(text) < limit:
            return f"not a number of {'32' if limit == _INT else '64'} bits"
        return None if least <= int(text) <= highest else f"it must be {least} to {highest}"

    return check


def _words(*allowed: str) -> Callable[[str], str | None]:
    """Return a check for one of these words."""
    return lambda text: None if text in allowed else f"it must be one of: {', '.join(allowed)}"


def _flag(text: str) -> str | None:
    return None if text.lower() in ("true", "false") else "it must be true or false"


def _off(text: str) -> str | None:
    return None if text.lower() == "false" else "it must be false: remote storage is not enabled"


def _gzip_level(text: str) -> str | None:
    return "it must be -1 or 1 to 9" if text.strip("+-0") == "" else _whole(-1, _INT, 9)(text)


def _share(text: str) -> str | None:
    if not _DECIMAL.fullmatch(text):
        return "not a number"
    return None if 0 <= float(text.rstrip("dDfF")) <= 1 else "it must be 0 to 1"


def _policies(text: str) -> str | None:
    known = all(part in ("compact", "delete") for part in re.split(r"\s*,\s*", text) if text)
    return None if known else "it must be compact, delete, or both with a comma between them"


def _throttled(text: str) -> str | None:
    fits = text in ("", "*") or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in re.split(r"\s*,\s*", text))
    return None if fits else "it must be * or PARTITION:BROKER, with commas between them"


def _version(text: str) -> str | None:
    return None if _NEAREST_VERSIONS.fullmatch(text) else "no version of Kafka up to 3.9"


_SETTINGS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "cleanup.policy": _policies,
    "compression.gzip.level": _gzip_level,
    "compression.lz4.level": _whole(1, _INT, 17),
    "compression.type": _words("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _whole(-131_072, _INT, 22),
    "delete.retention.ms": _whole(0),
    "file.delete.delay.ms": _whole(0),
    "flush.messages": _whole(1),
    "flush.ms": _whole(0),
    "follower.replication.throttled.replicas": _throttled,
    "index.interval.bytes": _whole(0, _INT),
    "leader.replication.throttled.replicas": _throttled,
    "local.retention.bytes": _whole(-2),
    "local.retention.ms": _whole(-2),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _whole(0, _INT),
    "message.downconversion.enable": _flag,
    "message.format.version": _version,
    "message.timestamp.after.max.ms": _whole(0),
    "message.timestamp.before.max.ms": _whole(0),
    "message.timestamp.difference.max.ms": _whole(0),
    "message.timestamp.type": _words("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _share,
    "min.compaction.lag.ms": _whole(0),
    "min.insync.replicas": _whole(1, _INT),
    "preallocate": _flag,
    "remote.log.copy.disable": _off,
    "remote.log.delete.on.disable": _off,
    "remote.storage.enable": _off,
    "retention.bytes": _whole(-_LONG),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(14, _INT),
    "segment.index.bytes": _whole(4, _INT),
    "segment.jitter.ms": _whole(0),
    "segment.ms": _whole(1),
    "unclean.leader.election.enable": _flag,
}


def check_topic_settings(settings: Mapping[str, str]) -> str | None:
    """Return the reason why a topic cannot have these settings, None if it can.

    >>> check_topic_settings({"retention.ms": "-1"})
    >>> check_topic_settings({"retention.ms": "a week"})
    "retention.ms is 'a week': not a number of 64 bits"
    """
    for name, value in settings.items():
        check = _SETTINGS.get(name)
        if check is None:
            return f"a topic has no setting {name!r}"
        if reason := check(value.strip()):
            return f"{name} is {value!r}: {reason}"
    least, most = settings.get("min.compaction.lag.ms"), settings.get("max.compaction.lag.ms")
    if least is not None and most is not None and int(least) > int(most):
        return f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, {most}"
    return None
