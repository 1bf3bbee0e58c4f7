"""A metadata log that grows is, at each moment, what the files say as a whole."""

import shutil
from pathlib import Path

import pytest
from kraft_runs import metadata
from metadata_batches import batch_of

from kproto.metadata_log.batches import RecordBatch, batches_in
from kproto.metadata_log.files import read
from kproto.metadata_log.finding import find
from kproto.metadata_log.folding import fold
from kproto.metadata_log.growing import GrowingLog
from kproto.metadata_log.records import BeginTransactionRecord, EndTransactionRecord, PartitionRecord, TopicRecord

SEGMENT = f"{0:020}.log"


def topic(number: int, epoch: int = 1) -> bytes:
    return batch_of(
        TopicRecord(name=f"t{number}-{epoch}", topic_id=bytes([epoch] * 15 + [number])), base_offset=number, epoch=epoch
    )


def append(path: Path, *data: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(data))


def names(log: GrowingLog) -> list[str]:
    return sorted(filter(None, (topic.name for topic in log.folded.image.topics.values())))


def test_a_log_that_grows_by_pieces_is_that_of_its_files(tmp_path: Path) -> None:
    source = metadata("kraft-4.1-a", 1002)
    data = (source / SEGMENT).read_bytes()
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / SEGMENT
    path.write_bytes(data[:700])
    log = GrowingLog([str(directory)])
    changes = epochs = brokers = 0
    for end in range(700, len(data) + 1500, 1500):  # nearly all of them cut a batch
        path.write_bytes(data[:end])
        log.read()
        whole = read(find([str(directory)])[0])
        assert log.folded.image.topics == fold(whole).image.topics
        assert log.next_offset == whole.batches[-1].last_offset + 1
        changes += sum(len(batch.states) for batch in log.folded.batches)
        epochs, brokers = epochs + len(log.folded.epochs), brokers + len(log.folded.brokers)
    folded = fold(read(find([str(directory)])[0]))
    assert (epochs, brokers) == (len(folded.epochs), len(folded.brokers))
    assert changes == sum(len(batch.states) for batch in folded.batches)
    assert log.epoch == 3
    assert not log.read()
    assert not log.folded.batches


def test_a_transaction_that_is_written_between_two_looks_is_told_at_its_end(tmp_path: Path) -> None:
    parts = BeginTransactionRecord(), PartitionRecord(topic_id=bytes([1] * 16)), EndTransactionRecord()
    (tmp_path / SEGMENT).write_bytes(topic(0))
    log = GrowingLog([str(tmp_path)])
    log.read()
    told = []
    for at, record in enumerate(parts, 1):
        append(tmp_path / SEGMENT, batch_of(record, base_offset=at))
        log.read()
        told.append([state.offset for batch in log.folded.batches for state in batch.states])
    assert told == [[], [], [2]]


def test_new_segments_are_followed_and_deleted_ones_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproto.metadata_log.growing._LIST_S", 0)
    first, second = tmp_path / SEGMENT, tmp_path / f"{2:020}.log"
    append(first, topic(0), topic(1))
    log = GrowingLog([str(tmp_path)])
    log.read()
    append(second, topic(2))
    assert log.read()
    first.unlink()
    append(second, topic(3))
    assert log.read()
    assert not log.is_whole
    assert names(log) == ["t0-1", "t1-1", "t2-1", "t3-1"]


def test_copies_of_several_nodes_are_one_log(tmp_path: Path) -> None:
    paths = [tmp_path / node / "__cluster_metadata-0" / SEGMENT for node in ("a", "b")]
    for path in paths:
        path.parent.mkdir(parents=True)
        append(path, topic(0))
    log = GrowingLog([str(tmp_path)])
    log.read()
    append(paths[1], topic(1), topic(2))
    assert log.read()
    append(paths[0], topic(1), topic(2), topic(3))
    assert log.read()
    assert (names(log), log.next_offset) == (["t0-1", "t1-1", "t2-1", "t3-1"], 4)


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_a_later_leader_replaced_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_seen: bool) -> None:
    """As a node cuts off its log whose leader lost, and then follows the other, between two looks or beyond them."""
    monkeypatch.setattr("kproto.metadata_log.growing._SHARE", float("inf"))
    path = tmp_path / SEGMENT
    append(path, topic(0), topic(1), topic(2))
    log = GrowingLog([str(tmp_path)])
    log.read()
    path.write_bytes(topic(0))
    if is_seen:
        log.read()
        log.read()
        assert (names(log), log.next_offset, log.is_whole) == (["t0-1"], 1, True)
    append(path, topic(1, epoch=2), topic(2, epoch=2), topic(3, epoch=2))
    log.read()
    log.read()
    assert (names(log), log.next_offset, log.epoch) == (["t0-1", "t1-2", "t2-2", "t3-2"], 4, 2)


def test_what_was_told_stays_while_the_files_are_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.metadata_log.growing._SHARE", float("inf"))
    path = tmp_path / "__cluster_metadata-0" / SEGMENT
    path.parent.mkdir()
    append(path, topic(0), topic(1))
    log = GrowingLog([str(tmp_path)])
    log.read()
    path.write_bytes(topic(0))
    log.read()  # all is to be read again
    path.parent.rename(tmp_path / "away")
    (tmp_path / "away" / SEGMENT).rename(tmp_path / "away" / "hidden")
    assert not log.read()
    assert names(log) == ["t0-1", "t1-1"]


def test_a_snapshot_that_comes_tells_what_the_log_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.metadata_log.growing._SHARE", float("inf"))
    monkeypatch.setattr("kproto.metadata_log.growing._LIST_S", 0)
    source = metadata("kraft-4.1-a", 1002)
    batches = [each for each in batches_in((source / SEGMENT).read_bytes()) if isinstance(each, RecordBatch)]
    snapshot = min(source.glob("*.checkpoint"))
    kept = [each for each in batches if each.base_offset >= int(snapshot.name[:20])]
    append(tmp_path / f"{kept[0].base_offset:020}.log", *(each.data for each in kept))
    log = GrowingLog([str(tmp_path)])
    log.read()
    assert log.fault_count
    shutil.copy(snapshot, tmp_path)
    log.read()
    assert log.read()
    assert not log.faults
    assert log.folded.image.topics == fold(read(find([str(source)])[0])).image.topics


def test_batches_after_a_gap_have_all_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.metadata_log.growing._SHARE", float("inf"))
    path = tmp_path / SEGMENT
    append(path, topic(0))
    log = GrowingLog([str(tmp_path)])
    log.read()
    append(path, topic(5))
    assert not log.read()
    assert log.read()
    assert log.is_whole
    assert (names(log), log.next_offset, log.fault_count) == (["t0-1", "t5-1"], 6, 1)
