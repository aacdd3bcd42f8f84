"""What would it have earned, and can we believe it."""
