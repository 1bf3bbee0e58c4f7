"""The table of Kafka's APIs: which header stands before which body, what a controller sends under which IBP.

Every row is held against Kafka's own classes in tests/oracle; here stand the rules and the exceptions.
"""

import pytest
from conftest import DATA, read_jsonl

from kproto.api import (
    CONTROL_APIS,
    ApiKey,
    api_name,
    check_version,
    control_versions,
    ibp_versions,
    is_later,
    request_header_version,
    response_header_version,
)
from kproto.errors import ConfigurationError, UnsupportedApi, UnsupportedVersion


@pytest.mark.parametrize(
    ("api", "request_versions", "response_versions"),
    [
        (3, [1] * 9 + [2] * 4, [0] * 9 + [1] * 4),
        (4, [1] * 4 + [2] * 4, [0] * 4 + [1] * 4),
        (5, [1] * 2 + [2] * 3, [0] * 2 + [1] * 3),
        (6, [1] * 6 + [2] * 3, [0] * 6 + [1] * 3),
        (7, [0, 1, 1, 2], [0, 0, 0, 1]),
        (17, [1, 1], [0, 0]),
        (18, [1] * 3 + [2] * 2, [0] * 5),
        (36, [1, 1, 2], [0, 0, 1]),
        (56, [2] * 4, [1] * 4),
        (58, [2], [1]),
    ],
    ids=lambda value: ApiKey(value).info.name if isinstance(value, int) else "",
)
def test_header_versions(api: int, request_versions: list[int], response_versions: list[int]) -> None:
    """Flexible bodies have flexible headers; ControlledShutdown v0 and the answer to ApiVersions are the exceptions."""
    versions = range(ApiKey(api).info.max_version + 1)
    assert [request_header_version(api, v) for v in versions] == request_versions
    assert [response_header_version(api, v) for v in versions] == response_versions


def test_a_version_too_new_counts_as_flexible() -> None:
    assert request_header_version(6, 99) == 2
    assert request_header_version(17, 99) == 1


def test_what_does_not_exist() -> None:
    for ask in (request_header_version, response_header_version, check_version):
        with pytest.raises(UnsupportedApi, match="337"):
            ask(337, 0)
    with pytest.raises(UnsupportedVersion, match=r"UpdateMetadata \(6\) has no version 9; it has 0 to 8"):
        check_version(6, 9)
    with pytest.raises(UnsupportedVersion):
        check_version(6, -1)
    assert (api_name(6), api_name(337)) == ("UpdateMetadata", "UNKNOWN(337)")


def test_the_control_apis() -> None:
    assert CONTROL_APIS == (4, 5, 6)
    assert [key.info.max_version for key in CONTROL_APIS] == [7, 4, 8]
    assert {key.info.listeners for key in CONTROL_APIS} == {"Z"}  # only a ZooKeeper-mode broker takes them


CAPTURED = sorted(
    p.name.split("-a")[0].removeprefix("ibp-") for p in (DATA / "captures").glob("ibp-*-a.truth.jsonl.gz")
)


@pytest.mark.parametrize("ibp", [name for name in CAPTURED if name not in ("3.9-migration", "3.9-big")])
def test_real_controllers_sent_these_versions(ibp: str) -> None:
    """What a Kafka 3.9.1 controller sent in the recorded clusters, by their inter.broker.protocol.version."""
    sent = {(row["api_key"], row["version"]) for row in read_jsonl(DATA / "captures" / f"ibp-{ibp}-a.truth.jsonl.gz")}
    versions = control_versions(ibp)
    seen = [api for api in CONTROL_APIS if any(key == api for key, _ in sent)]
    assert seen
    for api in seen:
        assert {version for key, version in sent if key == api} == {versions.of(api)}, api


@pytest.mark.parametrize(
    ("text", "full"),
    [("2.4", "2.4-IV1"), ("2.4-IV0", "2.4-IV0"), ("3.9", "3.9-IV0"), ("3.9.1", "3.9-IV0"), ("0.8.2", "0.8.2"),
     ("0.10.2", "0.10.2-IV0"), ("0.10.2.1", "0.10.2-IV0"), ("2.8.0", "2.8-IV1"), ("0.8.2.2", "0.8.2")],
)  # fmt: skip
def test_a_release_means_its_last_protocol_version(text: str, full: str) -> None:
    assert control_versions(text).ibp == full


@pytest.mark.parametrize("text", ["", "4.0", "3.9-IV1", "2", "2.4-IV", "latest", "0.7", "2.4-IV01"])
def test_no_such_protocol_version(text: str) -> None:
    with pytest.raises(ConfigurationError, match="try one of"):
        control_versions(text)


def test_versions_only_grow() -> None:
    ladder = [control_versions(ibp) for ibp in ibp_versions()]
    for api in CONTROL_APIS:
        steps = [each.of(api) for each in ladder]
        assert steps == sorted(steps)
        assert (steps[0], steps[-1]) == (0, api.info.max_version)
    with pytest.raises(UnsupportedApi):
        ladder[0].of(3)


def test_versions_of_kafka_4_are_known_and_not_those_of_3_9() -> None:
    assert (ApiKey.FETCH.info.max_version, ApiKey.FETCH.info.newest_version) == (17, 18)
    assert (ApiKey.LEADER_AND_ISR.info.max_version, ApiKey.LEADER_AND_ISR.info.newest_version) == (7, 7)
    assert [is_later(1, 17), is_later(1, 18), is_later(1, 19), is_later(88, 0), is_later(88, 1), is_later(337, 0)] == [
        False, True, False, True, False, False,
    ]  # fmt: skip
    assert check_version(1, 18).name == "Fetch"
    with pytest.raises(UnsupportedVersion, match=r"Fetch \(1\) has no version 19; it has 0 to 18"):
        check_version(1, 19)
    assert (api_name(92), request_header_version(92, 0), response_header_version(92, 0)) == (
        "DeleteShareGroupOffsets",
        2,
        1,
    )
    with pytest.raises(UnsupportedApi):
        check_version(92, 0)
