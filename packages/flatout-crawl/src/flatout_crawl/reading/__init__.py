"""From the bytes of an answer to a page: text, links, and how relevant it is."""
