"""All benchmarks, and the peers that are measured beside flatout."""
