"""Notebook 28: latencies from traces, arrivals, and the two knees of a server."""
