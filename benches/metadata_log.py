"""What does KRaft's metadata log cost: a snapshot of a million partitions, its tables, and 100 MB of log?

    python benches/metadata_log.py [--partitions 1000000] [--log-mb 100] [--rounds 2] [--quick] [--json FILE]

- image: ``read`` and ``image`` of a checkpoint with that many partitions, of three replicas with directories.
- tables: ``kproto.tables.read`` of the same file, beyond what the image took.
- log: the image of a log that writes changes of ISRs and leaders in batches of 1 to 20 records, and a batch of a
  NoOpRecord after each, as an active controller does.

CPU time and peak memory are those of a whole process, imports included. The figures go to
benches/results/metadata.json; --quick makes everything small, and judges nothing. Ends with 1 if a limit is missed or a
program fails.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from figures import Goal, Round, finish, options_of
from measure import machine

from kproto.metadata_log.batches import encode_batch
from kproto.metadata_log.records import (
    ControlRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    encode_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.metadata_log.records import MetadataRecord

_FORMS = 1000
_HEAD_BYTES = 3
_PER_TOPIC = 100
_PER_BATCH = 1024
_BROKERS = 50
_MOST_CHANGES = 20
_TIME_MS = 1_800_000_000_000

_PROGRAMS = {
    "image": "from kproto.metadata_log import files, finding, image; import sys; made = image.Image();"
    "steps = files.read(finding.find(sys.argv[1:])[0]).steps();"
    "[made.apply(each.record) for source, _ in steps for each in source.records() if not each.is_control];"
    "print(sum(len(topic.partitions) for topic in made.topics.values()))",
    "tables": "from kproto.tables import read; import sys; print(read(*sys.argv[1:])['partition_states'].num_rows)",
}


def goals() -> list[Goal]:
    """The rows."""
    return [
        Goal("metadata", "image of a snapshot", "1,000,000 partitions", "CPU-s", "image", limit=10),
        Goal("metadata", "image, peak memory", "1,000,000 partitions", "MB", "image MB", limit=1074),
        Goal("metadata", "tables, beyond the image", "1,000,000 partitions", "CPU-s", "tables", limit=30),
        Goal("metadata", "tables, peak memory", "1,000,000 partitions", "MB", "tables MB"),
        Goal("metadata", "image of a log", "100 MB", "CPU-s", "log", limit=20),
        Goal("metadata", "image of a log, peak memory", "100 MB", "MB", "log MB"),
    ]


class Cost(NamedTuple):
    """What a program took: CPU time in s and peak memory in MB; and the number that it printed."""

    cpu_s: float
    peak_mb: float
    number: int


def cost(program: str, path: Path) -> Cost:
    """Run a program to its end.

    Raises:
        subprocess.SubprocessError: It failed.
    """
    with subprocess.Popen([sys.executable, "-c", _PROGRAMS[program], str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.SubprocessError(f"{program}: exit code {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, int(printed))


def _value(record: MetadataRecord) -> tuple[None, bytes]:
    return None, encode_record(record)


def _control(record: ControlRecord) -> tuple[bytes, bytes]:
    return b"\0\0" + record.record_type.to_bytes(2, "big"), record.encode(record.version)


@cache
def _topic_id(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def _directory(broker: int) -> bytes:
    return random.Random(-1 - broker).randbytes(16)


def _placed(value: bytes, partition: int, topic_id: bytes) -> tuple[None, bytes]:
    """A partition's record with another partition in it: these are the first fields, at a fixed place."""
    return None, value[:_HEAD_BYTES] + partition.to_bytes(4, "big") + topic_id + value[_HEAD_BYTES + 20 :]


