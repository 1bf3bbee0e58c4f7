"""The histories that a task leaves on disk are one file, however many parts it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproto.pipeline.tasks import read_part, write_parts

if TYPE_CHECKING:
    from pathlib import Path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=40))
def test_parts_in_one_file_are_read_one_by_one(tmp_path: Path, parts: list[bytes]) -> None:
    write_parts(tmp_path / "history", parts)
    assert [read_part(tmp_path / "history", number) for number in range(len(parts))] == parts
    assert [file.name for file in tmp_path.iterdir()] == ["history"]
