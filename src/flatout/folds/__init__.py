"""Which bars may teach and which may judge."""
