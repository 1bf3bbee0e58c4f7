"""Kafka's messages as text: ``{controller_id=9,isr=[1,2]}`` of its structs, ``Name(controllerId=9, host='b1')`` of its
generated classes; values as numbers, truth values, None, text, lists and dicts."""

from __future__ import annotations

import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"(?P<open>(?:[A-Za-z_][\w.$]*)?[({])|(?P<close>[)}])|(?P<list>\[)|(?P<end>\])|(?P<key>[A-Za-z_]\w*)="
    r"|'(?P<quoted>[^']*)'|(?P<comma>,)|(?P<space>\s+)|(?P<scalar>[^,\[\]{}()='\s][^,\[\]{}()=']*)"
)
_DEEPEST: Final = 20
_TEXTS: Final = frozenset(
    (
        *("topic", "topic_name", "topicName", "name", "host", "host_name", "hostName", "v0_host", "v0Host"),
        *("listener", "listener_name", "rack", "client_id", "topicId", "topic_id"),
    )
)
"""Fields that hold text, though it may look like a number."""

_NUMBER: Final = re.compile(r"-?\d{1,19}")


def parse_struct(text: str, at: int = 0) -> tuple[dict[str, Any], int]:
    """Read the struct that begins at a place in a text.

    Returns:
        Its fields, and where it ends.

    Raises:
        ValueError: There is none, it does not end, or it is no struct; the text of the error says where.
    """
    stack: list[tuple[Any, str]] = []  # the values that are open, and the key under which each is to be put
    key = ""
    has_value = True  # whether the key has its value
    while (token := _TOKEN.match(text, at)) is not None:
        kind = token.lastgroup
        at = token.end()
        if kind in ("open", "list"):
            if len(stack) >= _DEEPEST:
                raise ValueError(f"structs within structs at character {at}")
            stack.append(({} if kind == "open" else [], key))
            key, has_value = "", True
            continue
        if not stack:
            break
        value, _ = stack[-1]
        if kind == "key":
            if not isinstance(value, dict):
                break
            key, has_value = token["key"], False
        elif kind in ("close", "end"):
            if isinstance(value, dict) != (kind == "close"):
                break
            if not has_value:
                value[key] = ""
            value, key = stack.pop()
            has_value = True
            if not stack:
                if not isinstance(value, dict):
                    break
                return value, at
            _put(stack[-1][0], key, value)
            key = ""
        elif kind == "comma":
            if not has_value:
                value[key] = ""
                has_value = True
        elif kind != "space":
            quoted = token["quoted"]
            _put(value, key, _scalar(key, token["scalar"].rstrip()) if quoted is None else quoted)
            has_value = True
    raise ValueError(f"no struct at character {at}")


def _put(into: Any, key: str, value: Any) -> None:
    if isinstance(into, dict):
        into[key] = value
    else:
        into.append(value)


def _scalar(key: str, text: str) -> Any:
    if text == "null":
        return None
    if key in _TEXTS:
        return text
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text
