"""Writes a fleet's packets to pcap files: one capture of all connections or one for each broker, rotated, packed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kproto.errors import ConfigurationError
from kproto.extras import install_command

from .packets import PCAP_HEADER, bursts
from .traffic import TrafficPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fleet import PlannedFleet

DEFAULT_MSS: Final = 1460
"""The maximum segment size of Ethernet without jumbo frames."""

_BUFFERED: Final = 64 << 10
"""Bytes buffered for a file; files are reopened to append, so that a thousand of them hold no descriptors."""

_ZSTD_WINDOW: Final = 26
"""The logarithm of the window, 64 MiB, in which a packed file finds the copy of a body for the broker before."""


class Written:
    """Capture files as far as they are written.

    Attributes:
        files: Path -> bytes of the capture, before packing.
        packets: Packets in all files.
    """

    def __init__(self) -> None:
        self.files: dict[Path, int] = {}
        self.packets = 0


class _Capture:
    """One capture point's file, or its rotated files, named as tcpdump -C names them."""

    def __init__(self, path: Path, rotate_bytes: int | None, written: Written, *, zstd: bool) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._written = written
        self._zstd = zstd
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        name = f"{self._path.name}{self._number or ''}{'.zst' if self._zstd else ''}"
        self._file = path = self._path.with_name(name)
        self._packer = _packer() if self._zstd else None
        self._held = bytearray(PCAP_HEADER)
        path.write_bytes(b"")
        self._written.files[path] = 0

    def write(self, data: bytes) -> None:
        size = self._written.files[self._file] + len(self._held)
        if self._rotate_bytes is not None and size + len(data) > self._rotate_bytes and size > len(PCAP_HEADER):
            self.flush(last=True)
            self._number += 1
            self._begin()
        self._held += data
        if len(self._held) >= _BUFFERED:
            self.flush()

    def flush(self, *, last: bool = False) -> None:
        data = bytes(self._held)
        self._written.files[self._file] += len(data)
        self._held.clear()
        if self._packer is not None:
            data = self._packer.compress(data) + (self._packer.flush() if last else b"")
        if data:
            with self._file.open("ab") as file:
                file.write(data)


def _packer() -> Any:
    """Return a compressor that finds bodies which were sent to another broker before."""
    try:
        import zstandard
    except ImportError:
        raise ConfigurationError(f"zstd needs the zstandard package; {install_command('zstd')}") from None
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=_ZSTD_WINDOW, enable_ldm=True)
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj()


def write_captures(
    fleet: PlannedFleet,
    directory: Path,
    *,
    per_host: bool = False,
    rotate_bytes: int | None = None,
    zstd: bool = False,
    mss: int = DEFAULT_MSS,
    progress: Callable[[int], object] | None = None,
) -> Written:
    """Write a fleet's history as pcap files.

    Args:
        fleet: The fleet.
        directory: Where the files go; it must exist. ``control.pcap``, or ``broker-ID.pcap`` for each broker.
        per_host: Whether each broker's connections are a capture of their own, as recorded on its host.
        rotate_bytes: The most bytes of a file, before packing; the next file is ``control.pcap1`` and so on.
        zstd: Whether to pack each file, as ``control.pcap.zst``. Each file that is open takes 100 MB of memory, so that
            captures of hosts cannot be packed.
        mss: Bytes of data in a TCP segment at most.
        progress: Called after each burst with its number of bytes.

    Raises:
        ConfigurationError: zstd is wanted, and its package is not there, or captures of hosts are wanted too.
    """
    if zstd and per_host:
        raise ConfigurationError("captures of each host cannot be packed while they are written; pack them afterwards")
    written = Written()
    captures: dict[str, _Capture] = {}
    for burst in bursts(TrafficPlanner(fleet).steps(), seed=fleet.seed, mss=mss):
        name = f"broker-{burst.connection.broker}.pcap" if per_host else "control.pcap"
        capture = captures.get(name)
        if capture is None:
            capture = captures[name] = _Capture(directory / name, rotate_bytes, written, zstd=zstd)
        capture.write(burst.data)
        written.packets += burst.packets
        if progress is not None:
            progress(len(burst.data))
    for capture in captures.values():
        capture.flush(last=True)
    return written


def write_stream(
    fleet: PlannedFleet, out: BinaryIO, *, mss: int = DEFAULT_MSS, progress: Callable[[int], object] | None = None
) -> None:
    """Write a fleet's history as one pcap to a stream, such as a pipe; arguments as in ``write_captures``."""
    out.write(PCAP_HEADER)
    for burst in bursts(TrafficPlanner(fleet).steps(), seed=fleet.seed, mss=mss):
        out.write(burst.data)
        if progress is not None:
            progress(len(burst.data))
    out.flush()
