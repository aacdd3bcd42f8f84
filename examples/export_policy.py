"""A policy for programs that do not know flatout: ONNX, and Stable-Baselines3's own file.

Needs `pip install "flatout[export,sb3]" onnxruntime`.
"""

from pathlib import Path

import numpy as np
import onnxruntime

import flatout


def train_policy(**changes: object) -> Path:
    """The folder of a policy that was trained for a moment."""
    result = flatout.train(
        timesteps=4096,
        settings={"train": {"n_envs": 16, "hidden": [16], **changes}},
        evaluations=1,
        progress=False,
    )
    return result.folder / result.bundles["portfolio-seed0"][0]


written = flatout.export_policy(train_policy(), "onnx", Path("policy.onnx"))
print(written.file, written.meaning)

session = onnxruntime.InferenceSession("policy.onnx")
kinds = {"tensor(double)": np.float64, "tensor(float)": np.float32}
inputs = {
    one.name: np.zeros([n if isinstance(n, int) else 1 for n in one.shape], kinds[one.type])
    for one in session.get_inputs()
}
outputs = dict(
    zip([one.name for one in session.get_outputs()], session.run(None, inputs), strict=True)
)
print("inputs:", {name: value.shape for name, value in inputs.items()})
print("outputs:", {name: value.shape for name, value in outputs.items()})

# Stable-Baselines3 knows flat networks only, as PPO trains them by default
written = flatout.export_policy(train_policy(algorithm="ppo"), "sb3", Path("policy.zip"))
print(written.file, written.meaning)  # stable_baselines3.PPO.load("policy.zip") opens it
