"""One slow environment worth having: a polite crawler that finds the pages that matter with few
requests.
"""
