"""Other people's files: policies for ONNX and Stable-Baselines3, scalers for scikit-learn."""
