"""Notebook 21: softmax statistics, a draw by Gumbel's trick, top-p without a sort."""
