"""How fast does a capture become columns, without Spark, beside tshark -T fields? How fast is kproto's dissector in it?

    python benches/tshark_ratios.py [--pairs 3] [--size 100] [--quick] [--json FILE]

Both read the same generated capture, in versions that tshark 4.0 decodes (LeaderAndIsr 4, StopReplica 2,
UpdateMetadata 6), in which no request body is there twice. tshark prints topic, partition, leader, leader epoch and
version of each partition to a file, a line for each packet. kproto decodes every body into Arrow columns, all fields
of them, and keeps none; in the row "to the same text" it also writes tshark's file, a line for each request. The bare
loop takes the packets for what they are in this capture, and gives the requests to the codec: no packet is checked,
late, lost or sent twice, no answer is read, no body has an id. Runs alternate, CPU time is that of the whole process,
its start included. All must find the same partitions. The dissector of ``kproto wireshark`` prints the same fields in
tshark. Beside it stands the least that a dissector in Lua can cost, which is its limit: one that adds as many items,
with as many ranges of bytes, and reads nothing; of a filter as many as there are leader epochs. (tshark 4.0 calls an
UpdateMetadata's ISR replicas, so lists are not in the text.)

Needs tshark (Debian, Ubuntu: apt-get install --no-install-recommends tshark). Ends with 1 if the limit is missed or a
program fails. The figures go to benches/results/tshark.json; --quick reads a small capture once, and judges nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from figures import Goal, finish, options_of
from measure import machine
from processes import cost_of

from kproto.api import ApiKey
from kproto.tables import decode, scan
from kproto.wireshark import dissector

FIELDS = ("topic_name", "partition_id", "leader_id", "leader_epoch", "zk_version")


def goals() -> list[Goal]:
    """The rows."""
    rate, case = "MB / CPU-s", "no body twice"
    return [
        Goal("tshark", "capture to columns", case, rate, "kproto rate", "tshark rate", "tshark", 15, at_least=True),
        Goal("tshark", "capture to columns: a bare loop instead", case, rate, "bare rate", "tshark rate", "tshark"),
        Goal("tshark", "capture to columns: bytes", case, rate, "kproto rate", limit=250, at_least=True),
        Goal("tshark", "capture to the same text", case, rate, "text rate", "tshark rate", "tshark"),
        Goal("tshark", "partition states", case, "M / CPU-s", "kproto rows", "tshark rows", "tshark"),
        Goal("tshark", "dissector, fields", case, rate, "dissector rate", "tshark rate", "tshark"),
        Goal("tshark", "dissector, filter", case, rate, "filter by kproto", "filter by tshark", "tshark"),
        Goal(
            "tshark",
            "dissector, fields, beside the least",
            case,
            rate,
            "dissector rate",
            "least rate",
            "least in Lua",
            0.5,
            at_least=True,
        ),
        Goal(
            "tshark",
            "dissector, filter, beside the least",
            case,
            rate,
            "filter by kproto",
            "filter by least",
            "least in Lua",
            0.5,
            at_least=True,
        ),
        Goal("tshark", "the least in Lua, fields", case, rate, "least rate", "tshark rate", "tshark"),
        Goal("tshark", "the least in Lua, filter", case, rate, "filter by least", "filter by tshark", "tshark"),
    ]


COLUMNS = """
import sys
from kproto.tables import decode, scan
print(sum(rows.num_rows for kind, rows in decode(scan(sys.argv[1:], every_payload=True)) if kind == "state"))
"""
"""Decodes every request and response of a capture to columns; prints the number of partition states."""


BARE = """
import struct, sys
from collections import defaultdict
from kproto.columns import ColumnsBuilder

with open(sys.argv[1], "rb") as capture:
    data = capture.read()
view, flows, at = memoryview(data), defaultdict(list), 24
while at < len(data):
    tcp = at + 50  # behind the headers of the packet, Ethernet and IP
    begin = tcp + (data[tcp + 12] >> 4) * 4
    source = data[at + 42 : tcp + 4]
    at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    if begin < at and int.from_bytes(source[10:], "big") == 9092:
        flows[source].append(view[begin:at])
header = struct.Struct(">Ihhih").unpack_from
builders = {api: (ColumnsBuilder(api), flexible) for api, flexible in ((4, 4), (5, 2), (6, 6))}
for pieces in flows.values():
    flow, at = memoryview(b"".join(pieces)), 0
    while at < len(flow):
        length, api, version, _, client = header(flow, at)
        builder, flexible = builders[api]
        builder.append(version, flow[at + 14 + client + (version >= flexible) : at + 4 + length])
        at += 4 + length
