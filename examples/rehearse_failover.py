"""Rehearse the failover of one broker out of 300 that host 20,000 partitions: python examples/rehearse_failover.py"""

import time

from channel import EmbeddedCluster, ScriptedController

with EmbeddedCluster(300) as cluster, ScriptedController(cluster) as controller:
    controller.create_topic("orders", partitions=20_000, replication_factor=3)
    controller.wait_all()
    cluster.kill(7)
    began = time.monotonic()
    controller.mark_dead(7)
    controller.wait_all()
    print(f"the other brokers know the new leaders after {time.monotonic() - began:.2f} s")
