"""Tests what tshark reads with kproto's dissector: the same fields as kproto's codec, and never a Lua error."""

import gzip
import os
import random
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import program
from conftest import DATA, few

from kproto.api import CONTROL_APIS, ApiKey, api_name, check_version
from kproto.capture import WHOLE, exchanges, frames
from kproto.capture.wanted import WantedApis
from kproto.cli.wireshark import command
from kproto.errors import DecodeError, UnsupportedVersion
from kproto.json_form import uuid_to_json
from kproto.metadata_log.deliveries import batches_told
from kproto.metadata_log.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from kproto.reference import decode_request, decode_response
from kproto.reference.struct import Struct
from kproto.tables.metadata_points import CLIENT
from kproto.wireshark import dissector

KRAFT = DATA / "kraft"
CAPTURES = sorted((DATA / "captures").glob("*.pcap.gz"))
ADDED = (
    "unknown_tagged_field",
    "length",
    "api_key",
    "api_version",
    "correlation_id",
    "client_id",
    "request_in",
    "response_in",
    "latency",
)
RECORD_HEAD = ("kproto.log_offset", "kproto.record_type", "kproto.record_version")
OF_TYPE: dict[tuple[type[MetadataRecord], str], str] = {
    (BrokerRegistrationChangeRecord, "fenced"): "fenced_int8",
    (BrokerRegistrationChangeRecord, "in_controlled_shutdown"): "in_controlled_shutdown_int8",
    (ClientQuotaRecord, "value"): "value_double",
    (AccessControlEntryRecord, "id"): "id_uuid",
    (RemoveAccessControlEntryRecord, "id"): "id_uuid",
}
Read = tuple[str, int, int, int, tuple[tuple[str, str], ...]]
"""Kind, API, version, correlation id, and the body's fields in wire order."""


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dissector, as ``kproto wireshark`` writes it."""
    path = tmp_path_factory.mktemp("wireshark") / "kproto.lua"
    path.write_text(dissector())
    return path


def tshark(script: Path, capture: Path, *args: str) -> str:
    """Return what tshark prints of a capture; it must have nothing to say of Lua."""
    done = subprocess.run(
        [program("tshark"), "-X", f"lua_script:{script}", "-r", str(capture), *args],
        capture_output=True, text=True, errors="replace", timeout=120, check=True,
        env=os.environ | {"HOME": str(script.parent)},  # a home may have the dissector among its plugins
    )  # fmt: skip
    assert "Lua" not in done.stderr
    assert "Lua Error" not in done.stdout
    assert "kproto.lua:" not in done.stdout
    return done.stdout


def unpacked(capture: Path, folder: Path) -> Path:
    plain = folder / capture.stem
    plain.write_bytes(gzip.decompress(capture.read_bytes()))
    return plain


def fields_of(script: Path, capture: Path, where: str, *names: str) -> list[list[str]]:
    """Return some fields of the packets that a display filter shows, read in two passes."""
    wanted = [argument for name in names for argument in ("-e", name)]
    return [
        line.split("\t") for line in tshark(script, capture, "-2", "-Y", where, "-T", "fields", *wanted).splitlines()
    ]


def read_by_tshark(script: Path, capture: Path) -> list[Read]:
    """Return the control messages that tshark reads in a capture."""
    messages: list[Read] = []
    page = ET.fromstring(tshark(script, capture, "-Y", "kproto", "-T", "pdml"))
    for proto in page.iter("proto"):
        if proto.get("name") != "kproto":
            continue
        fields = [(str(f.get("name")).removeprefix("kproto."), str(f.get("show"))) for f in proto.iter("field")]
        fields = [(name, show) for name, show in fields if not name.startswith("_ws")]
        head = dict(reversed(fields))
        names = {str(f.get("name")) for f in proto.iter("field")}
        if "api_key" not in head or names & {"kproto.malformed", "kproto.unknown_version"}:
            continue  # a response without request, or what kproto refuses too
        expert = [f for f in proto.iter("field") if str(f.get("name")) == "_ws.expert"]
        kind = "response" if "request" not in str(proto.get("showname")) else "request"
        body = tuple((name, show) for name, show in fields if name not in ADDED and not _is_expert(name, expert))
        messages.append((kind, int(head["api_key"]), int(head["api_version"]), int(head["correlation_id"]), body))
    return messages


def _is_expert(name: str, experts: list[Any]) -> bool:
    return any(f"kproto.{name}" == inner.get("name") for expert in experts for inner in expert.iter("field"))


def read_by_kproto(capture: Path) -> list[Read]:
    """Return the control messages that kproto reads in a capture, with the reference codec."""
    messages: list[Read] = []
    for frame in frames(capture, apis=CONTROL_APIS):
        if frame.status != WHOLE or frame.api_key is None or frame.api_version is None:
            continue
        body = bytes(frame.content)[frame.body_at :]
        decode = decode_request if frame.direction == "request" else decode_response
        try:
            message = decode(frame.api_key, frame.api_version, body)
        except (DecodeError, UnsupportedVersion):
            continue
        kind = "request" if frame.direction == "request" else "response"
        fields = tuple(flat(message, frame.api_version))
        messages.append((kind, frame.api_key, frame.api_version, frame.correlation_id, fields))
    return messages


def records_by_tshark(script: Path, capture: Path) -> Counter[tuple[str, ...]]:
    """Return the records of the metadata log that tshark reads: offset, type, version, and the fields in wire order."""
    found: Counter[tuple[str, ...]] = Counter()
    for item in ET.fromstring(tshark(script, capture, "-Y", "kproto.record_type", "-T", "pdml")).iter("field"):
        head = {each.get("name"): str(each.get("show")) for each in item}
        if "kproto.record_type" in head:
            fields = [(each.get("name"), str(each.get("show"))) for each in item.iter("field") if each is not item]
            body = (
                f"{name}={show}"
                for name, show in fields
                if name and not name.startswith("_ws") and name not in RECORD_HEAD
            )
            found[*(head[name] for name in RECORD_HEAD), *(each.removeprefix("kproto.") for each in body)] += 1
    return found


def records_by_kproto(capture: Path) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for exchange in exchanges(capture, apis=WantedApis({ApiKey.FETCH}, fetch_client=CLIENT)):
        for batch in batches_told(exchange) if exchange.request is not None else ():
            for offset, _time, _epoch, _is_control, record, error in batch.records():
                assert isinstance(record, MetadataRecord), error
                body = (f"{of_type(record, name)}={show}" for name, show in flat(record, record.version))
                found[str(offset), record.title(), str(record.version), *body] += 1
    return found


def of_type(record: MetadataRecord, name: str) -> str:
    """A field's filter: some names have another type elsewhere."""
    return OF_TYPE.get((type(record), name), "port_uint16" if name == "port" else name)


