"""Who votes in the quorum and who only follows it, and who led an epoch, by whatever tells it."""

from pathlib import Path
from typing import Any

import pytest
from kraft_runs import capture, metadata, truth
from metadata_batches import batch_of

from kproto.capture import capture_points
from kproto.metadata_log.batches import RecordBatch, batches_in, encode_batch
from kproto.metadata_log.deliveries import MetadataTraffic
from kproto.metadata_log.files import Divergence, MetadataLog, QuorumState, read
from kproto.metadata_log.finding import LogFiles, find
from kproto.metadata_log.folding import FoldedLog, fold
from kproto.metadata_log.members import DescribedQuorum, QuorumMembers, ReplicaFetch
from kproto.metadata_log.quorum import QuorumTraffic
from kproto.metadata_log.records import (
    KRaftVotersRecord,
    NoOpRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VoterEntry,
)
from kproto.reference.describe_quorum import DescribeQuorumPartitionResult, QuorumReplica
from kproto.reference.fetch import FetchPartition, LeaderIdAndEpoch, PartitionData
from kproto.tables.metadata_points import read_traffic

MS = 1_000_000
DYNAMIC = "kraft-4.1-c"
A, B = bytes(15) + b"a", bytes(15) + b"b"


def folded(run: str, node: int) -> FoldedLog:
    return fold(read(find([metadata(run, node)])[0]))


def spans(members: QuorumMembers) -> list[tuple[Any, ...]]:
    return [(one.node_id, one.role, one.from_ns, one.until_ns, one.told_by) for one in members.spans()]


