from collections.abc import Sequence
from typing import final

from channel.network.transport import Bytes

class StaleConnection(Exception): ...

@final
class Exchange:
    sent: int
    received: int

    def __init__(self, fd: int, wake_fd: int, limit: int = -1) -> None: ...
    def __call__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        header_tail: bytes,
        tagged: bool,
        body: Sequence[Bytes],
        timeout_ms: int,
    ) -> tuple[bytes, bool, bool]: ...
