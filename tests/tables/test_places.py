"""Directories of tables at URIs: their parts are told apart, and what follows a question mark belongs to the store."""

import pytest

from kproto.tables.places import RemotePath, place_of


@pytest.mark.parametrize("query", ["", "?endpoint_override=127.0.0.1:9000&scheme=http"])
def test_a_uris_parts_keep_the_settings_of_its_store(query: str) -> None:
    place = place_of(f"s3://bucket/tables{query}")
    assert isinstance(place, RemotePath)
    file = place / "requests" / "a.parquet"
    assert str(file) == f"s3://bucket/tables/requests/a.parquet{query}"
    assert (file.name, file.parent, file.parent.parent) == ("a.parquet", place / "requests", place)
    assert {place, place_of(str(place))} == {place}
