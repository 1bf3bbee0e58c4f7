"""Three brokers at ports 19092 to 19094 and a topic, until Ctrl-C: python examples/live_cluster.py [FIRST-PORT]"""

import contextlib
import sys
import time

from channel import EmbeddedCluster, ScriptedController

base_port = int(sys.argv[1]) if len(sys.argv) > 1 else 19092
with EmbeddedCluster(3, base_port=base_port) as cluster, ScriptedController(cluster) as controller:
    controller.create_topic("orders", partitions=3, replication_factor=2, topic_id=bytes(range(16)))
    controller.wait_all()
    print("three brokers know of topic orders; Ctrl-C ends them", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
