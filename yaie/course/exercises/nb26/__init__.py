"""Notebook 26: flash attention on Hopper: a mask and weights in registers, turns, an order."""

NOTEBOOK = "26_hopper_flash_attention"
