"""The engine: requests, scheduling, the model's forward pass, sampling, text."""
