"""Improve a policy from trajectories."""
