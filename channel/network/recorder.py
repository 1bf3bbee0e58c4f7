"""A recorder of frames as they pass, in pcapng files that Wireshark and ``kproto.capture`` open.

Each frame becomes TCP segments of a conversation made up for it: sequence numbers count the bytes of the real stream,
so that any reader of captures puts the frames together again. A segment is one Enhanced Packet Block. The blocks of one
frame are written in one call; those of all frames of one round of a selector too, before it waits for an event. Each
block carries the CRC-32C of its packet in a custom option (code 2989, enterprise number 32473, the letters ``c32p``,
the sum as uint32, little-endian), which ``kproto.capture`` holds against what it reads; the length at the block's end
shows a torn tail. So a recording is readable up to its last whole block, however the process ended. TCP checksums are
left zero, as a network card leaves them that computes its own.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import os
import stat
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from crc32c import crc32c

from channel.locks import guards, guards_changes, new_lock
from channel.logs import get_logger
from channel.threads import Closeable
from kproto import __version__
from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.capture.pcapng import CRC_OPTION, CRC_PEN, CRC_TAG
from kproto.codec import decode_request, decode_response, encode
from kproto.errors import KprotoError
from kproto.headers import (
    decode_request_header_from,
    decode_response_header_from,
    encode_request_header,
    encode_response_header,
    request_header,
    response_header,
)

from .transport import IOV_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .transport import Address, Bytes

_log = get_logger(__name__)

Direction: TypeAlias = Literal["sent", "received"]

_SEGMENT: Final = 61_440  # bytes of payload: an IP packet holds less than 64 KiB
_FIN, _SYN, _PUSH, _ACK = 1, 2, 8, 16
_block = struct.Struct("<IIIIIII")
_block_end = struct.Struct("<III")
_ports = struct.Struct(">HH")
_ipv4_tcp = struct.Struct(">16sH6sH12sIIH6s")
_ipv6_tcp = struct.Struct(">18sH2s36sIIH6s")
_AFTER_FLAGS: Final = b"\xff\xff\0\0\0\0"  # TCP's window, checksum and urgent pointer
_JOINED: Final = 4_096  # bytes of payload: copying so few takes less time than a write of several buffers
_MOST_BLOCKS: Final = 64  # that are kept before they are written
_CHECKSUMS: Final = [bytes(padding) + struct.pack("<HHI4s", CRC_OPTION, 12, CRC_PEN, CRC_TAG) for padding in range(4)]
"""The end of a packet and the head of its checksum, by the bytes of padding."""

_ETHERNET: Final = bytes.fromhex("020000000002020000000001")
_MAPPED: Final = bytes(10) + b"\xff\xff"  # before an IPv4 address that is written as an IPv6 address

_REQUEST_HEAD: Final = 12
"""Bytes: length, API key, version, correlation id."""

_RESPONSE_HEAD: Final = 8
"""Bytes: length, correlation id."""

_MOST_HELD: Final = 65_536
"""The longest frame that is held back until it is whole; a longer one with a secret is zeroed as it arrives."""

_MOST_IDS: Final = 64
"""Number of correlation ids that are kept of the latest requests, and of requests whose answers have a secret."""

_HIDDEN_APIS: Final = frozenset({
    ApiKey.ALTER_CONFIGS, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
})  # fmt: skip
_EXAMINED_APIS: Final = _HIDDEN_APIS | {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ENVELOPE}

# A request's first four bytes are its API and version: small numbers, which no token of a SASL mechanism begins with.
_HIGHEST_API: Final = 127
_HIGHEST_VERSION: Final = 30

_request_head = struct.Struct(">iHHI")
_length = struct.Struct(">i")


class Recorder(Protocol):
    """Records every whole frame that has passed; called from many threads. Frames come with their secrets."""

    def opened(self, local: Address, remote: Address, time_ns: int, *, initiator: bool = True) -> None:
        """Note that a connection is established; ``initiator`` if this end made it."""

    def record(
        self,
        direction: Direction,
        local: Address,
        remote: Address,
        time_ns: int,
        buffers: Sequence[Bytes],
        more: bool = False,
    ) -> None:
        """Record a frame that ``local`` sent to ``remote``, or received from it; its length is part of the buffers.

        Args:
            direction: Whether this end sent it.
            local, remote: The two ends.
            buffers: The frame. Their memory may be used for another frame afterwards.
            more: Whether the caller calls ``flush`` soon, so that the frame need not be written now.
        """

    def flush(self) -> None:
        """Write frames that have not been written."""

    def closed(self, local: Address, remote: Address, time_ns: int) -> None:
        """Note that the connection has ended."""


class GuardedRecorder:
    """A recorder whose faults do not reach the connections: the first ends the recording, and is logged and kept.

    Attributes:
        error: The fault, None while the recording goes on.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.error: Exception | None = None
        self.opened = self._guarded(recorder.opened)
        self.record = self._guarded(recorder.record)
        self.flush = self._guarded(recorder.flush)
        self.closed = self._guarded(recorder.closed)

    def _guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        def guarded(*arguments: Any, **options: Any) -> None:
            if self.error is None:
                try:
                    call(*arguments, **options)
                except Exception as e:  # noqa: BLE001 - a recorder may raise anything
                    self.error = e
                    _log.error("the recorder failed; nothing more is recorded", exc_info=e)

        return guarded


