"""Pause, reassign and kill real brokers: python examples/rehearse_real_brokers.py ZOOKEEPER TOPIC ID=PID ID=PID ..."""

import os
import signal
import subprocess
import sys
import time

from channel import ControllerNode, PcapngRecorder
from channel.zookeeper import znodes
from kproto.types import TopicPartition

zookeeper, topic, *brokers = sys.argv[1:]
pids = {int(broker): int(pid) for broker, pid in (each.split("=") for each in brokers)}
first, second, *others = pids  # the topic has a replica on each of them
tp = TopicPartition(topic, 0)
with PcapngRecorder("rehearsal.pcapng") as recorder, ControllerNode(1000, zookeeper, recorder=recorder) as node:

    def await_isr(*isr: int) -> None:
        """Wait until the partition has this ISR."""
        while set(znodes.decode_partition_state(tp, session.get(path)[0], 0).leader_and_isr.isr) != set(isr):
            time.sleep(0.1)

    session, path = node.controller.session, znodes.partition_state_path(tp)
    while not node.controller.is_active:  # any broker may win the election too
        session.ensure(znodes.CONTROLLER)
        session.delete(znodes.CONTROLLER)
        time.sleep(2)
    os.kill(pids[first], signal.SIGSTOP)
    await_isr(second, *others)
    os.kill(pids[first], signal.SIGCONT)
    await_isr(*pids)
    session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({tp: (second, *others)}))
    await_isr(second, *others)
    os.kill(pids[second], signal.SIGKILL)
    await_isr(*others)
    time.sleep(2)  # the last requests are answered
sys.exit(subprocess.call([sys.executable, "-m", "kproto", "doctor", "rehearsal.pcapng", "--fail-on", "warning"]))
