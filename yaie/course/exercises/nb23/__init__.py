"""Notebook 23: latencies from traces, arrivals, and the two knees of a server."""

NOTEBOOK = "23_serving_and_benchmarks"
