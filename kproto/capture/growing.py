"""A file that is read on while it grows, also when a new file takes its place."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S: Final = 0.1
_HEAD: Final = 4096
"""The number of first bytes by which a file that was written anew is told from one that grew."""


class Growing:
    """A file that is read for ever, in parts: one more whenever it is written anew, or another file replaces it.

    Args:
        path: The file's path.
        note: Called with a line of text where reading goes on in another place.

    Raises:
        OSError: There is no such file, or it cannot be opened.
    """

    def __init__(self, path: str, note: Callable[[str], object]) -> None:
        self.path: str = path
        self.name: str = os.path.basename(path)  # noqa: PTH119  a path as the user typed it
        self._note = note
        self._descriptor = os.open(path, os.O_RDONLY)

    def __iter__(self) -> Iterator[GrowingPart]:
        """Yield a part once it has a first byte; its end is where reading goes on in the next."""
        try:
            while True:
                part = GrowingPart(self.path, self.name, self._descriptor)
                if part.peek():
                    yield part
                if part.is_replaced:
                    self._note(f"{self.path} is a new file now, as after a rotation; reading goes on in it")
                    following = os.open(self.path, os.O_RDONLY)
                    os.close(self._descriptor)
                    self._descriptor = following
                else:
                    self._note(f"{self.path} was written anew; reading goes on at its beginning")
                    os.lseek(self._descriptor, 0, os.SEEK_SET)
        finally:
            os.close(self._descriptor)


class GrowingPart:
    """A file's bytes up to where it is written anew or replaced.

    Attributes:
        name: The file's name.
        is_replaced: Whether another file has the path now.
    """

    def __init__(self, path: str, name: str, descriptor: int) -> None:
        self.name: str = name
        self.is_replaced: bool = False
        self._path = path
        self._descriptor = descriptor
        self._head = b""
        self._read_to = 0

    def peek(self) -> bool:
        """Wait for the first byte; whether there is one."""
        return self._wait()

    def read(self, n: int) -> bytes:
        """At most n bytes, as soon as there are any; empty at the end of the part."""
        if not self._wait():
            return b""
        data = os.read(self._descriptor, n)
        self._read_to += len(data)
        self._head += data[: max(_HEAD - len(self._head), 0)]
        return data

    def _wait(self) -> bool:
        """Wait until there is a byte to read; False if the part has ended."""
        while not self._is_anew():
            if os.fstat(self._descriptor).st_size > self._read_to:
                return True
            if self.is_replaced:  # looked for before the size: what was written before the rotation is read
                return False
            self.is_replaced = self._has_successor()
            if not self.is_replaced:
                time.sleep(_POLL_S)
        self.is_replaced = False
        return False

    def _is_anew(self) -> bool:
        """Whether the bytes that were read are no longer the file's first ones."""
        is_shorter = os.fstat(self._descriptor).st_size < self._read_to
        return is_shorter or os.pread(self._descriptor, len(self._head), 0) != self._head

    def _has_successor(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))  # noqa: PTH116
        except FileNotFoundError:  # between the two steps of a rotation
            return False
