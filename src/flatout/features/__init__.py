"""What the agent may know at bar t: causal, scaled by training rows only, saved with the policy."""
