"""The broker's side of the control plane: what it keeps, how it answers, and many of them in one process."""
