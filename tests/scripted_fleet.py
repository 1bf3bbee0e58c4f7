"""A fleet without ZooKeeper, for the tests of its steps and commands."""

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks
from channel.rehearsal.scripted_controller import ScriptedController


class ScriptedFleet:
    """Embedded brokers whose controller is directed by the steps themselves, in place of ZooKeeper's watches."""

    def __init__(self, count):
        self.on_answered = None
        self.delays = {}
        self.left = []
        self.controller_id = None
        self.cluster = EmbeddedCluster(count, hooks=lambda i: BrokerHooks(answered=lambda c, q, a: self.report(i, c)))

    def report(self, broker_id, context):
        if self.on_answered is not None:
            self.on_answered(broker_id, context)

    def __enter__(self):
        self.cluster.start()
        self.controller = ScriptedController(self.cluster).start()
        self.controller.wait_all()
        return self

    def __exit__(self, *_):
        self.controller.close()
        self.cluster.close()

    def __iter__(self):
        return iter(self.cluster)

    def __getitem__(self, broker_id):
        return self.cluster[broker_id]

    def kill(self, broker_id):
        self.cluster.kill(broker_id)
        self.controller.mark_dead(broker_id)

    def restart(self, broker_id):
        self.cluster.restart(broker_id)
        self.controller.register(self.cluster[broker_id])

    def pause(self, broker_id):
        self.cluster.pause(broker_id)

    def resume(self, broker_id):
        self.cluster.resume(broker_id)

    def slow(self, broker_id, delay_s):
        self.delays[broker_id] = delay_s

    def shut_down(self, *broker_ids):
        self.left += broker_ids
        for broker_id in broker_ids:
            self.kill(broker_id)
