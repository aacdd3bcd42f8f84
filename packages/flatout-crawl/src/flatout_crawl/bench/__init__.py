"""`flatout bench slow`: crawls that wait, beside other libraries."""
