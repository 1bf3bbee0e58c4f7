"""Batches and files of the metadata log: damage is named and loses nothing else; snapshots and logs agree."""

import bz2
import gzip
import lzma
import tracemalloc
from functools import cache
from pathlib import Path
from struct import pack, pack_into
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kraft_runs import NODES, RUNS, metadata
from metadata_batches import batch_of

from kproto.errors import DecodeError
from kproto.metadata_log.batches import UNPACKED_MOST, Fault, RecordBatch, batches_in, encode_batch
from kproto.metadata_log.files import LogFault, MetadataLog, read
from kproto.metadata_log.finding import find
from kproto.metadata_log.folding import FoldedLog, fold
from kproto.metadata_log.growing import GrowingLog
from kproto.metadata_log.image import FoldedPartition, Image
from kproto.metadata_log.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    UnknownRecord,
    encode_record,
)

TOPIC = bytes(15) + b"\x01"


def log_of(*paths: Path) -> MetadataLog:
    return read(find(paths)[0])


def written(directory: Path, *batches: bytes, begin: int = 0) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / f"{begin:020}.log").write_bytes(b"".join(batches))
    return directory


def several(count: int, base: int = 0, epoch: int = 1) -> list[bytes]:
    return [batch_of(NoOpRecord(), NoOpRecord(), base_offset=base + 2 * at, epoch=epoch) for at in range(count)]


# ---- batches ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 400))
def test_a_cut_log_gives_all_batches_that_are_whole(cut: int) -> None:
    parts = several(5)
    data = b"".join(parts)[:cut]
    whole = len(data) // len(parts[0])
    found = list(batches_in(data))
    assert [each.base_offset for each in found if isinstance(each, RecordBatch)] == [0, 2, 4, 6, 8][:whole]
    faults = [each for each in found if isinstance(each, Fault)]
    if data[whole * len(parts[0]) :].strip(b"\x00"):  # zeros alone may be space that was reserved
        assert [(fault.at, fault.is_end) for fault in faults] == [(whole * len(parts[0]), True)]
        assert not [each for each in batches_in(data, partial_end=True) if isinstance(each, Fault)]
    else:
        assert not faults


@given(st.integers(0, 4), st.data())
def test_damage_loses_its_own_batch_alone(broken: int, data: st.DataObject) -> None:
    parts = several(5)
    at = data.draw(st.integers(8, len(parts[0]) - 1))  # the CRC does not cover the first offset
    bit = 1 << data.draw(st.integers(0, 7))
    parts[broken] = parts[broken][:at] + bytes([parts[broken][at] ^ bit]) + parts[broken][at + 1 :]
    found = list(batches_in(b"".join(parts)))
    kept = [each.base_offset for each in found if isinstance(each, RecordBatch)]
    expected = [0, 2, 4, 6, 8]
    if 12 <= at < 16:
        assert kept == expected  # the epoch is not covered by the CRC either
    else:
        del expected[broken]
        assert kept == expected
        (fault,) = (each for each in found if isinstance(each, Fault))
        assert fault.at == broken * len(parts[0])
        assert fault.size == len(parts[0])


@given(st.binary(max_size=300))
def test_any_bytes_are_batches_and_faults(data: bytes) -> None:
    for found in batches_in(data):
        if isinstance(found, RecordBatch):
            list(found.records())
        else:
            assert found.size > 0


def test_bytes_that_look_like_batches_cost_no_more_than_their_number() -> None:
    begin = pack(">qiib", 0, 200_000, 0, 2)  # a plausible batch at every 17th byte, each to be summed to the end
    data = begin * 20_000
    assert [type(found) for found in batches_in(data)] == [Fault]


