"""The lessons' operators in plain PyTorch."""
