"""Other people's files: policies for Stable-Baselines3 and ONNX, scalers for scikit-learn. Written only, never read."""
