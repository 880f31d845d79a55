"""Operators of the engine: one module a family, each with its checks and its dispatch."""
