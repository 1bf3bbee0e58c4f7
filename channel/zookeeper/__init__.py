"""ZooKeeper as Kafka uses it: the session, the znodes and their contents, and writes fenced by the controller epoch."""
