"""Wait as a producer does until a topic is known, and learn of its next leader: python examples/await_topic.py"""

import threading
import time

from channel import EmbeddedCluster, MetadataSender, ScriptedController
from channel.metadata.cluster_metadata import LeaderUpdate
from kproto.types import TopicPartition

with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
    bootstrap = [(member.host, member.port) for member in cluster]
    with MetadataSender(bootstrap) as sender:
        # Anybody may create the topic while the caller waits for it: the sender thread asks again and again.
        threading.Timer(0.2, controller.create_topic, ("orders",), {"assignment": [[0, 1], [1, 2]]}).start()
        count, partition = sender.wait_for_topic("orders", 0)
        print(f"orders has {count} partitions, broker {partition.leader} leads the first")

        # A broker that does not lead a partition any more names the leader in its response to the producer.
        controller.elect("orders", 0, leader=1)
        sender.metadata.update_partition_leadership(
            {TopicPartition("orders", 0): LeaderUpdate(leader=1, leader_epoch=1)}
        )
        count, partition = sender.wait_for_topic("orders", 0)
        print(f"broker {partition.leader} leads it since leader epoch {partition.leader_epoch}")

        # A response may name a newer leader epoch alone: the sender thread asks for the leader.
        controller.elect("orders", 0, leader=0)
        sender.learn_epoch(TopicPartition("orders", 0), 2)
        while (leader := sender.leader(TopicPartition("orders", 0))) is None:
            time.sleep(0.01)
        print(f"broker {leader.id} leads it again")