class _Stream:
    """One direction of the connection, with the frame that is being examined.

    Attributes:
        held: The bytes of the frame that have arrived and are held back.
        wanted: The number of held bytes that the next step needs.
        rest: Number of further bytes of the frame, which need not be held back.
        is_hidden: Whether those further bytes are zeroed.
    """

    __slots__ = ("held", "is_hidden", "rest", "wanted")

    def __init__(self) -> None:
        self.held = bytearray()
        self.wanted = 4
        self.rest = 0
        self.is_hidden = False


class SecretMask:
    """The two byte streams of one connection, as they may be recorded.

    The head of each frame, and a whole frame with a secret, are held back until they are complete; other bytes pass.
    """

    __slots__ = ("_answers", "_answers_tokens", "_before_token", "_has_handshake", "_latest", "_received", "_sent")

    def __init__(self) -> None:
        self._sent = _Stream()
        self._received = _Stream()
        self._has_handshake = False
        self._answers: dict[int, tuple[int, int]] = {}  # correlation id of a response with a secret: API and version
        self._latest: deque[int] = deque(maxlen=_MOST_IDS)  # correlation ids of requests, since the last bare token
        self._before_token: frozenset[int] = frozenset()
        self._answers_tokens = False  # whether the broker's frames may be answers to bare tokens

    def masked(self, buffers: Sequence[Bytes], *, is_request: bool) -> Sequence[Bytes]:
        """Return the bytes to record instead of these, in one direction; some may be held back."""
        stream, passes = (self._sent, self._request_passes) if is_request else (self._received, self._response_passes)
        head = _REQUEST_HEAD if is_request else _RESPONSE_HEAD
        recorded: list[Bytes] = []
        for buffer in buffers:
            data = memoryview(buffer)
            begin = at = 0  # data[begin:at] passes
            end = len(data)
            while at < end:
                if stream.rest:
                    count = min(stream.rest, end - at)
                    if stream.is_hidden:
                        if begin < at:
                            recorded.append(data[begin:at])
                        recorded.append(bytes(count))
                        begin = at + count
                    stream.rest -= count
                    at += count
                    continue
                if not stream.held and end - at >= head and (size := passes(data, at)) is not None:
                    stream.rest = 4 + size
                    stream.is_hidden = False
                    continue
                if begin < at:
                    recorded.append(data[begin:at])
                begin = min(end, at + stream.wanted - len(stream.held))
                stream.held += data[at:begin]
                at = begin
                if len(stream.held) == stream.wanted:
                    self._examine(stream, recorded)
            if begin < at:
                recorded.append(data[begin:at])
        return recorded

    def passes(self, buffers: Sequence[Bytes], size: int, is_request: bool) -> bool:
        """Whether these buffers are one whole frame without secrets, which is recorded as it is.

        Nearly all frames are: it takes less time than ``masked``, which takes all others.
        """
        stream = self._sent if is_request else self._received
        if stream.held or stream.rest or not buffers:
            return False
        head, wanted = buffers[0], _REQUEST_HEAD if is_request else _length.size
        if len(head) < wanted and len(buffers) > 1:
            head = bytes(head) + buffers[1][:wanted]
        if len(head) < wanted:
            return False
        return (self._request_passes(head, 0) if is_request else self._response_passes(head, 0)) == size - 4

    def _request_passes(self, data: Bytes, at: int) -> int | None:
        """Return the size of a request that has no secret, None if the frame must be examined."""
        size: int
        size, api_key, version, correlation_id = _request_head.unpack_from(data, at)
        if size < 8 or api_key > _HIGHEST_API or version > _HIGHEST_VERSION or api_key in _EXAMINED_APIS:
            return None
        if not self._latest or self._latest[-1] != correlation_id:  # else it has been asked about before, in part
            self._latest.append(correlation_id)
        return size

    def _response_passes(self, data: Bytes, at: int) -> int | None:
        """Return the size of a response if none with a secret is due, None if the frame must be examined."""
        if self._answers or self._answers_tokens:
            return None
        size: int = _length.unpack_from(data, at)[0]
        return size if size >= 0 else None

    def _examine(self, stream: _Stream, recorded: list[Bytes]) -> None:
        """Ask for more bytes of the frame, or record the held bytes and decide whether to zero the rest."""
        is_request = stream is self._sent
        size = int.from_bytes(stream.held[:4], "big", signed=True)
        whole = 4 + max(0, size)
        head = min(whole, _REQUEST_HEAD if is_request else _RESPONSE_HEAD)
        if len(stream.held) < head:
            stream.wanted = head
            return
        frame = bytes(stream.held)
        api: tuple[int, int] | None = None
        if not is_request:
            api = self._answers.get(_correlation_id(frame))
        elif _is_request(frame):
            _, api_key, version, _ = _request_head.unpack_from(frame)
            api = (api_key, version) if api_key in _EXAMINED_APIS else None
        if api is not None and api[0] not in _HIDDEN_APIS and len(frame) < whole <= _MOST_HELD:
            stream.wanted = whole
            return
        is_hidden, shown = False, frame
        if api is not None:
            is_hidden = True
            shown = _masked(frame, whole, *api, is_request=is_request)
        elif is_request and self._has_handshake and not _is_request(frame):
            is_hidden = True
            shown = frame[:4] + bytes(len(frame) - 4)
            self._before_token = frozenset(self._latest) | (self._before_token if not self._latest else frozenset())
            self._latest.clear()
            self._answers_tokens = True
            if size < 0:  # no frames any more
                whole = sys.maxsize
        elif not is_request and self._answers_tokens:
            is_hidden = not self._is_response(frame)
            shown = frame[:4] + bytes(len(frame) - 4) if is_hidden else frame
        if not is_request:
            self._answers.pop(_correlation_id(frame), None)
        elif _is_request(frame):
            self._note_request(frame, has_secret=api is not None and (api[0] != ApiKey.ENVELOPE or shown != frame))
        recorded.append(shown)
        stream.held.clear()
        stream.wanted = 4
        stream.rest = whole - len(frame)
        stream.is_hidden = is_hidden

    def _note_request(self, frame: bytes, *, has_secret: bool) -> None:
        _, api_key, version, correlation_id = _request_head.unpack_from(frame)
        if api_key == ApiKey.SASL_HANDSHAKE:
            self._has_handshake = True
        elif has_secret:
            if len(self._answers) >= _MOST_IDS:
                del self._answers[next(iter(self._answers))]
            self._answers[correlation_id] = (api_key, version)
        self._latest.append(correlation_id)

    def _is_response(self, frame: bytes) -> bool:
        """Whether a frame of the broker answers a request, and no bare token."""
        correlation_id = _correlation_id(frame)
        if correlation_id in self._latest:  # a request after the last token: all tokens have been answered
            self._answers_tokens = False
            return True
        return correlation_id in self._before_token


