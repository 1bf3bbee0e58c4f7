"""A recorder that rotates its files: a finished file has its final name and never changes any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from channel.clock import SYSTEM_CLOCK, Clock
from channel.locks import guards, guards_calls, new_lock
from channel.logs import get_logger
from channel.network.recorder import PcapngRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = get_logger(__name__)

_RETRY_NS: Final = 10_000_000_000  # after a file could not be opened or written


class RotatingRecorder(PcapngRecorder):
    """Records into files of bounded size or time: ``NAME-00001.pcapng``, ``NAME-00002.pcapng`` and so on.

    The file that is being written ends in ``.part`` and is renamed when it is finished, so that a file with its final
    name never changes any more. After ``kill -9`` the last ``.part`` is readable up to the last packet. A file that
    cannot be renamed is logged and keeps its name; the recording goes on in the next file. When a file can no longer be
    written, as the disk is full, another is tried every ten seconds; what passes meanwhile is counted.

    Args:
        path: The name, with or without ``.pcapng``. Files that are there are never touched, those of an earlier run or
            of another recorder: the numbers go on behind them.
        max_bytes: The size at which a file is finished; 0 for no limit.
        max_seconds: The age at which a file is finished; 0 for no limit.
        keep_secrets: Record passwords and tokens too; by default zeros stand in their places.

    Attributes:
        finished: Number of files that have got their final name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 0,
        max_seconds: float = 0,
        keep_secrets: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        given = Path(path)
        self._stem = given.with_suffix("") if given.suffix == ".pcapng" else given
        self._max_bytes = max_bytes
        self._max_ns = int(max_seconds * 1e9)
        self._clock = clock
        self._number = max(map(_number, self._stem.parent.glob(f"{self._stem.name}-*.pcapng*")), default=0) + 1
        self._began = clock.nanoseconds()
        self._rotating = new_lock("rotation")
        self._frames_before = 0
        self._retry_ns = 0
        self.finished = 0
        super().__init__(self._part(), keep_secrets=keep_secrets)

    def _part(self) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{self._number:05d}.pcapng.part")

    def _names(self) -> Iterator[Path]:
        """The next file's name, with numbers that go on until one is free."""
        while True:
            yield self._part()
            self._number += 1

    def _open(self) -> None:
        """Open the next file whose final name is free, too."""
        super()._open()
        while os.path.lexists(self.path.with_suffix("")):  # another recorder's, which was finished just now
            os.close(self._fd)
            self.path.unlink()
            self._number += 1
            super()._open()

    def record(self, *frame: Any, **options: Any) -> None:
        """Record bytes, see ``Recorder.record``; begin the next file if this one is full or old."""
        super().record(*frame, **options)
        self.rotate_if_due()

    def _is_due(self) -> bool:
        now = self._clock.nanoseconds()
        if now < self._retry_ns:
            return False
        if self.error is not None and now - self._began >= _RETRY_NS:
            return True
        if self._max_bytes and self.written >= self._max_bytes:
            return True
        is_old = self._max_ns and now - self._began >= self._max_ns
        return bool(is_old) and self.frames > self._frames_before

    def rotate_if_due(self) -> None:
        """Begin the next file if the present one is full, or old and not empty, or cannot be written any more.

        ``record`` calls it; while no bytes pass, the owner has to.
        """
        if not self._is_due():
            return
        with self._rotating:
            if self._is_due():  # check again, now that no other thread rotates
                self._rotate()

    def _rotate(self) -> None:
        part, number = self.path, self._number
        self._number += 1
        self._began = self._clock.nanoseconds()
        self._frames_before = self.frames
        try:
            self.switch(self._part())
        except OSError as e:
            self._number = number
            self._retry_ns = self._clock.nanoseconds() + _RETRY_NS
            _log.error("cannot begin the next recording, going on in %s: %s", part, e)
            return
        self._finish(part)

    def close(self) -> None:
        """Finish the present file."""
        with self._rotating:
            super().close()
            if self.path.suffix == ".part":
                self._finish(self.path)

    def _finish(self, part: Path) -> None:
        try:
            if not part.stat().st_size:  # the disk had no room for its beginning
                part.unlink()
                return
            if os.path.lexists(part.with_suffix("")):
                raise FileExistsError(errno.EEXIST, "its name is taken")
            part.rename(part.with_suffix(""))
        except OSError as e:
            _log.error("the finished recording keeps its name %s, as it cannot be renamed: %s", part, e.strerror)
        else:
            self.finished += 1


guards(RotatingRecorder, "_rotating", "_number", "_stem")
guards_calls(RotatingRecorder, "_rotating", "_finish", "_rotate")


def _number(path: Path) -> int:
    digits = path.name.removesuffix(".part").removesuffix(".pcapng").rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
