"""kproto's tables of APIs and error codes against Kafka's own classes, row by row."""

from typing import Any

from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.error_codes import ErrorCode

LISTENERS = {"ZK_BROKER": "Z", "BROKER": "B", "CONTROLLER": "C"}


def test_every_api(oracle: Any) -> None:
    theirs = {
        row["api"]: (
            row["name"],
            row["min"],
            row["max"],
            "".join(letter for name, letter in LISTENERS.items() if name in row["listeners"]),
            row["max_stable"] >= row["min"],
        )
        for row in oracle.ask_one(op="apis")["apis"]
    }
    ours = {
        int(key): (i.name, i.min_version, i.max_version, i.listeners, i.stable) for key in ApiKey for i in [key.info]
    }
    assert ours == theirs


def test_every_header_version(oracle: Any) -> None:
    """Up to two versions beyond the range: the header of a too new request must still be read."""
    asked = [(int(key), version) for key in ApiKey for version in range(key.info.max_version + 3)]
    answers = oracle.ask([{"op": "header_version", "api": api, "version": version} for api, version in asked])
    for (api, version), answer in zip(asked, answers, strict=True):
        assert request_header_version(api, version) == answer["request"], (api, version)
        assert response_header_version(api, version) == answer["response"], (api, version)


def test_every_error_code(oracle: Any) -> None:
    theirs = [(row["code"], row["name"], row["retriable"]) for row in oracle.ask_one(op="errors")["errors"]]
    assert [(int(code), code.name, code.retriable) for code in ErrorCode] == sorted(theirs)
