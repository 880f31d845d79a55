"""What the notebooks say of NVIDIA's tools, measured on a machine that has them."""