def test_voters_come_and_go_as_kafkas_dump_says() -> None:
    wanted: list[tuple[int, int, int | None]] = []
    held: dict[int, int] = {}
    for row in truth(DYNAMIC):
        if row["type"] in ("LeaderChange", "KRaftVoters"):
            voters = {voter["voterId"] for voter in row["data"]["voters"]}
            wanted += [(node, held.pop(node), row["time_ms"]) for node in sorted(held.keys() - voters)]
            for node in voters:
                held.setdefault(node, row["time_ms"])
    wanted += [(node, begin, None) for node, begin in held.items()]
    found = [
        (one.node_id, (one.from_ns or 0) // MS, None if one.until_ns is None else one.until_ns // MS)
        for one in folded(DYNAMIC, 1000).members.spans()
        if one.role == "voter"
    ]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert len(found) == 4  # 1000 was removed, and voted again later


def test_a_node_that_was_formatted_and_never_ran_tells_its_voters(tmp_path: Path) -> None:
    header, voters, footer = (
        (bytes([0, 0, 0, each.record_type]), each.encode(0))
        for each in (
            SnapshotHeaderRecord(last_contained_log_timestamp=5),
            KRaftVotersRecord(voters=[VoterEntry(voter_id=1, voter_directory_id=A)]),
            SnapshotFooterRecord(),
        )
    )
    path = tmp_path / f"{0:020}-{0:010}.checkpoint"
    path.write_bytes(encode_batch([header, voters, footer], epoch=0, control=True))
    assert spans(fold(read(find([path])[0])).members) == [(1, "voter", 5 * MS, None, "snapshot")]


def test_brokers_and_controllers_that_do_not_vote_are_observers() -> None:
    found = [one for one in folded(DYNAMIC, 1000).members.spans() if one.role == "observer"]
    assert {one.node_id: one.told_by for one in found} == {
        **dict.fromkeys((0, 1, 2), "RegisterBroker"),
        **dict.fromkeys((1001, 1002), "RegisterController"),  # before they were added
    }
    assert {one.node_id for one in found if one.until_ns is None} == {0, 1, 2}


def test_a_snapshot_tells_the_voters_that_the_log_before_it_had() -> None:
    log = read(find([metadata(DYNAMIC, 0)])[0])
    snapshot = log.snapshots[0]
    rest = [batch for batch in log.batches if batch.base_offset >= snapshot.end_offset]
    members = fold(MetadataLog(batches=rest, snapshots=[snapshot])).members.spans()
    voters = [one for one in members if one.role == "voter" and one.told_by == "snapshot"]
    assert sorted(one.node_id for one in voters) == [1000, 1001, 1002]
    assert None not in {one.directory_id for one in voters}


def test_a_capture_shows_members_by_fetches_and_by_described_quorums() -> None:
    traffic = read_traffic(capture_points([capture(DYNAMIC)]))  # DescribeQuorum came in an Envelope
    made = fold(read(LogFiles(), traffic.shown()), named=traffic.quorum.named()).members
    made.add_traffic(traffic.quorum.fetches, traffic.quorum.described)
    members = made.spans()
    assert {(one.node_id, one.told_by) for one in members if one.role == "voter"} == {
        (1000, "DescribeQuorum"), (1001, "DescribeQuorum"), (1002, "DescribeQuorum"), (1000, "VotersRecord"),
    }  # fmt: skip
    observers = [one for one in members if one.role == "observer"]
    assert {(one.node_id, one.told_by) for one in observers} == {(node, "Fetch") for node in (0, 1, 2)}
    assert all(one.last_offset is not None and one.fetched_ns is not None for one in observers)


def test_a_voter_that_was_removed_observes_once_it_fetches_what_removed_it() -> None:
    members = QuorumMembers()
    members.add_voters(1, 10, [(1, A), (2, B)], "LeaderChange", 0)
    members.add_voters(6, 20, [(1, A)], "VotersRecord", 5)
    members.add_traffic({2: [ReplicaFetch(22, 4, 5), ReplicaFetch(21, 7, 8)]})
    assert spans(members) == [
        (1, "voter", 10, None, "LeaderChange"),
        (2, "voter", 10, 20, "LeaderChange"),
        (2, "observer", 21, None, "Fetch"),
    ]
    assert [one.last_offset for one in members.spans()] == [None, 3, 6]


def test_a_voter_with_another_directory_is_another_voter() -> None:
    members = QuorumMembers()
    members.add_voters(1, 10, [(1, bytes(16))], "LeaderChange", 0)
    members.add_voters(3, 20, [(1, A)], "VotersRecord", 2)
    members.add_voters(5, 30, [(1, B)], "VotersRecord", 4)
    assert [(one.directory_id, one.from_ns, one.until_ns) for one in members.spans()] == [(A, 10, 30), (B, 30, None)]


def test_an_answer_to_describe_quorum_is_put_where_the_leaders_log_ended() -> None:
    replicas = [QuorumReplica(replica_id=1, log_end_offset=8), QuorumReplica(replica_id=2, log_end_offset=3)]
    observer = QuorumReplica(replica_id=9, log_end_offset=7, last_fetch_timestamp=4)
    described = DescribeQuorumPartitionResult(
        leader_id=1, leader_epoch=1, high_watermark=2, current_voters=replicas, observers=[observer]
    )
    members = QuorumMembers()
    members.add_voters(1, 10, [(1, A)], "LeaderChange", 0)
    members.add_voters(6, 20, [(1, A), (2, B)], "VotersRecord", 5)
    members.add_traffic({}, [DescribedQuorum(5, described)])  # by a clock that is behind
    assert spans(members) == [
        (1, "voter", 10, None, "LeaderChange"),
        (2, "voter", 20, None, "VotersRecord"),
        (9, "observer", 5, None, "DescribeQuorum"),
    ]
    assert [(one.last_offset, one.fetched_ns) for one in members.spans()] == [(7, None), (2, None), (6, 4 * MS)]


def test_without_any_set_of_voters_no_role_is_said() -> None:
    members = QuorumMembers()
    members.add_traffic({7: [ReplicaFetch(1, 5, 5)]})
    assert spans(members) == [(7, None, 1, None, "Fetch")]
    state = QuorumState("q", 1, 3, -1, (1, 2))
    assert spans(fold(MetadataLog(states=[state])).members) == [
        (1, "voter", None, None, "quorum-state"),
        (2, "voter", None, None, "quorum-state"),
    ]


def test_a_broker_that_is_unregistered_observes_no_more() -> None:
    members = QuorumMembers()
    members.add_voters(1, 10, [(1, A)], "LeaderChange", 0)
    members.add_node(3, 20, 7, "RegisterBroker", 2)
    members.add_end(5, 30, 7)
    assert spans(members) == [(1, "voter", 10, None, "LeaderChange"), (7, "observer", 20, 30, "RegisterBroker")]


# ---- leaders that no LeaderChange names ------------------------------------------------------------------------------


def noops(*places: tuple[int, int]) -> MetadataLog:
    """A log of batches of (epoch, offset), none of which names a leader."""
    made = MetadataLog()
    for epoch, offset in places:
        made.batches += (
            one
            for one in batches_in(batch_of(NoOpRecord(), base_offset=offset, epoch=epoch))
            if isinstance(one, RecordBatch)
        )
    return made


def answered(epoch: int, leader: int) -> QuorumTraffic:
    traffic = QuorumTraffic()
    asked = FetchPartition(current_leader_epoch=epoch, fetch_offset=5, last_fetched_epoch=epoch)
    answer = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch), high_watermark=5)
    traffic.add_fetch(0, asked, answer, 1, 2, 0)
    return traffic


