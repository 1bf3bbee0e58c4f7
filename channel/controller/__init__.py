"""The controller: its election and context, its decisions, and the channels and send threads to its brokers."""
