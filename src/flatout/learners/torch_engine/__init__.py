"""The learner on PyTorch: the same program, rates and state, driven by Python."""
