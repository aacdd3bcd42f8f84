"""Sites to learn on: made-up ones, recorded ones and documentation, with latencies drawn or
served.
"""
