"""What every kernel is compared with, in plain PyTorch: one file for each family of operators."""
