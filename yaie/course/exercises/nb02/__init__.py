"""Notebook 02: a token trie's lookup, and a radix tree's match, split and evict."""
