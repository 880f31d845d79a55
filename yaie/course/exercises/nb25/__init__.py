"""Notebook 25: latencies from traces, arrivals, and the two knees of a server."""

NOTEBOOK = "25_serving_and_benchmarks"
