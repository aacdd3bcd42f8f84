"""Stable-Baselines3's door: `PPO` with its arguments, callbacks and files, and flatout's engines
behind it.
"""
