"""Environments that wait: their waits overlap in one event loop, and the learner works
meanwhile.
"""
