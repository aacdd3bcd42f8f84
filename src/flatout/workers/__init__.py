"""Processes and devices: one worker owns one device and advances lanes on it."""
