"""Requests under rules: scope, robots.txt, politeness, addresses that may be dialled, and the
books.
"""
