"""The language model: configuration, weights, tokenizer, and a Llama on a paged cache."""
