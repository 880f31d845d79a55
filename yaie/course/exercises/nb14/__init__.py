"""Notebook 14: a padded tile, a tree with its barriers, warp shuffles, RMSNorm."""

NOTEBOOK = "14_memory_barriers_warps"
