"""The summary of a read capture: counts, damage, and one line that explains why nothing was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kproto.api import CONTROL_APIS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.logs.state_lines import LoggedEvent

    from .model import Connection, Direction, Endpoint

_BAD_CHECKSUM: Final = "a packet that does not match the checksum recorded with it"

_KEPT: Final = 1000
"""The most bad inputs, servers, senders, losses and events that are kept, so that hostile input cannot fill the memory;
further ones are only counted, or left out."""

LOSSES: Final = (
    "partial_starts",
    "gaps",
    "gap_bytes",
    "cut_packets",
    "ip_fragments",
    "bad_checksums",
    "dropped_packets",
    "unmatched_responses",
)
"""The counts of a summary by which a capture lacks bytes."""

LossKind: TypeAlias = Literal["partial start", "gap", "unreadable", "given up"]
"""Why the frames of a connection are not certain: the capture begins within one; bytes are missing; bytes are no frame;
too much was waiting."""

_APIS: Final = frozenset(map(int, ApiKey))

_KRAFT_APIS: Final = {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.UPDATE_RAFT_VOTER,
}
"""API keys that only a KRaft quorum uses."""

_USABLE: Final = "tcpdump -i any -s 0 -w control.pcap 'tcp port 9092'"


def not_read_text(packets: Mapping[str, int]) -> str:
    """Say which packets are not read, from their numbers by name.

    >>> not_read_text({"WireGuard": 12000, "link type 105": 1})
    '12,000 packets of WireGuard and 1 of link type 105 are not read'
    """
    first, *others = (f"{count:,}{{}} of {name}" for name, count in packets.items())
    noun = " packet" if next(iter(packets.values())) == 1 else " packets"
    parts = [first.format(noun), *(other.format("") for other in others)]
    verb = "is" if packets and sum(packets.values()) == 1 else "are"
    return f"{', '.join(parts[:-1])} and {parts[-1]} {verb} not read" if others else f"{parts[0]} {verb} not read"


@dataclass(frozen=True, slots=True)
class BadInput:
    """A piece of input that could not be read.

    Attributes:
        file: Name of the file.
        reason: What is wrong, in one line, with the connection if there is one.
        offset: Bytes from the start of the (unpacked) file, or of the connection's stream if the reason names one;
            None in the summary of a run: the whole file.
        bytes_skipped: Bytes that were left out; None in the summary of a run: unknown.
    """

    file: str
    reason: str
    offset: int | None
    bytes_skipped: int | None


@dataclass(frozen=True, slots=True)
class StreamLoss:
    """The first loss of a kind on one side of a Kafka connection: from it on, a missing frame proves nothing.

    Attributes:
        connection: The connection.
        direction: ``request`` if requests are concerned, ``response`` if responses.
        kind: The kind of loss.
        time_ns: When the last byte before it passed, ns since the epoch; of a partial start: the first packet.
        length: The bytes that are lost or were passed over.
    """

    connection: Connection
    direction: Direction
    kind: LossKind
    time_ns: int
    length: int


@dataclass(slots=True)
class CaptureSummary:
    """Counts and damage of one reading; pass a fresh one in, and use it when the iterator has ended.

    Attributes:
        file: Name of the file, or of the capture point if it has several files.
        reading: Name of the file that is being read.
        format: ``pcap``, ``pcapng``, ``request log``, ``state-change log``; empty until known.
        ports: The listener ports that were named; None if they were found from the traffic.
        packets: Packets (of a log: the requests that it tells of).
        first_ns: Time of the first packet, ns since the epoch, 0 if there is none.
        last_ns: Time of the last one.
        not_tcp: Packets that carry no TCP, or whose headers are cut off.
        ip_fragments: Fragments of packets that were not put together: others are missing, or overlap.
        unknown_links: Packets of link types that are not read, by number.
        not_read: Packets of protocols that may hide Kafka traffic and are not read, by the protocol's name.
        untimed_packets: Packets without a time; they have that of the packet before, 0 if none has one.
        copied_connections: Connections left out because they show the packets of another one under other addresses, as
            a capture of both sides of an address translation does.
        cut_packets: TCP packets that lack payload because of the capture's snaplen.
        bad_checksums: Packets left out because they do not match the checksum that was recorded with them.
        dropped_packets: Packets that the recording program says that it did not record: a disk was full, or it was too
            slow.
        resent: Segments without new bytes; of a log: lines that stand in the file again.
        connections: TCP connections with data, on the listener ports if such were named.
        kafka_connections: Those on which a Kafka request was found.
        without_handshake: Kafka connections whose TCP handshake is not in the capture: they began before it.
        tls_connections: Those that carry TLS.
        http_connections: Those that carry HTTP.
        kafka_listeners: Servers of Kafka connections, with their number of connections; the first thousand.
        undetected_servers: Servers of connections of which too little was seen to tell the protocol, likewise.
        tls_listeners: Servers of TLS connections, likewise; if nothing else tells, the side with the lower port is the
            server.
        partial_starts: Streams of connections with wanted requests that the capture shows from the middle of a request
            or response on.
        gaps: Stretches of lost bytes within Kafka's streams, and their bytes.
        gap_bytes: The bytes that these gaps lack.
        requests: Requests of every API by (api key, version).
        responses: Responses of every API.
        unmatched_requests: Wanted requests without response.
        unmatched_responses: Responses without request on connections with wanted requests.
        given_up: What was given up because too much waited, by kind: ``connections`` that were silent for longest,
            ``holes`` in streams, ``frames`` of which only a part had come, ``requests`` and ``responses`` without the
            other. Streams go on after it; what was given up counts as lost where it is.
        losses: Losses of single connections, among them the first of each kind, see ``first_losses``; a thousand at
            most. A Kafka connection without any is complete, from its first packet in the capture on.
        senders: When a broker's own request first came from an IP address: by the address and the id that it names.
        assumed_zone: Whether times of logs without a zone were read as the reader's own local time.
        controller_events: What logs of controllers tell beside requests, the first thousand.
        bad_inputs: Pieces of input that could not be read, the first thousand.
        bad_input_count: How many there are in all.
    """

    file: str = ""
    reading: str = ""
    format: str = ""
    ports: frozenset[int] | None = None
    packets: int = 0
    first_ns: int = 0
    last_ns: int = 0
    not_tcp: int = 0
    ip_fragments: int = 0
    unknown_links: Counter[int] = field(default_factory=Counter)
    not_read: Counter[str] = field(default_factory=Counter)
    untimed_packets: int = 0
    copied_connections: int = 0
    cut_packets: int = 0
    bad_checksums: int = 0
    dropped_packets: int = 0
    resent: int = 0
    connections: int = 0
    kafka_connections: int = 0
    without_handshake: int = 0
    tls_connections: int = 0
    http_connections: int = 0
    kafka_listeners: Counter[Endpoint] = field(default_factory=Counter)
    undetected_servers: Counter[Endpoint] = field(default_factory=Counter)
    tls_listeners: Counter[Endpoint] = field(default_factory=Counter)
    partial_starts: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    responses: int = 0
    unmatched_requests: int = 0
    unmatched_responses: int = 0
    given_up: Counter[str] = field(default_factory=Counter)
    losses: list[StreamLoss] = field(default_factory=list)
    senders: dict[tuple[str, int], int] = field(default_factory=dict)
    assumed_zone: bool = False
    controller_events: list[LoggedEvent] = field(default_factory=list)
    bad_inputs: list[BadInput] = field(default_factory=list)
    bad_input_count: int = 0

    def sent_by(self, client: Endpoint, server: Endpoint, broker: int, time_ns: int) -> None:
        """Note that a broker's own request came from an address; the first thousand count.

        One to the sender's own machine is none: it may have gone to itself, or to another broker there.
        """
        if client.ip != server.ip and len(self.senders) < _KEPT:
            self.senders.setdefault((client.ip, broker), time_ns)

    def told_by_controller(self, event: LoggedEvent) -> None:
        """Note what a controller's log tells; the first thousand count."""
        if len(self.controller_events) < _KEPT:
            self.controller_events.append(event)

    def bad(self, reason: str, offset: int, bytes_skipped: int = 0, file: str = "") -> None:
        """Note a piece of input that could not be read; without ``file`` of the file that is being read."""
        self.bad_input_count += 1
        if len(self.bad_inputs) < _KEPT:
            self.bad_inputs.append(BadInput(file or self.reading or self.file, reason, offset, bytes_skipped))

    def lost(self, loss: StreamLoss) -> None:
        """Note a loss on a connection."""
        if len(self.losses) < _KEPT:
            self.losses.append(loss)

    def first_losses(self) -> list[StreamLoss]:
        """The first loss of each kind on each side of each connection, by time."""
        firsts: dict[tuple[bytes, str, str], StreamLoss] = {}
        for loss in sorted(self.losses, key=lambda loss: (loss.time_ns, loss.connection.conn_id)):
            firsts.setdefault((loss.connection.conn_id, loss.direction, loss.kind), loss)
        return list(firsts.values())

    def bad_checksum(self, offset: int, bytes_skipped: int) -> None:
        """Note a packet that does not match its checksum."""
        self.bad_checksums += 1
        self.bad(_BAD_CHECKSUM, offset, bytes_skipped)

    def recognised(self, protocol: str | None, server: Endpoint, *, saw_open: bool = True) -> None:
        """Count a connection by its protocol.

        Args:
            protocol: The protocol.
            server: The server.
            saw_open: Whether its handshake is in the capture, or need not be: request logs have none.
        """
        listeners = None
        if protocol == "kafka":
            self.kafka_connections += 1
            self.without_handshake += not saw_open
            listeners = self.kafka_listeners
        elif protocol == "TLS":
            self.tls_connections += 1
            listeners = self.tls_listeners
        elif protocol == "HTTP":
            self.http_connections += 1
        if listeners is not None and (server in listeners or len(listeners) < _KEPT):
            listeners[server] += 1

    @property
    def all_not_read(self) -> dict[str, int]:
        """The packets that may hide Kafka traffic and are not read, by protocol or link type, the most first."""
        links = {f"link type {link}": count for link, count in self.unknown_links.items()}
        return dict((self.not_read + Counter(links)).most_common())

    def undetected(self, server: Endpoint) -> None:
        """Note a connection of which too little was seen to tell its protocol."""
        if server in self.undetected_servers or len(self.undetected_servers) < _KEPT:
            self.undetected_servers[server] += 1

    @property
    def kafka_ports(self) -> list[int]:
        """The ports of the Kafka listeners."""
        return sorted({listener.port for listener in self.kafka_listeners})

    @property
    def unusable(self) -> tuple[int, str | None]:
        """The number of bad inputs other than bad checksums, and the reason of the first of them, if it was kept."""
        reasons = (bad.reason for bad in self.bad_inputs if bad.reason != _BAD_CHECKSUM)
        return self.bad_input_count - self.bad_checksums, next(reasons, None)

    @property
    def control_requests(self) -> int:
        """LeaderAndIsr, StopReplica and UpdateMetadata requests, of any version."""
        return sum(n for (api, _), n in self.requests.items() if api in CONTROL_APIS)

    @property
    def speaks_kraft(self) -> bool:
        """Whether the capture holds requests that only KRaft clusters send, or that are newer than Kafka 3.9."""
        return self.is_newer_than_3_9 or any(api in _KRAFT_APIS for api, _ in self.requests)

    @property
    def is_newer_than_3_9(self) -> bool:
        """Whether the capture holds requests that Kafka 3.9 does not know: a new API, or a new version."""
        return any(
            api not in _APIS or version > ApiKey(api).info.max_version
            for api, version in self.requests
            # With ApiVersions a newer client asks an older broker for its versions. The control requests have no newer
            # versions: a request with one comes from a test, or is damaged.
            if api != ApiKey.API_VERSIONS and api not in CONTROL_APIS
        )

    def _log_problem(self) -> str:
        """Why a log shows no control request."""
        if reason := self.unusable[1]:
            first = f"; why the first of {self.bad_input_count} cannot" if self.bad_input_count > 1 else ""
            hint = "; try a log as the brokers wrote it, such as kafka-request.log or state-change.log, or a capture"
            return f"no line can be used{first}: {reason}{'' if ';' in reason else hint}"
        if self.format == "state-change log":
            return (
                "no line of this log tells of a control request: another broker was the controller, or the logger "
                "state.change.logger is not at INFO or TRACE"
            )
        if self.packets:
            return (
                f"{self.packets} logged requests, but no LeaderAndIsr, StopReplica or UpdateMetadata among them; take "
                "the log of the hours in which a leader or a topic changed (--all-apis shows the others)"
            )
        return (
            "no line of this log tells of a request or a state change; name kafka-request.log (kafka.request.logger at "
            "DEBUG), state-change.log or controller.log"
        )

    @property
    def is_all_tls(self) -> bool:
        """Whether connections carry TLS and none carries Kafka that can be read."""
        return bool(self.tls_connections) and not self.kafka_connections

    def problem(self) -> str | None:
        """One line that says why there is no control request and what to try; None if there is one."""
        if self.control_requests:
            return None
        name = self.file or "the capture"
        if self.format in ("request log", "state-change log"):
            return f"{name}: {self._log_problem()}"
        if not self.packets and self.bad_checksums:
            return f"{name}: no packet in it matches the checksum recorded with it; take the original file"
        if not self.packets and self.bad_input_count:
            return (
                f"{name}: no packet in it can be read: {self.unusable[1] or 'damage'}; take or copy the original again"
            )
        if not self.packets:
            return f"{name}: a capture without packets; was the capture filter right?"
        if self.unknown_links and sum(self.unknown_links.values()) == self.packets:
            types = ", ".join(map(str, sorted(self.unknown_links)))
            return f"{name}: link type {types} is not read; capture on an Ethernet interface or with -i any"
        if not self.connections and self.ports is not None:
            return (
                f"{name}: no TCP data on --ports {','.join(map(str, sorted(self.ports)))} in {self.packets} packets; "
                "leave out --ports, and the brokers' listeners are found from the traffic"
            )
        if not self.connections:
            if self.all_not_read:
                return f"{name}: {not_read_text(self.all_not_read)}; capture on an interface inside the tunnel"
            return f"{name}: no TCP data in {self.packets} packets; try: {_USABLE}"
        if self.is_all_tls:
            return (
                f"{name}: TLS inside ({self.tls_connections} of {self.connections} connections), which cannot be read; "
                "capture a PLAINTEXT listener, record with kproto tap, or take the brokers' kafka-request.log"
            )
        if not self.kafka_connections:
            http = f" ({self.http_connections} speak HTTP)" if self.http_connections else ""
            if self.all_not_read:
                http += f", and {not_read_text(self.all_not_read)}"
            return (
                f"{name}: no Kafka requests on {self.connections} TCP connections{http}; "
                f"name the listener ports, and capture whole packets: {_USABLE}"
            )
        if self.speaks_kraft:
            return (
                f"{name}: {KRAFT_TRAFFIC}: its controllers send no LeaderAndIsr, StopReplica or "
                "UpdateMetadata; these exist in ZooKeeper mode and during a migration, up to Kafka 3.9"
            )
        return (
            f"{name}: Kafka traffic on {self.kafka_connections} connections, but no control request; "
            "capture on a broker's inter-broker or control-plane port, while a leader or a topic changes"
        )


SAID_OF_READ: Final = (
    "no control request|no Kafka request|no TCP data|no packet in it|without packets|no line |no LeaderAndIsr|"
    "TLS inside|(is|are) not read; capture on"
)
"""A pattern of what ``CaptureSummary.problem`` says, and of nothing that is said of files that cannot be read."""

KRAFT_TRAFFIC: Final = "a KRaft cluster's traffic"
"""What a capture without control requests is, where the nodes of a KRaft cluster talk: its metadata log is read."""
