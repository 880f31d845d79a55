"""Notebook 09: counted work, the roofline, and how many thread blocks are resident."""
