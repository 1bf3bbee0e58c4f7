"""KRaft's quorum by its members: who votes, and who only follows the log, since when, and what tells it.

Voters are told as whole sets: by a leader's LeaderChange record, by a VotersRecord where they are in the log, by
``quorum-state``, by an answer to DescribeQuorum. Who takes part besides, because it is registered or fetches, is an
observer. All is put in the order of the log: clocks of nodes and captures differ, offsets do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kproto.reference.describe_quorum import DescribeQuorumPartitionResult

VOTER: Final = "voter"
OBSERVER: Final = "observer"

_MS: Final = 1_000_000
_NO_DIRECTORY: Final = bytes(16)


@dataclass(slots=True)
class QuorumMember:
    """A time in which a node had the same part in the quorum.

    Attributes:
        node_id: The node.
        role: ``voter`` or ``observer``; None: nothing tells who votes.
        directory_id: The directory by which it votes; None: not told.
        from_ns, until_ns: When this was first told, and when the end was, ns since 1970; None: no time, it lasts.
        told_by: What told it first.
        offset: The offset of the record that did; None: it was none, or a snapshot.
        last_offset: The last offset that the node had when it was last heard of; None: not shown.
        fetched_ns: When that was, ns since 1970.
    """

    node_id: int
    role: str | None
    directory_id: bytes | None
    from_ns: int | None
    until_ns: int | None
    told_by: str
    offset: int | None
    last_offset: int | None = None
    fetched_ns: int | None = None


class ReplicaFetch(NamedTuple):
    """A fetch of the metadata log that was answered.

    Attributes:
        time_ns: When it was sent.
        offset: The first offset that the replica asked for: it had those below.
        position: The offset below which the log was committed then, or which the replica had.
    """

    time_ns: int
    offset: int
    position: int


class DescribedQuorum(NamedTuple):
    """What a leader answered to DescribeQuorum, and when."""

    time_ns: int
    partition: DescribeQuorumPartitionResult


class _Sign(NamedTuple):
    """What is told at a place of the log: of a set of voters, or of one node.

    Attributes:
        position: The offset before which all is known.
        time_ns: When.
        told_by, offset: See ``QuorumMember``.
        voters: The directories of the voters, None where not told; None: it is about a node.
        node_id: The node; -1: it is about voters.
        is_end: Whether the node is told to be gone.
        last_offset, fetched_ns: See ``QuorumMember``; None: it tells nothing of this.
    """

    position: int
    time_ns: int | None
    told_by: str
    offset: int | None
    voters: Mapping[int, bytes | None] | None = None
    node_id: int = -1
    is_end: bool = False
    last_offset: int | None = None
    fetched_ns: int | None = None


@dataclass(slots=True)
class QuorumMembers:
    """Gathers what is told of a quorum's members."""

    _told: list[_Sign] = field(default_factory=list)

    def add_voters(
        self,
        position: int,
        time_ns: int | None,
        voters: Iterable[tuple[int, bytes]],
        told_by: str,
        offset: int | None = None,
    ) -> None:
        """Add a whole set of voters: node ids and directories, zeros where these are not told."""
        directories = {node: None if directory in (b"", _NO_DIRECTORY) else directory for node, directory in voters}
        self._told.append(_Sign(position, time_ns, told_by, offset, directories))

    def add_node(
        self,
        position: int,
        time_ns: int,
        node_id: int,
        told_by: str,
        offset: int | None = None,
        *,
        last_offset: int | None = None,
        fetched_ns: int | None = None,
    ) -> None:
        """Add that a node takes part, and which offset it had last, as was heard at ``fetched_ns``."""
        self._told.append(_Sign(position, time_ns, told_by, offset, None, node_id, False, last_offset, fetched_ns))

    def add_end(self, position: int, time_ns: int, node_id: int) -> None:
        """Add that a node is registered no more."""
        self._told.append(_Sign(position, time_ns, "", None, None, node_id, True))

    def add_traffic(
        self, fetches: Mapping[int, Iterable[ReplicaFetch]], described: Iterable[DescribedQuorum] = ()
    ) -> None:
        """Add what captures show, after all that the log tells.

        Args:
            fetches: Of each replica.
            described: Answers to DescribeQuorum.
        """
        for node_id, of_node in fetches.items():
            for fetch in of_node:
                at = fetch.time_ns
                self.add_node(fetch.position, at, node_id, "Fetch", last_offset=fetch.offset - 1, fetched_ns=at)
        for time_ns, part in described:
            ends = {replica.replica_id: replica.log_end_offset for replica in part.current_voters}
            position = ends.get(part.leader_id, part.high_watermark)
            voters = ((replica.replica_id, replica.replica_directory_id) for replica in part.current_voters)
            self.add_voters(position, time_ns, voters, "DescribeQuorum")
            for replica in (*part.current_voters, *part.observers):
                fetched_ms = replica.last_fetch_timestamp
                is_dated = fetched_ms >= 0 and replica.replica_id != part.leader_id  # the leader fetches from nobody
                self.add_node(
                    position, time_ns, replica.replica_id, "DescribeQuorum", last_offset=replica.log_end_offset - 1,
                    fetched_ns=fetched_ms * _MS if is_dated else None,
                )  # fmt: skip

    @property
    def has_voters(self) -> bool:
        """Whether a set of voters is told."""
        return any(told.voters is not None for told in self._told)

    def spans(self) -> list[QuorumMember]:
        """Return the members in turn, in the order in which they are told."""
        self._told.sort(key=attrgetter("position"))
        made: list[QuorumMember] = []
        current: dict[int, QuorumMember] = {}
        voters = next((told.voters for told in self._told if told.voters is not None), None)

        def begin(node_id: int, role: str | None, directory_id: bytes | None, told: _Sign) -> None:
            end(node_id, told)
            member = QuorumMember(node_id, role, directory_id, told.time_ns, None, told.told_by, told.offset)
            current[node_id] = member
            made.append(member)

        def end(node_id: int, told: _Sign) -> None:
            member = current.pop(node_id, None)
            if member is not None:
                member.until_ns = told.time_ns

        for told in self._told:
            if told.voters is not None:
                voters = told.voters
                for node_id in [node_id for node_id, member in current.items() if member.role == VOTER]:
                    if node_id not in voters:
                        end(node_id, told)
                for node_id, directory_id in voters.items():
                    member = current.get(node_id)
                    if member is None or member.role != VOTER:
                        begin(node_id, VOTER, directory_id, told)
                    elif member.directory_id is None:
                        member.directory_id = directory_id
                    elif directory_id not in (None, member.directory_id):
                        begin(node_id, VOTER, directory_id, told)
                continue
            member = current.get(told.node_id)
            if told.is_end:
                if member is not None and member.role != VOTER:
                    end(told.node_id, told)
                continue
            if member is None:
                if voters is not None and told.node_id in voters:
                    continue  # before the first set that is told, which has it
                begin(told.node_id, None if voters is None else OBSERVER, None, told)
                member = current[told.node_id]
            if told.last_offset is not None and told.last_offset >= 0:
                member.last_offset, member.fetched_ns = told.last_offset, told.fetched_ns
        return made
