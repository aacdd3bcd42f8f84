"""One kit for all HTML pages: frame, values, style and charts."""