class _Direction:
    """One direction of a conversation: its headers, and the position in its stream."""

    __slots__ = ("_first", "_last", "_middle", "_sum", "_v4", "sequence")

    def __init__(self, source: Address, target: Address) -> None:
        ends = [ipaddress.ip_address(host.partition("%")[0]) for host, _ in (source, target)]
        self._v4 = all(end.version == 4 for end in ends)
        # A relay may join an IPv6 client to an IPv4 server: both are written as IPv6 then.
        hosts = b"".join(end.packed if self._v4 or end.version == 6 else _MAPPED + end.packed for end in ends)
        if self._v4:
            self._first = _ETHERNET + b"\x08\x00\x45\x00"
            self._middle = b"\x00\x00\x40\x00\x40\x06"
        else:
            self._first = _ETHERNET + b"\x86\xdd\x60\x00\x00\x00"
            self._middle = b"\x06\x40"  # protocol, hop limit
        self._last = hosts + _ports.pack(source[1], target[1])
        self.sequence = 0
        self._sum = 0x4500 + 0x4000 + 0x4006 + (sum(struct.unpack(">4H", hosts)) if self._v4 else 0)

    def headers(self, length: int, acknowledged: int, flags: int) -> bytes:
        """Build the Ethernet, IP and TCP headers of this many bytes of payload."""
        flags |= 0x5000
        if not self._v4:
            return _ipv6_tcp.pack(
                self._first, length + 20, self._middle, self._last, self.sequence, acknowledged, flags, _AFTER_FLAGS
            )
        total = self._sum + length + 40
        total = (total & 0xFFFF) + (total >> 16)
        total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        return _ipv4_tcp.pack(
            self._first, length + 40, self._middle, total, self._last, self.sequence, acknowledged, flags, _AFTER_FLAGS
        )

    def advance(self, length: int) -> None:
        """Move on by this many bytes."""
        self.sequence = (self.sequence + length) & 0xFFFFFFFF


