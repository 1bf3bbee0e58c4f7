"""The broker's side of the control plane: its state, its answers to requests, and many brokers in one process."""
