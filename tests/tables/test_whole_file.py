"""A file is there whole or not at all, whoever else writes beside it."""

from pathlib import Path

from kproto.tables.whole_file import whole_file


def test_two_writers_in_one_directory_do_not_mix_their_bytes(tmp_path: Path) -> None:
    """In one process, or in containers whose processes have the same number."""
    for second in ("b.html", "a.html"):
        with whole_file(tmp_path / "a.html") as one, whole_file(tmp_path / second) as other:
            one.write(b"1" * 10)
            other.write(b"2" * 5)
            one.write(b"1" * 10)
        assert (tmp_path / "a.html").read_bytes() == b"1" * 20
        assert second == "a.html" or (tmp_path / second).read_bytes() == b"2" * 5
    assert {file.name for file in tmp_path.iterdir()} == {"a.html", "b.html"}


def test_a_failure_leaves_the_former_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"former")
    writing = whole_file(tmp_path / "a.html")
    writing.__enter__().write(b"half")
    assert not writing.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"former"]