def flat(struct: Struct, version: int) -> Iterator[tuple[str, str]]:
    """Return a struct's values in wire order, as Wireshark shows them."""
    present = [field for field in struct.fields.all.values() if field.exists_in(version)]
    tagged = [field for field in present if field.tag is not None and getattr(struct, field.name) != field.fresh()]
    for field in [*(field for field in present if field.tag is None), *tagged]:
        value = getattr(struct, field.name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Struct):
                yield from flat(item, version)
            elif item is not None:
                yield field.name, shown(item)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, bytes):
        return uuid_to_json(value) if len(value) == 16 else value.hex(":")
    return f"{value:.15g}" if isinstance(value, float) else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".pcap")[0])
def test_tshark_reads_every_control_message_of_a_real_capture_as_kproto_does(
    script: Path, capture: Path, tmp_path: Path
) -> None:
    by_tshark = Counter(read_by_tshark(script, unpacked(capture, tmp_path)))
    by_kproto = Counter(read_by_kproto(capture))
    assert by_tshark
    assert not by_tshark - by_kproto  # nothing that kproto does not read so
    if "lossy" not in capture.name and "cut" not in capture.name:  # tshark gives up a stream that lacks bytes
        assert not by_kproto - by_tshark


@pytest.mark.parametrize("run", few(f"kraft-{name}" for name in ("4.1-d", "3.9-a", "3.9-m", "4.1-a", "4.1-b", "4.1-c")))
def test_tshark_reads_every_record_of_the_metadata_log_as_kproto_does(script: Path, run: str, tmp_path: Path) -> None:
    by_kproto = records_by_kproto(KRAFT / f"{run}.pcap.gz")
    assert by_kproto
    assert records_by_tshark(script, unpacked(KRAFT / f"{run}.pcap.gz", tmp_path)) == by_kproto


def test_no_control_message_of_the_newest_versions_is_malformed(script: Path, tmp_path: Path) -> None:
    capture = unpacked(DATA / "captures" / "ibp-3.9-a.pcap.gz", tmp_path)
    assert tshark(script, capture, "-Y", "kproto && (kproto.malformed || _ws.malformed)") == ""


@pytest.mark.slow
def test_a_filter_by_leader_epoch_finds_the_requests_that_carry_it(script: Path, tmp_path: Path) -> None:
    source = DATA / "captures" / "ibp-3.9-a.pcap.gz"
    found = tshark(
        script,
        unpacked(source, tmp_path),
        "-Y",
        "kproto.leader_epoch == 1",
        "-T",
        "fields",
        "-e",
        "kproto.correlation_id",
    )
    expected = [read for read in read_by_kproto(source) if ("leader_epoch", "1") in read[4]]
    assert len([each for line in found.split() for each in line.split(",")]) >= len(expected) > 0


