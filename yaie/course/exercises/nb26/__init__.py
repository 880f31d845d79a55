"""Notebook 26: flash attention on Hopper: a mask and weights in registers, turns, an order."""