class _Conversation:
    """A recorded connection: its two directions, and what hides its secrets.

    Attributes:
        sent, received: The two directions.
        mask: Hides secrets, None to keep them.
        requests: The direction of requests.
        first: The first sequence number of both directions.
        is_one_of_two: Whether the connection's other end is recorded here too.
    """

    __slots__ = ("first", "is_one_of_two", "mask", "received", "requests", "sent")

    def __init__(self, local: Address, remote: Address, *, initiator: bool, keep_secrets: bool) -> None:
        self.sent = _Direction(local, remote)
        self.received = _Direction(remote, local)
        self.mask = None if keep_secrets else SecretMask()
        self.requests: Direction = "sent" if initiator else "received"
        self.first = 0
        self.is_one_of_two = False


class PcapngRecorder(Closeable):
    """Writes a pcapng file. Safe from any thread; ``close`` it, or use it in a ``with``.

    The file is a new one, which only its owner may read: a name that is taken, by a link too, gets ``.1``, ``.2`` and
    so on, which the log says and ``path`` shows. Only a pipe or a device that is there is written to.

    A file that can no longer be written (a full disk) ends the recording, not the
    traffic: the error is logged once, and kept in ``error``; frames are counted in ``lost`` until ``switch`` begins a
    file that can be written. The file keeps the whole frames that it had.

    Args:
        path: The file, see above.
        keep_secrets: Record passwords and tokens too; by default zeros stand in their places.

    Attributes:
        path: The file that is written now, which is not the one that was asked for if that name was taken.
        frames: Number of frames recorded.
        lost: Number of frames that could not be recorded.
        written: Bytes written to the present file.
        error: The error that ended the recording, None while it goes on.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_secrets: bool = False) -> None:
        self.path = Path(path)
        self.frames = 0
        self.lost = 0
        self.written = 0
        self.error: OSError | None = None
        self._lock = new_lock("recorder")
        self._conversations: dict[tuple[Address, Address], _Conversation] = {}
        self._keep_secrets = keep_secrets
        self._fd = -1
        self._blocks: list[Bytes] = []
        self._frames_in_blocks = 0
        self._told_of_error = False
        self._open()

    def opened(self, local: Address, remote: Address, time_ns: int, *, initiator: bool = True) -> None:
        """Write the handshake of a connection."""
        with self._lock:
            begun = self._begin(local, remote, initiator=initiator)
            asks, answers = (begun.sent, begun.received) if initiator else (begun.received, begun.sent)
            other = self._conversations.get((remote, local))
            if other is not None and not other.is_one_of_two:
                begun.is_one_of_two = other.is_one_of_two = True
                begun.first = other.first  # readers take the frames of the other end for copies
            else:
                # As in TCP a clock of 4 us gives it: a connection that uses the ports again has another number.
                begun.first = time_ns // 4_000 & 0xFFFFFFFF
            begun.sent.sequence = begun.received.sequence = begun.first
            self._blocks += _packet(asks, 0, time_ns, _SYN)
            asks.advance(1)
            self._blocks += _packet(answers, asks.sequence, time_ns, _SYN | _ACK)
            answers.advance(1)
            self._blocks += _packet(asks, answers.sequence, time_ns, _ACK)
            self._write()

    def record(
        self,
        direction: Direction,
        local: Address,
        remote: Address,
        time_ns: int,
        buffers: Sequence[Bytes],
        more: bool = False,
    ) -> None:
        """Write a frame; see ``Recorder.record``.

        Bytes that may be a secret are held back until that is known. A connection whose beginning was not recorded
        counts as made by ``local``.
        """
        with self._lock:
            conversation = self._conversations.get((local, remote))
            if conversation is None:
                conversation = self._begin(local, remote, initiator=True)
            size = _size(buffers)
            mask, is_request = conversation.mask, direction == conversation.requests
            if mask is not None and not mask.passes(buffers, size, is_request):
                buffers = mask.masked(buffers, is_request=is_request)
                size = _size(buffers)
                if not size:
                    return
            way, other = conversation.sent, conversation.received
            if direction != "sent":
                way, other = other, way
            for pieces, length in ((buffers, size),) if size <= _SEGMENT else _segments(buffers):
                self._blocks += _packet(way, other.sequence, time_ns, _PUSH | _ACK, pieces, length)
                way.advance(length)
            self.frames += 1
            self._frames_in_blocks += 1
            if not more or size > _JOINED or len(self._blocks) >= _MOST_BLOCKS:
                self._write()

    def flush(self) -> None:
        """Write frames that have not been written."""
        if self._blocks:
            with self._lock:
                self._write()

    def closed(self, local: Address, remote: Address, time_ns: int) -> None:
        """Write the end of a connection."""
        with self._lock:
            conversation = self._conversations.pop((local, remote), None)
            if conversation is None:
                return
            sent, received = conversation.sent, conversation.received
            for way, other in ((sent, received), (received, sent)):
                self._blocks += _packet(way, other.sequence, time_ns, _FIN | _ACK)
                way.advance(1)
            self._write()

    def switch(self, path: str | os.PathLike[str]) -> None:
        """Continue in another file: open connections continue there with the next byte.

        A recording that had ended by an error begins again.

        Raises:
            OSError: The file cannot be opened; the recording goes on in the present one.
        """
        with self._lock:
            self._write()
            former, former_path = self._fd, self.path
            self.path = Path(path)
            try:
                self._open()
            except OSError:
                self._fd, self.path = former, former_path
                raise
            if former >= 0:
                try:
                    os.close(former)
                except OSError as e:  # bytes that the system had taken and could not write
                    _log.error("the end of the recording %s may be missing: %s", former_path, e)
            if self._told_of_error and self.error is None:
                self._told_of_error = False
                _log.warning("the recording goes on in %s; so far %d frames are missing", self.path, self.lost)

    def close(self) -> None:
        """End the recording; later frames are not recorded."""
        with self._lock:
            self._write()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._conversations.clear()

    def _begin(self, local: Address, remote: Address, *, initiator: bool) -> _Conversation:
        begun = _Conversation(local, remote, initiator=initiator, keep_secrets=self._keep_secrets)
        self._conversations[local, remote] = begun
        return begun

    def _open(self) -> None:
        self._fd, self.path = _open_new(self._names())
        self.written = 0
        self.error = None
        self._blocks.append(_beginning())
        if self.lost:
            self._blocks.append(_dropped(self.lost))
        self._write()

    def _names(self) -> Iterator[Path]:
        """The names to try, in order, from the file's own on."""
        yield self.path
        for number in itertools.count(1):
            yield self.path.with_name(f"{self.path.name}.{number}")

    def _write(self) -> None:
        """Write all blocks in one call, unless the system takes only a part."""
        pieces, self._blocks = self._blocks, []
        frames, self._frames_in_blocks = self._frames_in_blocks, 0
        if self._fd < 0 or self.error is not None:
            self.frames -= frames
            self.lost += frames
            return
        before = self.written
        try:
            at = 0
            while at < len(pieces):
                written = os.writev(self._fd, pieces[at : at + IOV_MAX])
                self.written += written
                while at < len(pieces) and written >= len(pieces[at]):
                    written -= len(pieces[at])
                    at += 1
                if written:
                    pieces[at] = memoryview(pieces[at])[written:]
        except OSError as e:
            self.error = e
            self.frames -= frames
            self.lost += frames
            with contextlib.suppress(OSError):  # no file, but a pipe
                os.ftruncate(self._fd, before)  # what is lost is lost whole: no block is torn
                self.written = before
            if not self._told_of_error:
                self._told_of_error = True
                _log.error("recording to %s has ended: %s", self.path, e)


