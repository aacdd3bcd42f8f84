"""From a request to saved policies."""
