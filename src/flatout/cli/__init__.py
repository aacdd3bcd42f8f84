"""One module per verb; thin."""
