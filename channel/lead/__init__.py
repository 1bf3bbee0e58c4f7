"""The controller's decisions: its election, events, state machines, topics, reassignments, brokers, administration."""
