"""Controllers that a test or a demonstration directs, the journal of their requests, and scenarios."""
