"""Notebook 06: the scheduler's step, admission, preemption and ending."""
