"""A controller's way of sending: the request batch, the messages it makes, and a queue and a send thread for brokers.

Kafka's ``ControllerChannelManager`` and its request batch with ``kproto``'s codec, for any controller:
nothing here decides, and nothing here knows ZooKeeper.

1. ``context``: the brokers and partitions that a batch reads; ``messages`` makes requests of them.
2. ``batch`` collects changes, and makes one request of each kind for each broker.
3. ``encoded_requests``: a request that is encoded once, for one broker or for many.
4. ``manager`` has a queue for each broker, and the send threads; ``send_thread`` delivers, one request at a time.
5. ``state_change_log``: Kafka's log of what was sent and answered.
"""
