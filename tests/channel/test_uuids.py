"""Random ids, whatever is drawn."""

import uuid

import pytest

from channel.types import random_uuid
from kproto.json_form import uuid_to_json


def test_no_id_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [bytes([first]) + bytes(15) for first in range(0xF7, 0xFD)]
    assert [uuid_to_json(each)[0] for each in drawn] == ["9", "-", "-", "-", "-", "_"]
    draws = iter(drawn)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=next(draws)))
    assert [random_uuid(), random_uuid()] == [drawn[0], drawn[-1]]
