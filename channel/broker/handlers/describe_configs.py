"""DescribeConfigs (32): the settings of topics that differ from the defaults, and those of the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproto import messages
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle"]

_TOPIC, _BROKER = 2, 4
_OF_TOPIC: Final = 1
_OF_RUNNING_BROKER: Final = 2
_OF_FILE: Final = 4


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with the settings that the hook ``settings`` finds; an embedded broker has no list of defaults."""
    return messages.DescribeConfigsResponse(results=[_described(broker, each) for each in request.resources])


def _described(broker: EmbeddedBroker, resource: Any) -> messages.DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    code, message = ErrorCode.NONE, None
    found: list[tuple[str, str, int]] = []
    if kind == _TOPIC and broker.metadata.contains(name):
        found = [(*each, _OF_TOPIC) for each in _settings(broker, f"topics/{name}")]
    elif kind == _TOPIC:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif kind == _BROKER and name == str(broker.broker_id):
        found = [(*each, _OF_RUNNING_BROKER) for each in _settings(broker, f"brokers/{name}")]
        found.append(("broker.id", name, _OF_FILE))
    else:
        code = ErrorCode.INVALID_REQUEST
        message = f"Unexpected broker id, expected {broker.broker_id}, but received {name}"
    wanted = resource.configuration_keys
    return messages.DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=kind,
        resource_name=name,
        configs=[
            messages.DescribeConfigsResourceResult(
                name=key, value=value, read_only=source == _OF_FILE, config_source=source, documentation=None
            )
            for key, value, source in found
            if wanted is None or key in wanted
        ],
    )


def _settings(broker: EmbeddedBroker, entity: str) -> list[tuple[str, str]]:
    read = broker.hooks.settings
    return [] if read is None else sorted(read(entity).items())
