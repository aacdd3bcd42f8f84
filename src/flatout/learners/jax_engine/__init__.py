"""The fused learner: rollout, advantages and updates of all lanes in one compiled JAX program."""
