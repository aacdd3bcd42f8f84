"""From observation to order: networks, action distributions, and the bundle that holds all a policy
needs.
"""