print(sum(len(builder.finish()) for builder, _ in builders.values()))
"""
"""Decodes the requests to port 9092 of such a capture to columns and prints the number of partition states."""


DISSECTED = ("topic_name", "partition_index", "leader", "leader_epoch", "zk_version", "partition_indexes")


LEAST = """
local proto = Proto("kproto", "As many items as kproto's dissector adds")
local names = { "topic_name", "partition_index", "leader", "leader_epoch", "zk_version", "partition_indexes" }
local fields = {}
for i, name in ipairs(names) do fields[i] = ProtoField.int32("kproto." .. name, name) end
proto.fields = fields
function proto.dissector(tvb, pinfo, root)
  local size = tvb:captured_len()
  local tree = root:add(proto, tvb:range(0, size))
  local add, range, field = tree.add, tvb.range, fields[3]
  for i = 1, math.floor(size * ITEMS) do add(tree, field, range(tvb, i % (size - 3), 4)) end
end
DissectorTable.get("tcp.port"):add(9092, proto)
"""
"""A dissector that adds ITEMS items for each byte of a segment's payload."""


def least(capture: str, dissector: Path, packets: int = 300) -> tuple[str, str]:
    """Return two sources of ``LEAST``: of as many items for each byte as kproto's dissector adds, of leader epochs."""
    first = ["tshark", "-n", "-X", f"lua_script:{dissector}", "-r", capture, "-c", str(packets)]
    details = subprocess.run([*first, "-T", "pdml"], capture_output=True, text=True, check=True).stdout
    lengths = [*first, "-T", "fields", "-e", "tcp.len"]
    told = subprocess.run(lengths, capture_output=True, text=True, check=True).stdout
    payload = sum(map(int, told.split()))
    every = details.count('<field name="kproto.') + details.count('<field name="_ws.lua.text"')
    epochs = details.count('<field name="kproto.leader_epoch"')
    return LEAST.replace("ITEMS", f"{every / payload:.5f}"), LEAST.replace("ITEMS", f"{epochs / payload:.5f}")


def tshark(capture: str, dissector: Path | None = None) -> list[str]:
    """Return the command that prints the fields of the requests' partitions, by tshark's dissector or kproto's."""
    names = [f"kafka.{name}" for name in FIELDS] if dissector is None else [f"kproto.{name}" for name in DISSECTED]
    fields = [part for name in names for part in ("-e", name)]
    script = [] if dissector is None else ["-X", f"lua_script:{dissector}"]
    requests = f"tcp.dstport == 9092 && {'kafka' if dissector is None else 'kproto'}"
    return ["tshark", "-n", *script, "-r", capture, "-Y", requests, "-T", "fields", *fields]


def filtered(capture: str, dissector: Path | None = None) -> list[str]:
    """Return the command that lists the packets with a leader epoch that no partition has."""
    script = [] if dissector is None else ["-X", f"lua_script:{dissector}"]
    field = "kafka" if dissector is None else "kproto"
    return ["tshark", "-n", *script, "-r", capture, "-Y", f"{field}.leader_epoch == 999999"]


def write_text(capture: str, path: str) -> int:
    """Write what tshark prints of a capture; gives the number of partition states."""
    count = 0
    begun = None  # the rows of the last body, which may go on in the next batch
    with Path(path).open("w", encoding="utf-8") as out:
        for kind, rows in decode(scan([capture], every_payload=True)):
            if kind != "state":
                continue
            count += rows.num_rows
            if begun is not None:
                rows = pa.concat_batches([begun, rows])
            last = int(_changes(rows.column("body_id"))[-1])
            begun = rows.slice(last)
            if last:
                out.write(_lines(rows.slice(0, last)))
        if begun is not None:
            out.write(_lines(begun))
    return count


def _lines(rows: pa.RecordBatch) -> str:
    """A line for each request body, with the values of its partitions in FIELDS, by commas."""
    first = _changes(rows.column("body_id"))
    ends = np.append(first, rows.num_rows)
    topics = np.union1d(first, _changes(rows.column("topic")))
    stops = pc.equal(rows.column("api_key"), ApiKey.STOP_REPLICA)
    cells = [
        _joined(rows.column("topic").take(pa.array(topics)), np.searchsorted(topics, ends)),
        _joined(rows.column("partition"), ends),
        _joined(rows.column("leader"), ends),
        _joined(pc.if_else(stops, None, rows.column("leader_epoch")), ends),
        _joined(rows.column("partition_epoch"), ends),
    ]
    return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*cells, "\t").to_pylist())


def _changes(column: pa.Array) -> Any:
    """Return the rows whose value is not that of the row before."""
    changed = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.flatnonzero(np.concatenate(([True], changed)))


