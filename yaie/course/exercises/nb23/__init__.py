"""Notebook 23: gaps of a timeline, what a profile predicts, faults that a sanitizer reports."""
