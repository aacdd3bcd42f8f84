"""Which settings: a space, lanes that try it, and a study that never loses a trial."""
