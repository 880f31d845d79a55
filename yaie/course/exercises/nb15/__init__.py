"""Notebook 15: a padded tile, trees and their barriers, warp shuffles, RMSNorm, a fence."""