def image_records(partitions: int) -> Iterator[tuple[None, bytes]]:
    """The records of an image: topics of 100 partitions on 50 brokers."""
    chosen = random.Random(1)
    forms = []
    for _ in range(_FORMS):
        replicas = chosen.sample(range(_BROKERS), 3)
        record = PartitionRecord(
            replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=chosen.randrange(50),
            partition_epoch=chosen.randrange(200), directories=[_directory(broker) for broker in replicas], version=1,
        )  # fmt: skip
        forms.append(encode_record(record))
    for number in range(partitions):
        topic, partition = divmod(number, _PER_TOPIC)
        topic_id = _topic_id(topic)
        if not partition:
            yield _value(TopicRecord(name=f"topic-{topic:05}", topic_id=topic_id))
        yield _placed(chosen.choice(forms), partition, topic_id)


def write_snapshot(directory: Path, partitions: int) -> Path:
    """Write a checkpoint; gives its path."""
    path = directory / f"{partitions:020}-0000000001.checkpoint"
    with path.open("wb") as file:
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=_TIME_MS)
        file.write(encode_batch([_control(header)], time_ms=_TIME_MS, control=True))
        offset = 1
        held: list[tuple[None, bytes]] = []
        for value in image_records(partitions):
            held.append(value)
            if len(held) == _PER_BATCH:
                file.write(encode_batch(held, base_offset=offset, time_ms=_TIME_MS))
                offset, held = offset + len(held), []
        file.write(encode_batch(held, base_offset=offset, time_ms=_TIME_MS) if held else b"")
        footer = [_control(SnapshotFooterRecord(version=0))]
        file.write(encode_batch(footer, base_offset=offset + len(held), time_ms=_TIME_MS, control=True))
    return path


def write_log(directory: Path, size: int) -> Path:
    """Write a segment of at least that many bytes; gives its path."""
    path = directory / f"{0:020}.log"
    chosen = random.Random(2)
    partitions = 10_000
    forms = []
    for _ in range(_FORMS):
        isr = chosen.sample(range(_BROKERS), chosen.randint(1, 3))
        record = PartitionChangeRecord(isr=isr, version=1)
        if chosen.random() < 0.5:
            record.leader = isr[0]
        forms.append(encode_record(record))
    no_op = [_value(NoOpRecord())]
    with path.open("wb") as file:
        offset, time_ms = 0, _TIME_MS
        waiting = list(image_records(partitions))
        while file.tell() < size:
            batch, waiting = waiting[:_PER_BATCH], waiting[_PER_BATCH:]
            for _ in range(0 if batch else chosen.randint(1, _MOST_CHANGES)):
                topic, partition = divmod(chosen.randrange(partitions), _PER_TOPIC)
                batch.append(_placed(chosen.choice(forms), partition, _topic_id(topic)))
            for each in (batch, no_op):
                time_ms += 250
                file.write(encode_batch(each, base_offset=offset, time_ms=time_ms))
                offset += len(each)
    return path


def measured(snapshot: Path, log: Path, partitions: int) -> Round:
    """One run of each."""
    image, tables, of_log = cost("image", snapshot), cost("tables", snapshot), cost("image", log)
    if (image.number, tables.number) != (partitions, partitions):
        raise subprocess.SubprocessError(f"{image.number} and {tables.number} partitions were read of {partitions}")
    return {
        "image": image.cpu_s,
        "image MB": image.peak_mb,
        "tables": tables.cpu_s - image.cpu_s,
        "tables MB": tables.peak_mb,
        "log": of_log.cpu_s,
        "log MB": of_log.peak_mb,
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--partitions", type=int, default=1_000_000, help="of the snapshot")
    arguments.add_argument("--log-mb", type=int, default=100, help="of the log")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--quick", action="store_true", help="small files, one round, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    if options.quick:
        options.partitions, options.log_mb, options.rounds = 10_000, 2, 1
    at_start = machine()
    rounds: list[Round] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        snapshot = write_snapshot(Path(directory), options.partitions)
        log = write_log(Path(directory), options.log_mb * 1_000_000)
        for _ in range(options.rounds):
            try:
                rounds.append(measured(snapshot, log, options.partitions))
            except (subprocess.SubprocessError, OSError) as e:
                failures.append(str(e))
    settings = {"partitions": options.partitions, "log_mb": options.log_mb}
    return finish("metadata", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
