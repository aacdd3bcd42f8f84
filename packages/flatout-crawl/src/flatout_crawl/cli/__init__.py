"""`flatout crawl`: the commands that this distribution adds to flatout."""
