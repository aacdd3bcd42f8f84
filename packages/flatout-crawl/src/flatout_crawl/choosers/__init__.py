"""Ways to choose the next link: baselines, the learned scorer, and the contest between them."""
