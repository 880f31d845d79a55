"""Operators in plain C++ with OpenMP, for CPUs: `csrc/cpu/`."""
