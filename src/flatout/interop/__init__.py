"""Other people's files and ways: policies for Stable-Baselines3 and ONNX, scalers for scikit-learn, SB3's `PPO`."""