def test_space_that_was_reserved_is_no_damage() -> None:
    data = b"".join(several(2)) + bytes(5000)
    assert [type(found) for found in batches_in(data)] == [RecordBatch, RecordBatch]


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2", "zst"])
def test_packed_files_are_read_as_what_was_packed(ending: str, tmp_path: Path) -> None:
    """People pack what they send: one file, or each of a directory; a copy of one that is there too counts once."""
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}
    source = metadata(RUNS[0], 1000)
    found, place = find([source])[0], tmp_path / "__cluster_metadata-0"
    place.mkdir()
    for path in map(Path, found.paths()):
        (place / f"{path.name}.{ending}").write_bytes(pack[ending](path.read_bytes()))
    whole = read(found)
    for paths in ([place], sorted(place.iterdir()), [place, source]):
        packed = read(find(paths)[0])
        assert [batch.data for batch in packed.batches] == [batch.data for batch in whole.batches]
        assert [snapshot.name for snapshot in packed.snapshots] == [snapshot.name for snapshot in whole.snapshots] != []
        assert packed.faults == whole.faults == []
    growing = GrowingLog([str(place)])
    assert growing.read()
    assert not growing.read()
    copy = place.with_name("copy.log.gz")
    copy.write_bytes(gzip.compress(whole.batches[0].data * 2)[:-9])
    assert find([copy])[0].segments == [str(copy)]
    assert "cut off" in read(find([copy])[0]).faults[0].reason


def test_a_packed_file_is_unpacked_within_bounds(tmp_path: Path) -> None:
    batch = batch_of(NoOpRecord())
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(batch + bytes(200 << 20)))
    log = read(find([path])[0])
    assert [found.data for found in log.batches] == [batch]
    assert "the rest is left out" in log.faults[-1].reason


def test_space_that_was_never_written_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "log", *several(3)) / f"{0:020}.log"
    with path.open("ab") as file:
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        log = log_of(path.parent)
        _now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ([batch.base_offset for batch in log.batches], log.faults) == ([0, 2, 4], [])
    assert log.file_ends[str(path)].at == len(b"".join(several(3)))
    assert most < 128 << 20


