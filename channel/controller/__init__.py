"""The controller's sending half: what it knows, what it decides to send, and for each broker a thread that delivers."""
