"""Price history as one checked, aligned array."""