@pytest.mark.slow
def test_requests_and_responses_name_each_other(script: Path, tmp_path: Path) -> None:
    capture = unpacked(DATA / "captures" / "ibp-3.9-a.pcap.gz", tmp_path)
    rows = fields_of(script, capture, "kproto.request_in", "frame.number", "kproto.request_in", "kproto.latency")
    back = dict(fields_of(script, capture, "kproto.response_in", "frame.number", "kproto.response_in"))
    assert rows
    for response, request, latency in rows:
        assert back[request] == response
        assert 0 < float(latency) < 60


@pytest.mark.slow
def test_a_refusal_is_an_expert_warning_with_kafkas_name(script: Path, tmp_path: Path) -> None:
    capture = unpacked(DATA / "captures" / "external-controller-a.pcap.gz", tmp_path)
    assert "LeaderAndIsr" in tshark(script, capture, "-Y", "kproto.refused")
    details = tshark(script, capture, "-Y", "kproto.refused", "-V")
    assert "The broker refused the request: STALE_CONTROLLER_EPOCH" in details


@pytest.mark.slow
def test_other_apis_are_left_to_wiresharks_own_dissector(script: Path, tmp_path: Path) -> None:
    capture = unpacked(DATA / "captures" / "ibp-3.9-a.pcap.gz", tmp_path)
    mine = tshark(
        script,
        capture,
        "-d",
        "tcp.port==19092,kproto",
        "-Y",
        "kafka.api_key == 1",
        "-T",
        "fields",
        "-e",
        "frame.number",
    )
    own = tshark(
        script, capture, "-d", "tcp.port==19092,kafka", "-Y", "kafka.api_key == 1", "-T", "fields", "-e", "frame.number"
    )
    assert mine == own != ""


@pytest.mark.slow
def test_damaged_captures_raise_no_lua_error(script: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    names = ("ibp-0.8.2-a", "ibp-2.4-IV1-a", "ibp-3.9-a", "external-controller-a")
    for source in (*(DATA / "captures" / f"{name}.pcap.gz" for name in names), KRAFT / "kraft-3.9-a.pcap.gz"):
        data = bytearray(gzip.decompress(source.read_bytes()))
        at = 24
        while at + 16 <= len(data):  # each packet's payload, never its record's header
            size = int.from_bytes(data[at + 8 : at + 12], "little")
            for _ in range(draw.randrange(4)):
                if size > 70:
                    data[at + 16 + draw.randrange(66, size)] = draw.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256))
                    )
            at += 16 + size
        damaged = tmp_path / source.stem
        damaged.write_bytes(data)
        assert tshark(script, damaged, "-V", "-Y", "kproto")


def test_every_version_of_every_message_is_declared() -> None:
    source = dissector()
    for api in CONTROL_APIS:
        assert f'"{api_name(api)}"' in source
        assert f"[{int(api)}]={check_version(api, 0).max_version}" in source


def test_the_command_installs_where_wireshark_looks(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--install", "--folder", str(tmp_path / "plugins")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "plugins" / "kproto.lua").read_text() == dissector()
    assert str(tmp_path / "plugins" / "kproto.lua") in done.output


def test_the_command_prints_the_dissector() -> None:
    assert CliRunner().invoke(command, []).output == dissector()


@pytest.mark.slow
def test_the_page_shows_what_tshark_prints(script: Path, tmp_path: Path) -> None:
    page = (DATA.parents[1] / "docs" / "wireshark.md").read_text(encoding="utf-8")
    of_requests, of_records = (block.partition("```")[0].splitlines() for block in page.split("```console\n")[1:])
    printed = fields_of(
        script,
        unpacked(DATA / "captures" / "ibp-3.9-a.pcap.gz", tmp_path),
        "kproto.leader_epoch == 3",
        *("frame.number", "kproto.topic_name", "kproto.partition_index", "kproto.leader"),
    )
    assert [line.split("\t") for line in of_requests[1:-1]] == printed[:5]
    printed = fields_of(
        script,
        unpacked(KRAFT / "kraft-3.9-a.pcap.gz", tmp_path),
        'kproto.record_type == "PARTITION_CHANGE_RECORD" && kproto.leader_recovery_state == 1',
        *("frame.number", "kproto.log_offset", "kproto.partition_id", "kproto.leader"),
    )
    assert [line.split("\t") for line in of_records[1:]] == printed
