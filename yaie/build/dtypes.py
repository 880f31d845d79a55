"""What a launcher's name ends in for each dtype, and how far its results may be off. No torch."""

SUFFIXES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
ROUNDING = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # two roundings of each dtype
