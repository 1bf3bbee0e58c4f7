"""The broker's side of the control plane: its state, its answers, and many brokers in one process."""