def test_compressed_batches_are_unpacked_within_bounds() -> None:
    plain = batch_of(NoOpRecord(), UnknownRecord(77, 0, b"x"))

    def packed(records: bytes, method: int) -> bytes:
        made = bytearray(plain[:61] + records)
        pack_into(">i", made, 8, len(made) - 12)
        pack_into(">h", made, 21, method)
        pack_into(">I", made, 17, crc32c(bytes(made[21:])))
        return bytes(made)

    def titles(data: bytes) -> list[str]:
        (batch,) = batches_in(data)
        assert isinstance(batch, RecordBatch)
        return [each.record.title() if each.record else each.error for each in batch.records()]

    assert titles(packed(gzip.compress(plain[61:]), 1)) == ["NO_OP_RECORD", "UNKNOWN_77"]
    (too_much,) = titles(packed(gzip.compress(bytes(UNPACKED_MOST + 1)), 1))
    assert "unpacks to more than" in too_much
    assert "compressed with method 5" in titles(packed(b"", 5))[0]
    snappy, lz4 = pa.Codec("snappy"), pa.Codec("lz4")
    bare = snappy.compress(plain[61:], asbytes=True)
    begin = b"\x82SNAPPY\0" + pack(">ii", 1, 1)
    halves = [snappy.compress(half, asbytes=True) for half in (plain[61:70], plain[70:])]
    framed = b"".join(pack(">i", len(half)) + half for half in halves)
    for form in (bare, begin + framed, begin + framed[:4] + halves[0] + begin + framed[4 + len(halves[0]) :]):
        assert titles(packed(form, 2)) == ["NO_OP_RECORD", "UNKNOWN_77"]
    assert titles(packed(lz4.compress(plain[61:], asbytes=True), 3)) == ["NO_OP_RECORD", "UNKNOWN_77"]
    bomb = bytes(UNPACKED_MOST + 1)
    assert "unpacks to more than" in titles(packed(snappy.compress(bomb, asbytes=True), 2))[0]
    assert "unpacks to more than" in titles(packed(lz4.compress(bomb, asbytes=True), 3))[0]
    blocks = 2 * (pack(">i", len(half := snappy.compress(bomb[: UNPACKED_MOST // 2 + 1], asbytes=True))) + half)
    assert "unpacks to more than" in titles(packed(begin + blocks, 2))[0]
    for cut in (bare[:-1], bare[:1] * 6, begin + framed[:-1], begin + framed[:2], b"\xff" * 9):
        assert "snappy batch" in titles(packed(cut, 2))[0]
    assert "lz4 batch" in titles(packed(lz4.compress(plain[61:], asbytes=True)[:-1], 3))[0]
    zstandard = pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    assert titles(packed(zstandard.compress(plain[61:]), 4)) == ["NO_OP_RECORD", "UNKNOWN_77"]
    assert "unpacks to more than" in titles(packed(zstandard.compress(bytes(UNPACKED_MOST + 1)), 4))[0]


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    data = encode_batch([(None, b"\x01\x02\x00\xff"), (None, b"\x01\x14\x00\x00")])
    (batch,) = batches_in(data)
    assert isinstance(batch, RecordBatch)
    broken, fine = batch.records()
    assert broken.record is None
    assert "name" in broken.error
    assert isinstance(fine.record, NoOpRecord)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_files_of_other_logs_are_left_alone(tmp_path: Path) -> None:
    mine = written(tmp_path / "__cluster_metadata-0", *several(2))
    other = written(tmp_path / "orders-0", encode_batch([(b"key", b"user data")]))
    (mine / "quorum-state").write_text('{"leaderId":1,"leaderEpoch":3,"votedId":-1,"currentVoters":[{"voterId":1}]}')
    (tmp_path / "kafka-request.log").write_text("[2026-11-26 10:00:00] no batch")
    files, others = find([tmp_path, other, tmp_path / "kafka-request.log"])
    assert [Path(path).parent.name for path in files.segments] == ["__cluster_metadata-0"]
    assert others[-2:] == [str(other), str(tmp_path / "kafka-request.log")]
    assert [(state.leader_id, state.leader_epoch, state.voters) for state in read(files).states] == [(1, 3, (1,))]


@pytest.mark.parametrize("control", [True, False])
def test_other_logs_are_known_by_their_first_batch_and_copies_of_volumes_lie_deep(
    tmp_path: Path, *, control: bool
) -> None:
    end_of_transaction, other = (b"\0\0\0\1", bytes(6)), (None, b"\x01\x63\0user data")
    written(tmp_path / "orders-0", encode_batch([end_of_transaction if control else other], control=control))
    volume = tmp_path / "my-cluster-controller-3" / "var" / "lib" / "kafka" / "data-0" / "kafka-log3"
    volume.mkdir(parents=True)
    mine = written(volume / "__cluster_metadata-0", *several(1))
    assert [Path(path).parent for path in find([tmp_path])[0].segments] == [mine]


def test_gaps_and_cut_ends_are_named(tmp_path: Path) -> None:
    place = written(tmp_path / "a", *several(2))
    written(place, *several(2, base=10), batch_of(NoOpRecord(), base_offset=14)[:-1], begin=10)
    log = log_of(place)
    assert log.gaps == [(4, 9)]
    assert [batch.base_offset for batch in log.batches] == [0, 2, 10, 12]
    assert [fault.reason.partition(";")[0] for fault in log.faults] == [
        f"a batch of {len(batch_of(NoOpRecord()))} bytes of which {len(batch_of(NoOpRecord())) - 1} are there",
        "no file holds the offsets 4 to 9",
    ]
    assert isinstance(log.faults[0], LogFault)


def test_the_log_of_a_leader_that_lost_gives_way_to_the_higher_epoch(tmp_path: Path) -> None:
    winner = written(tmp_path / "w", *several(2), *several(2, base=4, epoch=2))
    loser = written(tmp_path / "l", *several(4))
    for paths in ((winner, loser), (loser, winner)):
        log = log_of(*paths)
        assert [(batch.epoch, batch.base_offset) for batch in log.batches] == [(1, 0), (1, 2), (2, 4), (2, 6)]
        assert [batch.base_offset for batch, _path in log.truncated] == [4, 6]
        assert "2 batches from offset 4 of epoch 1 on were replaced" in log.faults[0].reason


def test_a_node_that_lost_an_epoch_of_its_own_does_not_cut_the_winners_log(tmp_path: Path) -> None:
    winner = written(tmp_path / "w", *several(4), *several(2, base=8, epoch=3))
    loser = written(tmp_path / "l", *several(2), *several(1, base=4, epoch=2))
    for paths in ((winner, loser), (loser, winner)):
        log = log_of(*paths)
        assert [(batch.epoch, batch.base_offset) for batch in log.batches] == [
            (1, 0), (1, 2), (1, 4), (1, 6), (3, 8), (3, 10),
        ]  # fmt: skip
        assert [(batch.epoch, batch.base_offset) for batch, _path in log.truncated] == [(2, 4)]


def test_logs_of_two_clusters_are_suspected(tmp_path: Path) -> None:
    one = written(tmp_path / "1", batch_of(TopicRecord(name="a", topic_id=TOPIC)))
    two = written(tmp_path / "2", batch_of(TopicRecord(name="b", topic_id=TOPIC)))
    assert "are these logs of one cluster?" in log_of(one, two).faults[0].reason


@pytest.mark.parametrize(("run", "node"), [(run, node) for run in RUNS for node in NODES[run]])
def test_a_snapshot_is_the_image_of_the_log_before_it(run: str, node: int) -> None:
    log = log_of(metadata(run, node))
    assert log.snapshots
    for snapshot in log.snapshots:
        before = MetadataLog(batches=[b for b in log.batches if b.last_offset < snapshot.end_offset])
        assert shown(before) == shown(MetadataLog(snapshots=[snapshot]))


def shown(log: MetadataLog) -> object:
    made = fold(log)
    return made.image.topics, {span.broker_id: (span.state, span.broker_epoch) for span in made.brokers}


@pytest.mark.parametrize(("run", "node"), [(run, node) for run in RUNS for node in NODES[run]])
def test_a_log_without_its_beginning_goes_on_from_a_snapshot(run: str, node: int, tmp_path: Path) -> None:
    whole = log_of(metadata(run, node))
    snapshot = whole.snapshots[-1]
    first = next(at for at, batch in enumerate(whole.batches) if batch.last_offset >= snapshot.end_offset)
    rest = whole.batches[first:]
    place = written(tmp_path / "n", *(batch.data for batch in rest), begin=rest[0].base_offset)
    (place / Path(snapshot.path).name).write_bytes(b"".join(batch.data for batch in snapshot.batches))
    log = log_of(place)
    assert not log.faults
    assert shown(log) == shown(whole)
    (place / Path(snapshot.path).name).unlink()
    assert "no snapshot tells what was before" in log_of(place).faults[0].reason


def test_a_snapshot_that_is_cut_is_left_out(tmp_path: Path) -> None:
    whole = log_of(metadata("kraft-4.1-a", 1002))
    snapshot = whole.snapshots[0]
    place = written(tmp_path / "n", *(batch.data for batch in whole.batches))
    data = b"".join(batch.data for batch in snapshot.batches[:-1])
    (place / Path(snapshot.path).name).write_bytes(data)
    log = log_of(place)
    assert not log.snapshots
    assert [fault.reason for fault in log.faults] == ["the snapshot is not whole; it is left out"]


# ---- the fold --------------------------------------------------------------------------------------------------------


def folded(*records: object) -> Image:
    image = Image()
    for record in records:
        list(image.apply(record))  # type: ignore[arg-type]
    return image


def partition(**values: object) -> PartitionRecord:
    plain = {"partition_id": 0, "topic_id": TOPIC, "replicas": (1, 2), "isr": (1, 2), "leader": 1}
    return PartitionRecord(**(plain | {"leader_epoch": 0, "partition_epoch": 0} | values))


NO_OP = None, encode_record(NoOpRecord())


def says(batches: list[Any]) -> list[object]:
    """All that a log says at its end, and the states on the way."""
    held: list[int] = []
    made = fold(MetadataLog(batches=batches), took_effect=lambda _batch, each: held.append(each.offset))
    live = [batch.live for batch in made.batches if batch.live is not None]
    states = [batch.states for batch in made.batches]
    idle = {batch.begin_offset for batch in made.batches if batch.is_idle}
    return [
        made.image.topics, states, made.brokers, made.epochs, made.members.spans(), live[-1:], {*held} - idle,
    ]  # fmt: skip


@settings(max_examples=5)
@given(run=st.sampled_from(RUNS), cuts=st.lists(st.integers(0, 400), min_size=4, max_size=4, unique=True))
def test_the_records_of_a_transaction_count_at_its_end_and_those_of_an_aborted_one_never(
    run: str, cuts: list[int]
) -> None:
    real = [(entry, batch) for batch in log_of(metadata(run, NODES[run][0])).batches for entry in batch.entries()]
    ours = [at for at, (_entry, of) in enumerate(real) if not of.is_control]
    begin, end, begin_aborted, abort = (ours[cut] for cut in sorted(cuts))
    marks = {
        begin: BeginTransactionRecord(), end: EndTransactionRecord(),
        begin_aborted: BeginTransactionRecord(), abort: AbortTransactionRecord(),
    }  # fmt: skip
    marked, plain = [], []
    for at, (entry, of) in enumerate(real):
        one = other = entry.key, entry.value
        if at in marks:
            one, other = (None, encode_record(marks[at])), NO_OP
        elif not of.is_control and (entry.value or b"")[1] in (23, 24, 25):  # the log's own transactions
            one = other = NO_OP
        elif not of.is_control and begin_aborted < at < abort:
            other = NO_OP
        for made, value in (marked, one), (plain, other):
            made += batches_in(
                encode_batch([value], base_offset=at, epoch=of.epoch, time_ms=entry.time_ms, control=of.is_control)
            )
    assert says(marked) == says(plain)
    assert says(marked[begin_aborted + 1 :]) == says(plain[begin_aborted + 1 :])  # it began before the log
    gap = slice(begin_aborted, begin_aborted + 1)
    del marked[gap], plain[gap]
    assert says(marked) == says(plain)


@cache
def whole_log(run: str) -> tuple[MetadataLog, FoldedLog]:
    log = log_of(metadata(run))
    return log, fold(log)


def agrees(part: FoldedPartition | None, whole: FoldedPartition | None) -> bool:
    if part is None or whole is None:
        return part is whole
    return all(one in (None, other) for one, other in zip(part, whole, strict=True))


@example("kraft-4.1-b", [0.036, 0.3, 0.3, 1.0], (0, 1, 1, 3), [])  # a process that registers again
@example("kraft-4.1-a", [0.391, 0.455, 0.729, 1.0], (0, 1, 2, 3), [True] * 11)  # a snapshot inside the gap
@example("kraft-3.9-m", [0.0, 0.062, 0.13, 1.0], (0, 1, 2, 3), [])  # the gap has the end of a transaction
@given(
    st.sampled_from(sorted(NODES)),
    st.lists(st.floats(0, 1), min_size=4, max_size=4).map(sorted),
    st.sampled_from([(0, 1, 2, 3), (0, 1, 1, 3), (0, 1, 2, None), (None, 1, 2, None)]),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_a_window_of_a_log_says_nothing_else(
    run: str, shares: list[float], cuts: tuple[int | None, ...], takes: list[bool]
) -> None:
    """A log that begins later, ends earlier, or has a gap, with some of the snapshots of that time."""
    whole, every = whole_log(run)
    begin, gap, behind, end = (None if cut is None else round(shares[cut] * len(whole.batches)) for cut in cuts)
    kept = whole.batches[begin:gap] + whole.batches[behind:end]
    last = kept[-1].end_offset if kept else 0
    snapshots = [one for one, taken in zip(whole.snapshots, takes, strict=False) if taken and one.end_offset <= last]
    made = fold(MetadataLog(batches=kept, snapshots=snapshots))
    states = {(one.offset, one.topic_id, one.partition): one for batch in every.batches for one in batch.states}
    for one in (one for batch in made.batches for one in batch.states if one.offset >= 0):
        other = states[one.offset, one.topic_id, one.partition]
        assert one.topic in (None, other.topic)
        assert agrees(one.state, other.state)
        assert agrees(one.former, other.former)
        assert other.is_unclean or not one.is_unclean
    spans = {one.offset: one for one in every.brokers}
    for span in (one for one in made.brokers if one.offset in spans):  # others say what was so already
        of = spans[span.offset]
        assert (span.broker_id, span.state) == (of.broker_id, of.state)
        assert of.is_restart or not span.is_restart
        assert span.until_ms is None or of.until_ms is None or span.until_ms <= of.until_ms
    epochs = {one.epoch: one for one in every.epochs}
    for epoch in made.epochs:
        assert (epoch.leader_id, epoch.from_ms) == (epochs[epoch.epoch].leader_id, epochs[epoch.epoch].from_ms)


def test_epochs_count_up_as_kafka_counts_them() -> None:
    image = folded(
        partition(),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,), leader=2),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2, 1)),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2),
    )
    state = image.topics[TOPIC].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (2, 2, 3, (2, 1))


def test_what_was_before_the_log_stays_unknown() -> None:
    state = folded(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2)).topics[TOPIC].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (2, None, None, None)


def test_unreadable_batches_never_pass_for_records() -> None:
    with pytest.raises(DecodeError):
        list(RecordBatch(0, 0, 1, 0, False, 3, batch_of(NoOpRecord())[:57] + pack(">i", 30) + b"\x02").entries())
