"""Notebook 14: a padded tile, trees and their barriers, warp shuffles, RMSNorm, a fence."""

NOTEBOOK = "14_memory_barriers_warps"
