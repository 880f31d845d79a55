"""Reads keys and no values."""

from yaie.course.lessons.roofline import Work

EXPECT = "A cache has keys and values"


def linear_work(tokens, in_features, out_features, itemsize=2):
    weights = in_features * out_features
    rows = tokens * (in_features + out_features)
    return Work(2 * tokens * weights, itemsize * (weights + rows))


def decode_attention_work(batch, context, num_heads, num_kv_heads, head_dim, itemsize=2):
    cache = batch * context * num_kv_heads * head_dim
    queries = 2 * batch * num_heads * head_dim
    return Work(4 * batch * context * num_heads * head_dim, itemsize * (cache + queries))
