"""What Kafka's own dump of a metadata log says, folded by a few lines of this file's own. Times are ms since 1970."""

from collections.abc import Iterable
from typing import Any, NamedTuple

Partition = tuple[str, str, int]
"""A topic's name and id, and the partition."""


class Truth(NamedTuple):
    """What the dump says.

    Attributes:
        leaders: For each partition its leaders in turn: leader, leader epoch, quorum epoch, from, until; the third is
            None of those that were taken over from ZooKeeper.
        isrs: For each partition its distinct in-sync replicas in turn, with when each began.
        starts: The processes of each broker: broker epoch and when it registered.
        controllers: Epoch, node id and when it wrote that it leads; the node id is None where the dump lacks it.
        unclean: Topic, partition and leader epoch of each unclean election.
        fenced: Broker, whether it is fenced from then on, and when.
    """

    leaders: dict[Partition, list[list[Any]]]
    isrs: dict[Partition, list[tuple[frozenset[int], int]]]
    starts: dict[int, list[tuple[int, int]]]
    controllers: list[tuple[int, int | None, int]]
    unclean: set[tuple[str, int, int]]
    fenced: list[tuple[int, bool, int]]


def folded(rows: Iterable[dict[str, Any]]) -> Truth:
    """Fold the rows of ``kraft_runs.truth``."""
    made = Truth({}, {}, {}, [], set(), [])
    names: dict[str, str] = {}
    held: dict[Partition, dict[str, Any]] = {}
    seen: dict[int, str] = {}
    waiting: list[dict[str, Any]] | None = None
    ordered = []
    takes_over = False
    for row in rows:
        kind = row["type"]
        if kind == "BEGIN_TRANSACTION_RECORD":
            waiting = []
        elif kind == "END_TRANSACTION_RECORD":
            ordered += waiting or []
            waiting = None
        elif kind == "ABORT_TRANSACTION_RECORD":
            waiting = None
        elif waiting is not None:
            waiting.append(row)
        else:
            ordered.append(row)
    for row in ordered:
        kind, data, at = row["type"], row.get("data") or {}, row["time_ms"]
        if kind in ("LeaderChange", "LEADER_CHANGE"):
            made.controllers.append((row["epoch"], data.get("leaderId"), at))
        elif kind == "ZK_MIGRATION_STATE_RECORD":
            takes_over = data["zkMigrationState"] == 2
        elif kind == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif kind == "REMOVE_TOPIC_RECORD":
            for key in [key for key in held if key[1] == data["topicId"]]:
                del held[key]
                made.leaders[key][-1][4] = at
        elif kind == "REGISTER_BROKER_RECORD":
            if seen.get(data["brokerId"]) != data["incarnationId"]:
                seen[data["brokerId"]] = data["incarnationId"]
                made.starts.setdefault(data["brokerId"], []).append((data["brokerEpoch"], at))
            made.fenced.append((data["brokerId"], data["fenced"], at))
        elif kind == "BROKER_REGISTRATION_CHANGE_RECORD" and data.get("fenced"):
            made.fenced.append((data["brokerId"], data["fenced"] > 0, at))
        elif kind in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
            key = names[data["topicId"]], data["topicId"], data["partitionId"]
            if kind == "PARTITION_RECORD":
                state = held[key] = {**data, "recovery": data.get("leaderRecoveryState", 0)}
                epoch = None if takes_over else row["epoch"]
                made.leaders[key] = [[state["leader"], state["leaderEpoch"], epoch, at, None]]
                made.isrs[key] = [(frozenset(state["isr"]), at)]
                continue
            state = held[key]
            before = dict(state)
            state["isr"] = data.get("isr", state["isr"])
            state["recovery"] = data.get("leaderRecoveryState", state["recovery"])
            if "leader" in data:
                state["leader"] = data["leader"]
                state["leaderEpoch"] += 1
                made.leaders[key][-1][4] = at
                made.leaders[key].append([state["leader"], state["leaderEpoch"], row["epoch"], at, None])
            if frozenset(state["isr"]) != made.isrs[key][-1][0]:
                made.isrs[key].append((frozenset(state["isr"]), at))
            if state["recovery"] == 1 and before["recovery"] == 0:
                made.unclean.add((key[0], key[2], state["leaderEpoch"]))
    return made
