"""Benchmarks: workloads, the protocol of measuring, and what is compared with what."""