def _joined(values: pa.Array, ends: Any) -> pa.Array:
    """Return the texts of the values that are not null, those of each slice by commas."""
    if values.null_count:
        ends = np.concatenate(([0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))))[ends]
        values = values.drop_null()
    found = values.dictionary_encode()
    texts = found.dictionary.cast(pa.string()).take(found.indices)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts), ",")


def partitions(output: str, *columns: int) -> int:
    """Return how many partitions tshark printed in some of its columns."""
    lines = [line.split("\t") for line in output.splitlines()]
    return sum(len(line[at].split(",")) for line in lines for at in columns if line[at])


def pair(capture: str, dissector: Path, least_of_fields: Path, least_of_filter: Path) -> dict[str, float]:
    """One run of each; MB and million partitions a CPU second."""
    megabytes = Path(capture).stat().st_size / 1e6
    ours = cost_of([sys.executable, "-c", COLUMNS, capture])
    written = Path(capture).with_suffix(".txt")
    text = cost_of([sys.executable, __file__, "--text", capture, str(written)])
    bare = cost_of([sys.executable, "-c", BARE, capture])
    theirs = cost_of(tshark(capture))
    dissected = cost_of(tshark(capture, dissector))
    least_of_all = cost_of(tshark(capture, least_of_fields))
    filters = [cost_of(filtered(capture, script)) for script in (dissector, least_of_filter, None)]
    filter_by_kproto, filter_by_least, filter_by_tshark = filters
    rows = int(ours.output)
    found = partitions(theirs.output, FIELDS.index("partition_id"))
    by_dissector = partitions(
        dissected.output, DISSECTED.index("partition_index"), DISSECTED.index("partition_indexes")
    )
    if not found == by_dissector == rows == int(bare.output):
        others = f"tshark {found}, with kproto's dissector {by_dissector}, the bare loop {bare.output}"
        raise ValueError(f"kproto found {rows} partitions, {others}")
    for column, name in enumerate(FIELDS):
        counts = [partitions(said, column) for said in (written.read_text(encoding="utf-8"), theirs.output)]
        if counts[0] != counts[1]:
            raise ValueError(f"{name}: kproto wrote {counts[0]} values, tshark {counts[1]}")
    return {
        "kproto rate": megabytes / ours.cpu_s,
        "bare rate": megabytes / bare.cpu_s,
        "text rate": megabytes / text.cpu_s,
        "tshark rate": megabytes / theirs.cpu_s,
        "dissector rate": megabytes / dissected.cpu_s,
        "least rate": megabytes / least_of_all.cpu_s,
        "filter by kproto": megabytes / filter_by_kproto.cpu_s,
        "filter by least": megabytes / filter_by_least.cpu_s,
        "filter by tshark": megabytes / filter_by_tshark.cpu_s,
        "kproto rows": rows / ours.cpu_s / 1e6,
        "tshark rows": rows / theirs.cpu_s / 1e6,
    }


def release() -> str:
    """Return tshark's version."""
    said = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"TShark.*?(\d+\.\d+\.\d+)", said)
    return found[1] if found else "unknown"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--size", type=int, default=100, metavar="MB", help="of the capture")
    arguments.add_argument("--quick", action="store_true", help="a small capture, one pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--text", nargs=2, metavar=("CAPTURE", "FILE"), help=argparse.SUPPRESS)
    options = options_of(arguments)
    if options.text:
        print(write_text(*options.text))
        return 0
    at_start = machine()
    version = release()
    size = 5 if options.quick else options.size
    rounds: list[dict[str, float]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        generate = [sys.executable, "-m", "kproto", "generate", "--out", f"{directory}/capture", "--size", f"{size}M"]
        more = ["--protocol", "2.4", "--bodies", "distinct", "--zombies", "0", "--batch", "200"]
        subprocess.run([*generate, *more], check=True, capture_output=True)
        script = Path(directory, "kproto.lua")
        script.write_text(dissector(), encoding="utf-8")
        scripts = [script, Path(directory, "fields.lua"), Path(directory, "filter.lua")]
        for path, source in zip(scripts[1:], least(f"{directory}/capture/control.pcap", script), strict=True):
            path.write_text(source, encoding="utf-8")
        for _ in range(1 if options.quick else options.pairs):
            try:
                rounds.append(pair(f"{directory}/capture/control.pcap", *scripts))
            except (subprocess.SubprocessError, ValueError) as e:
                failures.append(str(e))
    settings = {"pairs": len(rounds), "size_mb": size, "tshark": version}
    return finish("tshark", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