guards(PcapngRecorder, "_lock", "_conversations", "_fd", "_frames_in_blocks", "_told_of_error")
guards_changes(PcapngRecorder, "_lock", "_blocks")


def _open_new(names: Iterator[Path]) -> tuple[int, Path]:
    """Create a file for its owner alone, under the first of these names that nothing has; returns its descriptor.

    No file that is there is opened, whoever made it, and no link is followed: a recording holds what its traffic had,
    and takes the place of nothing. A pipe or a device that has the first name is opened as it is.
    """
    first: Path | None = None
    for name in names:
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if first is None:
                first = name
                if (fd := _open_stream(name)) >= 0:
                    return fd, name
            continue
        os.fchmod(fd, 0o600)  # whatever the umask is
        if first is not None:
            _log.warning("%s is there already: the recording goes to %s", first, name)
        return fd, name
    raise FileExistsError(errno.EEXIST, "every name is taken")


def _open_stream(path: Path) -> int:
    """Open a pipe or a device; returns -1 for anything else."""

    def is_stream(mode: int) -> bool:
        return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)

    if not is_stream(path.lstat().st_mode):
        return -1
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if is_stream(os.fstat(fd).st_mode):  # it may have been replaced since
        return fd
    os.close(fd)
    return -1


def _packet(
    way: _Direction, acknowledged: int, time_ns: int, flags: int, pieces: Sequence[Bytes] = (), length: int = 0
) -> list[Bytes]:
    """Build a block with one packet, in pieces that are not joined."""
    headers = way.headers(length, acknowledged, flags)
    packet: Sequence[Bytes] = (headers, *pieces)
    if length <= _JOINED:
        packet = (b"".join(packet),)
    checksum = 0
    for piece in packet:
        checksum = crc32c(piece, checksum)
    captured = len(headers) + length
    end = _CHECKSUMS[-captured % 4]
    size = _block.size + captured + len(end) + _block_end.size
    head = _block.pack(6, size, 0, time_ns >> 32, time_ns & 0xFFFFFFFF, captured, captured)
    block = [head, *packet, end, _block_end.pack(checksum, 0, size)]
    return [b"".join(block)] if length <= _JOINED else block


