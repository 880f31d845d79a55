"""From a `.cu` file to Python functions: compiled by nvcc or emulated, and kept for next time."""