def controllers(log: MetadataLog, quorum: QuorumTraffic | None = None) -> list[tuple[int, int]]:
    return [(one.epoch, one.leader_id) for one in fold(log, named=None if quorum is None else quorum.named()).epochs]


def test_an_answered_fetch_names_the_controller() -> None:
    assert controllers(noops((7, 5)), answered(7, 1001)) == [(7, 1001)]
    assert controllers(noops(), answered(7, 1001)) == [(7, 1001)]
    found = fold(noops((6, 4), (7, 5)), named=answered(7, 1001).named())
    assert [batch.leader_id for batch in found.batches] == [None, 1001]  # nothing tells of the leader before
    assert fold(noops((7, 5)), named=answered(7, 1001).named()).epochs[0].from_ms is None


def test_a_real_capture_without_an_election_names_its_controller() -> None:
    traffic = read_traffic(capture_points([capture(DYNAMIC)]))
    found = fold(read(LogFiles(), traffic.shown()), named=traffic.quorum.named())
    assert [(epoch.epoch, epoch.leader_id, epoch.offset) for epoch in found.epochs] == [(3, 1001, None)]
    assert {batch.leader_id for batch in found.batches if batch.epoch == 3} == {1001}


def test_an_elected_node_that_wrote_no_record_has_not_led() -> None:
    quorum = answered(7, 1001)
    quorum.leaders |= {6: 1002, 8: 1000}  # votes and BeginQuorumEpoch name them
    assert controllers(noops((5, 1), (7, 5)), quorum) == [(7, 1001)]
    log = noops((5, 1), (7, 5))
    log.states = [
        QuorumState("a", 1002, 6, -1, ()),
        QuorumState("b", 1001, 7, -1, ()),
        QuorumState("c", 1000, 8, -1, ()),
    ]
    assert controllers(log) == [(7, 1001), (8, 1000)]  # a newer quorum-state than the log tells what comes


# ---- the log as the quorum has it ------------------------------------------------------------------------------------


def shown(*sent: tuple[int, int, int]) -> MetadataTraffic:
    """Batches of (epoch, offset), each with the epoch of the leader that sent it."""
    traffic = MetadataTraffic()
    for epoch, offset, leader_epoch in sent:
        (batch,) = noops((epoch, offset)).batches
        traffic.batches[epoch, offset] = batch, "capture"
        traffic.sent_in[epoch, offset] = leader_epoch
    return traffic


def kept(traffic: MetadataTraffic) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    log = read(LogFiles(), traffic.shown())
    return (
        [(batch.epoch, batch.base_offset) for batch in log.batches],
        [(batch.epoch, batch.base_offset) for batch, _path in log.truncated],
    )


def test_an_epoch_between_two_leaders_logs_does_not_replace_what_the_newest_has() -> None:
    """Epoch 2 began at 4 on a node that lost; the leader of epoch 3 had 4 and 5 of epoch 1."""
    traffic = shown((1, 3, 1), (2, 4, 2), (1, 4, 3), (1, 5, 3), (3, 6, 3))
    assert kept(traffic) == ([(1, 3), (1, 4), (1, 5), (3, 6)], [(2, 4)])


def test_a_losing_epoch_that_nothing_replaced_yet_is_cut_by_what_its_replica_was_told() -> None:
    traffic = shown((1, 3, 1), (2, 4, 2), (2, 5, 2))
    assert kept(traffic)[1] == []
    traffic.quorum.diverged.add(Divergence(leader_epoch=3, replica_epoch=2, epoch=1, end_offset=4))
    assert kept(traffic) == ([(1, 3)], [(2, 4), (2, 5)])


def test_a_divergence_says_nothing_of_what_a_later_leader_sent() -> None:
    traffic = shown((1, 3, 1), (2, 4, 4), (4, 5, 4))
    traffic.quorum.diverged.add(Divergence(leader_epoch=3, replica_epoch=2, epoch=1, end_offset=4))
    assert kept(traffic) == ([(1, 3), (2, 4), (4, 5)], [])


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_answer_that_diverges_is_noted(epoch: int) -> None:
    traffic = QuorumTraffic()
    asked = FetchPartition(current_leader_epoch=3, fetch_offset=6, last_fetched_epoch=2)
    answer = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3))
    answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = epoch, 4
    traffic.add_fetch(0, asked, answer, 1, 2, 0)
    assert traffic.diverged == {Divergence(3, 2, epoch, 4)}
