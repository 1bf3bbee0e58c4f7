"""A node of a real cluster that may be elected as its controller: alone, or as a broker of a fleet."""
