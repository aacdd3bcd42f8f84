"""A study: trials x splits at once, folds that cannot see each other, and a verdict.

The market is a random walk: nothing can be earned, so whatever wins must be refused.
"""

import flatout

result = flatout.run_study(
    name="walk",
    trials=6,
    timesteps=4096,  # of each trial and split: far too few, but this shall take seconds
    settings={
        "train": {"n_envs": 8, "n_steps": 64, "hidden": [16]},
        "folds": {"groups": 3, "test_groups": 1},
        "search": {
            "finalists": 1,
            "final_seeds": 2,
            "space": {"train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
        },
    },
    progress=False,
)
print("PROMOTABLE" if result.promotable else "NOT PROMOTABLE")
print(result.sentence)
print("the report:", result.page)  # open it in a browser; it needs no network