def _size(buffers: Sequence[Bytes]) -> int:
    size = 0
    for buffer in buffers:
        size += len(buffer)
    return size


def _segments(buffers: Sequence[Bytes]) -> Iterator[tuple[list[Bytes], int]]:
    """Cut the buffers into the pieces of each segment, with the segment's length."""
    segment: list[Bytes] = []
    room = _SEGMENT
    for buffer in buffers:
        at, size = 0, len(buffer)
        while size - at >= room:
            segment.append(memoryview(buffer)[at : at + room])
            yield segment, _SEGMENT
            at += room
            segment, room = [], _SEGMENT
        if at < size:
            segment.append(memoryview(buffer)[at:] if at else buffer)
            room -= size - at
    if segment:
        yield segment, _SEGMENT - room


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _wrapped(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _beginning() -> bytes:
    """Build the section's header and its interface: Ethernet, whole packets, times in ns."""
    program = _option(4, f"kproto {__version__}".encode()) + _option(0, b"")
    section = _wrapped(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + program)
    interface = _option(2, b"kproto") + _option(9, b"\x09") + _option(0, b"")
    return section + _wrapped(1, struct.pack("<HHI", 1, 0, 0) + interface)


def _dropped(frames: int) -> bytes:
    """Build statistics of the interface: so many frames have not been recorded so far."""
    now_ns = time.time_ns()
    head = struct.pack("<III", 0, now_ns >> 32, now_ns & 0xFFFFFFFF)
    return _wrapped(5, head + _option(5, struct.pack("<Q", frames)) + _option(0, b""))


def _correlation_id(response: bytes) -> int:
    """Return a response's correlation id, -1 if the frame ends before it."""
    return int.from_bytes(response[4:_RESPONSE_HEAD], "big") if len(response) >= _RESPONSE_HEAD else -1


def _is_request(frame: bytes) -> bool:
    """Whether the head of a frame is that of a Kafka request."""
    if len(frame) < _REQUEST_HEAD:
        return False
    _, api_key, version, _ = _request_head.unpack_from(frame)
    return api_key == ApiKey.SASL_HANDSHAKE or bool(api_key <= _HIGHEST_API and version <= _HIGHEST_VERSION)


def _masked(frame: bytes, whole: int, api_key: int, version: int, *, is_request: bool) -> bytes:
    """Return a frame, or as much of it as was held back, with zeros for its secrets."""
    head = _REQUEST_HEAD if is_request else _RESPONSE_HEAD
    if len(frame) == whole and api_key not in _HIDDEN_APIS:
        shown: bytes | None = None
        with contextlib.suppress(KprotoError):  # it may still hold a secret
            if is_request:
                shown = _masked_request(frame, ApiKey(api_key), version)
            elif api_key == ApiKey.SASL_AUTHENTICATE:
                shown = _masked_authentication(frame, version)
        # Other lengths come of fields that are not known here, and may be anything.
        if shown is not None and len(shown) == len(frame):
            return shown
    return frame[:head] + bytes(len(frame) - head)


def _masked_request(frame: bytes, api_key: ApiKey, version: int) -> bytes | None:
    header, at = decode_request_header_from(frame[4:])
    body = decode_request(api_key, version, frame[4 + at :])
    if api_key == ApiKey.ENVELOPE:
        embedded = int.from_bytes(bytes(body.request_data or b"")[:2], "big")
        return None if embedded in _HIDDEN_APIS else frame
    known = request_header(api_key, version, header.correlation_id, header.client_id)
    head = frame[:4] + encode_request_header(known, request_header_version(api_key, version))
    return head + _without_token(body, version)


def _masked_authentication(frame: bytes, version: int) -> bytes:
    api_key = ApiKey.SASL_AUTHENTICATE
    header_version = response_header_version(api_key, version)
    header, at = decode_response_header_from(frame[4:], header_version)
    head = frame[:4] + encode_response_header(response_header(header.correlation_id), header_version)
    return head + _without_token(decode_response(api_key, version, frame[4 + at :]), version)


def _without_token(body: Any, version: int) -> bytes:
    """Encode the body of a SASL message without its token, and without fields that are not known here."""
    body.unknown_tagged_fields = ()
    if body.api_key == ApiKey.SASL_AUTHENTICATE:
        body.auth_bytes = bytes(len(body.auth_bytes))
    return encode(body, version)
