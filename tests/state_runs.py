"""The logs and the captures of runs of real brokers, from ``tests/data/state_logs``."""

import io
import lzma
import tarfile
from functools import cache

from conftest import DATA


@cache
def files_of(run: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((DATA / "state_logs" / f"{run}.tar.xz").read_bytes()))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def logs_of(run: str, level: str) -> dict[str, bytes]:
    """The state-change and controller logs of all brokers, at a level."""
    found = {name: data for name, data in files_of(run).items() if name.endswith(("change.log", "controller.log"))}
    if level == "TRACE":
        return found
    return {
        name: b"".join(
            line for line in data.splitlines(keepends=True) if b"] TRACE" not in line and b"] DEBUG" not in line
        )
        for name, data in found.items()
    }
