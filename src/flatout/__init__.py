"""flatout."""
