"""`flatout.toml` as typed tables, and how their values are put together."""
