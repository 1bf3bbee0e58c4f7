"""The rules of ``kproto doctor``: ids, names, severities, limits, and what each rule means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["trouble", "warning", "note"]
"""``trouble``: act now; ``warning``: look at it today; ``note``: for your information."""

Basis = Literal["absence", "identity", "time"]
"""What a rule may rest on, see ``Rule.rests_on``."""

SEVERITIES: Final[tuple[Severity, ...]] = ("trouble", "warning", "note")
"""The severities, worst first."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A number that rules compare with; ``kproto doctor --limit NAME=VALUE`` changes it.

    Attributes:
        name: Its name.
        default: Its value where none is given.
        unit: Of the value.
        meaning: The quantity that it limits.
    """

    name: str
    default: float
    unit: str
    meaning: str


LIMITS: Final[dict[str, Limit]] = {
    limit.name: limit
    for limit in (
        Limit("failover", 5.0, "s", "requests of the former controller this long after a failover are part of it"),
        Limit("offline", 30.0, "s", "a partition may have no leader for this long; 0: none at the end"),
        Limit("not-alive", 30.0, "s", "an ISR or leader may name a broker that is not alive for this long"),
        Limit("told", 10.0, "s", "a broker may be told this long after the others"),
        Limit("under-replicated", 300.0, "s", "an ISR may lack a replica for this long"),
        Limit("settled", 60.0, "s", "a change this soon after a broker came or went follows from that"),
        Limit("queued", 0.2, "s", "a request this soon after the answer to another was waiting for it"),
        Limit("silent", 60.0, "s", "a broker that is listed as alive may answer nothing for this long"),
        Limit("reassigning", 3600.0, "s", "a reassignment may take this long"),
        Limit("under-min-isr", 30.0, "s", "a partition may have fewer in-sync replicas than min-isr for this long"),
        Limit("elections", 6, "times", "the controller may be replaced one time fewer within flap-minutes"),
        Limit("registrations", 4, "times", "a broker may register again one time fewer within flap-minutes"),
        Limit("min-isr", 0, "replicas", "min.insync.replicas of the topics; 0: not given"),
        Limit("flap-minutes", 10, "minutes", "the time within which changes of a leader or an ISR are counted"),
        Limit("flaps", 4, "changes", "a leader or an ISR may change one time fewer within flap-minutes"),
        Limit("slow-factor", 5, "times", "a broker's answers may take this many times as long as its peers'"),
        Limit("slow-answers", 100, "answers", "a broker with fewer answers is not called slow"),
        Limit("slow-ms", 100, "ms", "an answer below this is not slow"),
        Limit("late-factor", 10, "times", "an update may reach a broker this many times the usual delay late"),
        Limit("late-ms", 1000, "ms", "an update that reaches a broker within this time is not late"),
        Limit("unfencing", 120.0, "s", "a broker may stay fenced for this long after it registered with KRaft"),
        Limit("metadata-lag", 30.0, "s", "a broker may apply committed metadata of KRaft this late"),
        Limit("quorum", 10.0, "s", "KRaft's quorum may have no leader that answers for this long"),
        Limit("failed-elections", 5, "times", "elections of the quorum may fail one time fewer within flap-minutes"),
        Limit("refused-fetches", 1000, "fetches", "a node may fetch the metadata log one time fewer in vain"),
    )
}
"""The limits by name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        id: ``KPnnn``; it never changes its meaning.
        name: In words with hyphens.
        severity: Of its findings.
        subject: One of controllers, leaders, replicas, brokers, topics, requests and capture.
        meaning: The condition under which the rule reports a finding.
        cause: The way in which Kafka gets into this state.
        action: The remedy.
        harmless: The circumstances in which the finding is harmless.
        limits: The names of its limits.
        bugs: Kafka's own bugs that it shows.
        shown_by: The command that shows a finding's evidence, without the captures; ``BROKER``, ``PLACE`` and ``TIME``
            stand for options that choose the finding's broker, its topic or partition, and its time.
        rests_on: What has to be certain: ``absence``, that a request is not in the captures because none was sent;
            ``identity``, which broker it is about; ``time``, the order of clocks of several hosts. Where it is not, the
            finding is a note that begins with "cannot tell", or there is none.
    """

    id: str
    name: str
    severity: Severity
    subject: str
    meaning: str
    cause: str
    action: str
    harmless: str
    limits: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    shown_by: str = "inspect BROKER PLACE TIME"
    rests_on: tuple[Basis, ...] = ()


_ON_ABSENCE: Final[tuple[Basis, ...]] = ("absence", "identity", "time")

RULES: Final[dict[str, Rule]] = {
    rule.id: rule
    for rule in (
        # controllers
        Rule(
            "KP001", "zombie-controller-accepted", "warning", "controllers",
            "A broker accepted a request whose controller epoch is below one that a broker had accepted before.",
            "The former controller had not yet noticed that it was replaced (a long pause, a lost ZooKeeper session), "
            "and this broker had not yet heard of the new controller.",
            "See what the request said (kproto inspect), and whether the new controller corrected it. Find out why the "
            "former controller did not stop: garbage collection, disk or network.",
            "Requests within the limit failover after the first one of the new epoch are part of the failover.",
            ("failover",),
            shown_by="query stale BROKER", rests_on=("time",),
        ),
        Rule(
            "KP002", "zombie-controller-refused", "note", "controllers",
            "Brokers refused requests whose controller epoch is below one that a broker had accepted before.",
            "The former controller went on sending after it was replaced. The epoch did what it is for.",
            "Nothing for the data. Find out why the former controller did not stop.",
            "Always: nothing was changed.",
            ("failover",),
            shown_by="query stale BROKER",
        ),
        Rule(
            "KP003", "two-controllers-in-one-epoch", "trouble", "controllers",
            "Two controller ids sent requests with the same controller epoch, and brokers accepted both.",
            "ZooKeeper's conditional write gives each epoch to one controller. Somebody writes with an invented epoch, "
            "or /controller_epoch was deleted or restored from a backup.",
            "Stop the one that is not in /controller. Look for tools that speak to brokers as a controller.",
            "A test program that plays the controller.",
        ),
        Rule(
            "KP004", "controller-epoch-went-back", "warning", "controllers",
            "A broker accepted a controller epoch below one that the same registration of it had accepted before.",
            "A broker keeps the highest epoch in memory and refuses lower ones, so it must have been started anew "
            "without a new registration, or it does not keep the rule.",
            "Look into the broker's log for a restart, and for its version.",
            "Versions without a broker epoch do not show restarts; there this rule is not applied.",
            shown_by="query stale BROKER", rests_on=("time",),
        ),
        Rule(
            "KP006", "migration-broker-left-behind", "trouble", "controllers",
            "In a migration a ZooKeeper broker got no full metadata, or no LeaderAndIsr for its replicas, from the "
            "KRaft controller that others were told by.",
            "The KRaft controller could not reach the broker when it took over, or believes that it is migrated.",
            "Compare kproto inspect --broker N from the takeover on with another broker's; restart the broker.",
            "A broker without replicas gets no LeaderAndIsr.",
            ("told",), ("KAFKA-15605", "KAFKA-16120"),
            rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP007", "dual-write-ended", "warning", "controllers",
            "After a KRaft controller had taken over, brokers accepted requests of a ZooKeeper controller with a "
            "higher epoch.",
            "The migration was rolled back, or a ZooKeeper broker became controller because /controller was deleted.",
            "If nobody rolled the migration back, find out who deleted /controller.",
            "A planned return to ZooKeeper.",
        ),
        Rule(
            "KP008", "controllers-replaced-often", "warning", "controllers",
            "The controller was replaced often within a few minutes.",
            "Controllers lose their ZooKeeper sessions or fail again and again: garbage collection, an overloaded "
            "ZooKeeper, an exception at each start.",
            "Read the controllers' logs from the first of these elections on; kproto query controllers lists them.",
            "A rolling restart that moves the controller from broker to broker.",
            ("elections", "flap-minutes"),
            shown_by="summary", rests_on=("time",),
        ),
        # leaders
        Rule(
            "KP010", "no-leader", "trouble", "leaders",
            "A partition has, or had, no leader for longer than the limit offline.",
            "All replicas of the ISR are down, and unclean elections are off.",
            "Start the brokers of the last ISR, best the last leader. An unclean election loses records.",
            "A topic whose brokers were all shut down on purpose.",
            ("offline",),
            shown_by="query leader PLACE", rests_on=("time",),
        ),
        Rule(
            "KP011", "unclean-election", "trouble", "leaders",
            "A partition's new leader was not in the ISR of the state before: acknowledged records may be lost.",
            "All replicas of the ISR were down and unclean.leader.election.enable is on, or an operator asked for it.",
            "Compare the new leader's log with the former leader's, when that is back. Turn unclean elections off "
            "where records matter.",
            "Topics whose records may be lost.",
            shown_by="query leader PLACE",
        ),
        Rule(
            "KP012", "leader-epoch-went-back", "trouble", "leaders",
            "A broker accepted a lower leader epoch of a partition after a higher one, without a new start of the "
            "topic.",
            "Somebody sends states of an older time: a controller with an old view, or a tool.",
            "See both requests (kproto inspect --partition) and who sent them.",
            "A topic that was deleted and created again starts at 0; that is not counted.",
            (), ("KAFKA-9212",),
            shown_by="query leader PLACE", rests_on=("time",),
        ),
        Rule(
            "KP013", "leader-epoch-used-twice", "trouble", "leaders",
            "Two different leaders were told under one leader epoch of a partition.",
            "Each election takes a new leader epoch by a conditional write; two writers, or invented states.",
            "See both requests (kproto inspect --partition), and which one /brokers/topics holds.",
            "A test program that plays the controller.",
            shown_by="query leader PLACE",
        ),
        Rule(
            "KP014", "two-leaders", "trouble", "leaders",
            "A broker was told to lead a partition and not told that it no longer does, while another broker was told "
            "to lead it under a newer leader epoch, for longer than the limit told.",
            "The controller could not send LeaderAndIsr to the former leader, which is alive.",
            "Restart the connection: a controller election resends all states. Clients with old metadata still write "
            "to the former leader; with acks=all they get errors.",
            "The former leader is down, or cannot be seen in this capture.",
            ("told",),
            shown_by="query leader PLACE", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP015", "leader-named-but-not-told", "warning", "leaders",
            "UpdateMetadata named a leader to clients that LeaderAndIsr did not tell to lead, or later than the limit "
            "told.",
            "LeaderAndIsr goes first in each batch; it is still queued behind a slow request, or was refused.",
            "Look at the broker's queue (kproto inspect --broker N): what took long before it?",
            "The leader's connection is not in this capture.",
            ("told",), ("KAFKA-9212",),
            shown_by="query leader PLACE", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP016", "leader-flapping", "warning", "leaders",
            "The leader of a partition changed often within a few minutes.",
            "A broker that loses its session again and again, or preferred elections that fail.",
            "Find the broker that leaves and comes (kproto query isr; kproto doctor --rule KP035), and why.",
            "A rolling restart: changes within a minute of a broker's coming or going are not counted.",
            ("flaps", "flap-minutes", "settled"),
            shown_by="query leader PLACE", rests_on=("time",),
        ),
        # replicas
        Rule(
            "KP020", "under-replicated", "warning", "replicas",
            "A partition has, or had, an ISR without some of its replicas for longer than the limit under-replicated.",
            "A follower is down, slow, or cannot read from the leader.",
            "Find the brokers that are missing in the ISRs (kproto query isr).",
            "A reassignment that still copies: its new replicas join the ISR at the end.",
            ("under-replicated",),
            shown_by="query under-replicated PLACE", rests_on=("time",),
        ),
        Rule(
            "KP021", "under-min-isr", "trouble", "replicas",
            "A partition has, or had, fewer in-sync replicas than the limit min-isr for longer than under-min-isr.",
            "As KP020; writes with acks=all are refused now.",
            "As KP020.",
            "Topics with another min.insync.replicas than the one given.",
            ("min-isr", "under-min-isr"), rests_on=("time",),
        ),
        Rule(
            "KP022", "isr-flapping", "warning", "replicas",
            "The ISR of a partition shrank and grew often within a few minutes.",
            "A follower at the edge of replica.lag.time.max.ms: a slow disk, a full network.",
            "Look at the broker that leaves and comes back.",
            "A rolling restart.",
            ("flaps", "flap-minutes", "settled"),
            shown_by="query isr PLACE", rests_on=("time",),
        ),
        Rule(
            "KP023", "isr-or-leader-not-alive", "warning", "replicas",
            "A partition's state names, or named, a leader or an ISR with a broker that is not alive, for longer than "
            "the limit not-alive.",
            "The controller has not processed the broker's failure, or nobody is controller.",
            "Look whether a controller is elected and what its log says.",
            "ZooKeeper mode alone; in KRaft mode UpdateMetadata lists brokers that are down.",
            ("not-alive",),
            shown_by="query leader PLACE", rests_on=("time",),
        ),
        Rule(
            "KP024", "reassignment-lasts", "warning", "replicas",
            "A reassignment adds replicas to a partition for longer than the limit reassigning.",
            "The new replicas cannot catch up: a broker is down or full, or a throttle is below the rate of records.",
            "Look at the brokers that are added, and at the throttle (kafka-reassign-partitions --verify).",
            "Large partitions take hours to copy.",
            ("reassigning",),
            shown_by="query leader PLACE", rests_on=("time",),
        ),
        # brokers
        Rule(
            "KP030", "behind", "warning", "brokers",
            "A living broker was never told the newest state of partitions that others were told, for longer than the "
            "limit told.",
            "The request to it failed or is stuck, or the controller believes that the broker is down.",
            "kproto query behind names the partitions; restart the broker or elect a new controller, which resends "
            "everything.",
            "The capture ends within the limit.",
            ("told",),
            shown_by="query behind BROKER", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP031", "missed-update", "warning", "brokers",
            "A living broker was not sent a metadata update that most others accepted, nor newer states in its place.",
            "As KP030; later updates of the same partitions have put it right, or KP030 is reported too.",
            "kproto query missed names the updates.",
            "A broker that starts gets a full update instead; that is not counted.",
            ("told",),
            shown_by="query missed BROKER", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP032", "told-late", "warning", "brokers",
            "Metadata updates reached a broker later than the others, by more than the limits late-factor and late-ms.",
            "One request is in flight for each broker: its answer to the one before was slow, or it was unreachable.",
            "kproto query lag shows the delay of each broker; kproto inspect --broker N --slow 1s what took long.",
            "A broker that was just starting.",
            ("late-factor", "late-ms", "queued", "told"),
            shown_by="query lag BROKER", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP033", "unanswered", "note", "brokers",
            "Requests to a broker have no answer in the capture.",
            "The broker ended or lost its connection before it answered, or the capture ended; where the capture lacks "
            "bytes, it cannot tell.",
            "See whether the request was sent again (KP052) and the broker registered again (KP035).",
            "At the end of a capture, and when brokers are stopped.",
            shown_by="inspect --unanswered BROKER PLACE TIME",
        ),
        Rule(
            "KP034", "slow-broker", "warning", "brokers",
            "A broker's slowest answers (99 of 100) take longer than its peers' by the limit slow-factor, with enough "
            "answers to say so.",
            "Its disk is slow, it has many more replicas, or it collects garbage.",
            "Look at the broker's request metrics and disks.",
            "Large LeaderAndIsr and deletions take long everywhere; a broker with many more replicas takes longer.",
            ("slow-factor", "slow-answers", "slow-ms"),
            shown_by="summary",
        ),
        Rule(
            "KP035", "registered-again", "note", "brokers",
            "A broker has a new registration: it was started again, or its session expired.",
            "A restart, a crash, or a lost session.",
            "Nothing, if somebody restarted it; else look into its log.",
            "Planned restarts.",
            shown_by="query restarts BROKER",
        ),
        Rule(
            "KP036", "meant-for-earlier-registration", "note", "brokers",
            "Requests carried a broker epoch below that of the broker's registration; the broker refused them.",
            "They were queued when the broker was started again. The broker epoch did what it is for.",
            "Nothing.",
            "Always: nothing was changed.",
            shown_by="query stale BROKER",
        ),
        Rule(
            "KP037", "not-answering", "warning", "brokers",
            "A broker answered no control request for longer than the limit silent, though it is listed as alive.",
            "The broker hangs: its request handlers are blocked (a disk, a lock), while its session goes on.",
            "Take a thread dump of the broker, then restart it. Until then it leads and follows with old states.",
            "Never.",
            ("silent",),
            shown_by="inspect --unanswered BROKER PLACE TIME", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP038", "registered-again-often", "warning", "brokers",
            "A broker registered again often within a few minutes.",
            "It crashes at its start, or loses its session again and again.",
            "Read its log; kproto query restarts lists its registrations.",
            "Restarts on purpose, again and again.",
            ("registrations", "flap-minutes"),
            shown_by="query restarts BROKER", rests_on=("time",),
        ),
        Rule(
            "KP039", "listener-cannot-work", "warning", "brokers",
            "A broker advertises a loopback address and others do not; or two brokers advertise one address, or some "
            "brokers lack a listener of the others, for longer than the limit settled.",
            "The setting advertised.listeners of a broker is not set, or was copied from another broker.",
            "Compare advertised.listeners of the brokers, and restart the one that is wrong. Until then clients do not "
            "find the partitions that it leads.",
            "Brokers that get a new listener one after the other. Brokers that are all on one machine are not named.",
            ("settled",),
            shown_by="inspect --api UpdateMetadata --details TIME",
        ),
        # topics
        Rule(
            "KP040", "deletion-waiting", "note", "topics",
            "A topic is being deleted, and a broker that holds a replica has not accepted the deletion.",
            "The broker is down, or failed on it. The controller keeps the topic until every holder has answered.",
            "Start the broker; the controller then asks it again.",
            "While the broker is away for a short time.",
            shown_by="inspect --api StopReplica PLACE", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP041", "stray-replica", "warning", "topics",
            "A topic is deleted, and a broker that held a replica never accepted the deletion: its log stays.",
            "The topic was deleted in ZooKeeper by hand, or the deletion was lost in a migration or with a cancelled "
            "reassignment.",
            "Stop the broker, look for the partition's directories, and move them away.",
            "Never; but the records only take room until the name is used again.",
            (), ("KAFKA-13972", "KAFKA-15605", "KAFKA-16120"),
            shown_by="inspect --api StopReplica PLACE", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP042", "name-used-again-over-stray", "trouble", "topics",
            "A topic's name is used again while a broker that held a replica of the former topic never accepted its "
            "deletion: old records may return.",
            "As KP041; without topic ids a broker cannot tell the old log from the new.",
            "Before that broker starts, move its directories of the former topic away.",
            "Brokers with topic ids refuse the new topic with INCONSISTENT_TOPIC_ID (103) while the old log is there.",
            shown_by="inspect --api StopReplica PLACE", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP043", "topic-ids-differ", "warning", "topics",
            "A broker answered INCONSISTENT_TOPIC_ID: it holds a topic of that name with another id.",
            "An older topic of that name was never deleted there (KP041), or the request's id is wrong.",
            "Compare partition.metadata in the log directory with the topic's id.",
            "A test program that plays the controller.",
            shown_by="inspect --errors partition BROKER PLACE TIME",
        ),
        # requests
        Rule(
            "KP050", "refused", "warning", "requests",
            "A broker refused whole requests, for another reason than an old epoch.",
            "UNKNOWN_SERVER_ERROR: the broker failed on the request; its log has the exception.",
            "Read the broker's log at that time.",
            "Never.",
            shown_by="inspect --errors request BROKER PLACE TIME",
        ),
        Rule(
            "KP051", "partition-error-not-put-right", "warning", "requests",
            "A broker refused a partition in a request, and no later request for this partition was accepted there.",
            "The broker failed on that partition (for instance KAFKA_STORAGE_ERROR: a disk is offline).",
            "Read the broker's log for this partition.",
            "STALE_CONTROLLER_EPOCH of a partition says that the broker has this state already, or a newer one; it is "
            "not counted.",
            shown_by="inspect --errors partition BROKER PLACE TIME", rests_on=_ON_ABSENCE,
        ),
        Rule(
            "KP052", "sent-again", "note", "requests",
            "The same request went to a broker again over a newer connection, as its first delivery got no answer.",
            "The connection was lost; the controller's send thread tries again until it succeeds.",
            "Nothing, unless it happens often.",
            "Always: brokers recognise what they have.",
        ),
        Rule(
            "KP053", "unreadable", "note", "requests",
            "Control requests or responses cannot be read as Kafka reads them.",
            "A version that Kafka does not have, bytes that the protocol forbids, or other traffic on a broker's port.",
            "kproto inspect shows the reason for each.",
            "Test programs and port scans.",
        ),
        # capture
        Rule(
            "KP060", "begins-inside-a-request", "note", "capture",
            "The capture begins inside a request of a connection, whose beginning is missing.",
            "The capture was started while a request was being sent.",
            "Nothing; what rests on earlier requests is said to be uncertain.",
            "Always.",
            shown_by="summary",
        ),
        Rule(
            "KP061", "bytes-missing", "note", "capture",
            "Bytes are missing in the capture: packets were dropped, cut short, or damaged.",
            "The capturing program could not keep up, or was used with a snaplen.",
            "Capture with tcpdump -s 0 -B 65536, and nothing but the brokers' ports.",
            "What rests on missing requests is said to be uncertain.",
            shown_by="summary",
        ),
        Rule(
            "KP062", "connections-without-handshake", "note", "capture",
            "Kafka connections of the capture lack their TCP handshake: they began before it.",
            "The capture was started while the cluster was running, or it lost the packets of the handshake.",
            "Nothing; to see what brokers were told before, start the capture first and restart the controller then, "
            "which sends everything to every broker.",
            "Always: only what was told before the capture is unknown. A request log, and tables that a version "
            "before captures.without_handshake wrote, do not tell, so that nothing is found there.",
            shown_by="summary",
        ),
        Rule(
            "KP063", "clocks-disagree", "note", "capture",
            "The clock of a capture point differs by over a second from that of the point with the most connections of "
            "controllers: what both saw has another time there, always by the same. Or too little was seen at both.",
            "The hosts' clocks are not synchronised.",
            "Synchronise the clocks (chrony, NTP): logs and certificates depend on them too.",
            "Commands correct the times that they print by it; stored tables keep the times of each capture.",
            shown_by="summary",
        ),
        Rule(
            "KP064", "traffic-not-read", "note", "capture",
            "The capture holds packets that may hide Kafka traffic and are not read: encrypted tunnels, other link "
            "types.",
            "The capture was made outside a VPN or an encrypted overlay network, or on an interface of another kind.",
            "Capture on an interface inside the tunnel, or on the brokers' hosts.",
            "Where that traffic is none of the cluster's.",
            shown_by="summary",
        ),
        Rule(
            "KP065", "damaged-file", "note", "capture",
            "Pieces of the file could not be used: it is damaged, or was cut while it was written.",
            "A copy that ended early, two captures in one file (cat instead of mergecap), a disk or memory at fault.",
            "kproto check FILE names each place; take the original, or join captures with mergecap -a.",
            "At the end of a capture that was being written: its last packet alone is missing. It warns where another "
            "finding becomes uncertain by it.",
            shown_by="summary",
        ),
        Rule(
            "KP066", "packets-without-times", "note", "capture",
            "Packets of the capture have no time (simple packet blocks of pcapng).",
            "The capturing program writes none.",
            "Capture with tcpdump or dumpcap; durations and times cannot be told here.",
            "Order and content of the requests are not affected.",
            shown_by="summary",
        ),
        # KRaft
        Rule(
            "KP070", "fenced-though-alive", "warning", "brokers",
            "KRaft's controller fenced a broker whose heartbeats stayed away, and the process sent heartbeats again.",
            "A long pause of the broker (garbage collection, a stopped process, a disk), or lost packets between it "
            "and the controller, longer than broker.session.timeout.ms.",
            "Look at the broker's pauses and at its network at that time; its partitions changed their leaders.",
            "A process that somebody stopped and let go on.",
            shown_by="query brokers BROKER",
        ),
        Rule(
            "KP071", "does-not-unfence", "warning", "brokers",
            "A broker registered with KRaft's controller, sent heartbeats, and stayed fenced for longer than the "
            "limit unfencing.",
            "It has not caught up with the metadata log, or still loads its logs after an unclean stop.",
            "Compare applied and committed offsets (kproto query metadata-lag); read the broker's log.",
            "A broker that recovers many logs takes long.",
            ("unfencing",),
            shown_by="query brokers BROKER",
        ),
        Rule(
            "KP072", "metadata-lag", "warning", "brokers",
            "A broker's heartbeats showed again and again that committed metadata was not applied for longer than the "
            "limit metadata-lag.",
            "The broker's metadata thread is slow or blocked, or its fetches do not get through.",
            "Take a thread dump of the broker; clients of it see old leaders.",
            "While the broker's machine is suspended.",
            ("metadata-lag",),
            shown_by="query metadata-lag BROKER",
        ),
        Rule(
            "KP073", "no-quorum-leader", "trouble", "controllers",
            "No leader of KRaft's quorum answered for longer than the limit quorum, although nodes asked.",
            "A majority of the voters is down, cut off or paused, or votes split again and again.",
            "Bring back a majority of the controllers; until then nothing can be elected, created or fenced.",
            "A shutdown of the whole cluster.",
            ("quorum",),
            shown_by="query quorum-outages",
        ),
        Rule(
            "KP074", "elections-without-winner", "warning", "controllers",
            "Nodes of KRaft's quorum asked for votes in many epochs within a few minutes, and none of these epochs had "
            "a leader.",
            "Voters cannot reach each other, or are slower than controller.quorum.election.timeout.ms.",
            "Look at the network between the controllers and at their pauses; kproto query elections lists those with "
            "a winner.",
            "While a majority is down on purpose.",
            ("failed-elections", "flap-minutes"),
            shown_by="query quorum-outages",
        ),
        Rule(
            "KP075", "former-quorum-leader-answered", "note", "controllers",
            "A former leader of KRaft's quorum answered fetches after another had begun a newer epoch.",
            "It was paused or cut off and had not heard of the newer epoch yet.",
            "Nothing for the data: without a majority nothing that it wrote is committed. Find out why it paused.",
            "Always: replicas leave it as soon as they know the newer epoch.",
            shown_by="query elections",
        ),
        Rule(
            "KP076", "metadata-fetches-in-vain", "note", "brokers",
            "A node fetched the metadata log very often without an answer that served it.",
            "Without a leader of the quorum a node asks one voter after the other without a pause.",
            "Look for the time without a leader (kproto query quorum-outages).",
            "While the quorum elects, or shuts down.",
            ("refused-fetches",),
            shown_by="query quorum-outages",
        ),
        Rule(
            "KP077", "two-processes-of-one-broker", "warning", "brokers",
            "Heartbeats with an old broker epoch were refused while those of a newer registration of the same broker "
            "were accepted.",
            "Two processes with one node.id run: the former one was paused or cut off, and another was started.",
            "Stop the process that is not the registered one.",
            "Never.",
            shown_by="query brokers BROKER",
        ),
        Rule(
            "KP078", "registration-refused", "warning", "brokers",
            "KRaft's controller refused a broker's registration again and again.",
            "Another process with this node.id runs, or the storage of the broker belongs to another cluster, or the "
            "broker's release is older than the cluster's features.",
            "Give each broker its own node.id and its own log directories; compare meta.properties with the cluster's "
            "id, and the broker's release with kafka-features.",
            "A broker that was killed and started again within its session's timeout: it is refused until that ends.",
            shown_by="query brokers BROKER",
        ),
    )
}  # fmt: skip
"""The rules by id."""
