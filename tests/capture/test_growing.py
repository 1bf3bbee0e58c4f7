"""A file that grows is read on, also when it is written anew or another one takes its place."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproto.capture import growing


class Writer:
    """Does the next of some steps whenever the reader would wait, so that no test waits for time to pass."""

    def __init__(self, steps: list[Callable[[], object]]) -> None:
        self.steps = iter(steps)

    def __call__(self, _seconds: float) -> None:
        step = next(self.steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[bytes], list[str]]]:
    path = tmp_path / "x.pcap"

    def read(*steps: Callable[[Path], object]) -> tuple[list[bytes], list[str]]:
        monkeypatch.setattr(growing.time, "sleep", Writer([lambda step=step: step(path) for step in steps]))
        notes: list[str] = []
        parts: list[bytes] = []

        def pieces() -> Iterator[None]:
            for part in growing.Growing(str(path), notes.append):
                parts.append(b"")
                while data := part.read(4):
                    parts[-1] += data
                    yield

        with pytest.raises(KeyboardInterrupt):
            for _ in pieces():
                pass
        return parts, [note.removeprefix(f"{path} ") for note in notes]

    path.write_bytes(b"")
    return read


def append(data: bytes) -> Callable[[Path], object]:
    def step(path: Path) -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def write(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def test_what_is_added_is_read(read: Callable[..., tuple[list[bytes], list[str]]]) -> None:
    assert read(append(b"0123456"), append(b"78")) == ([b"012345678"], [])


def test_a_replaced_file_is_read_to_its_end_and_the_new_one_from_its_beginning(
    read: Callable[..., tuple[list[bytes], list[str]]],
) -> None:
    def rotate(path: Path) -> None:
        append(b"45")(path)
        os.rename(path, path.with_suffix(".1"))  # noqa: PTH104

    parts, notes = read(append(b"0123"), rotate, write(b"abcdef"))
    assert parts == [b"012345", b"abcdef"]
    assert notes == ["is a new file now, as after a rotation; reading goes on in it"]


def test_a_replacement_that_is_empty_yet_is_no_part(read: Callable[..., tuple[list[bytes], list[str]]]) -> None:
    def rotate(path: Path) -> None:
        os.rename(path, path.with_suffix(".1"))  # noqa: PTH104
        path.write_bytes(b"")

    parts, notes = read(append(b"0123"), rotate, append(b"ab"), append(b"c"))
    assert parts == [b"0123", b"abc"]
    assert len(notes) == 1


@pytest.mark.parametrize("anew", [b"abc", b"abcdefgh", b"abcdefghijklmnop"])
def test_a_file_that_is_written_anew_is_read_from_its_beginning(
    anew: bytes, read: Callable[..., tuple[list[bytes], list[str]]]
) -> None:
    parts, notes = read(append(b"01234567"), write(anew))
    assert parts == [b"01234567", anew]
    assert notes == ["was written anew; reading goes on at its beginning"]


def test_a_file_that_was_emptied_waits_for_bytes(read: Callable[..., tuple[list[bytes], list[str]]]) -> None:
    parts, notes = read(append(b"01234567"), write(b""), append(b"ab"))
    assert parts == [b"01234567", b"ab"]
    assert len(notes) == 1
