"""Notebook 24: an mbarrier, a copy by TMA, its swizzle, a ring of stages."""
