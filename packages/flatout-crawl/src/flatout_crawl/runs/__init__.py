"""A crawl's folder: what was asked, what was fetched, how to go on, and its report."""
