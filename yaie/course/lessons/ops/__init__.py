"""Operators that only lessons use, registered beside the engine's when this package is imported.

Laid out like `yaie.ops`: one module per family with its checks and its dispatch; the plain
functions in `reference`, the kernels in `triton` and `cuda`.
"""

from __future__ import annotations

from yaie.ops.registry import declare

declare(
    {
        "add": {
            "reference": "yaie.course.lessons.ops.reference.elementwise:add",
            "triton": "yaie.course.lessons.ops.triton.elementwise:add",
            "cuda": "yaie.course.lessons.ops.cuda.elementwise:add",
        },
        "add_relu": {
            "reference": "yaie.course.lessons.ops.reference.elementwise:add_relu",
            "triton": "yaie.course.lessons.ops.triton.elementwise:add_relu",
            "cuda": "yaie.course.lessons.ops.cuda.elementwise:add_relu",
        },
        "transpose": {
            "reference": "yaie.course.lessons.ops.reference.matrix:transpose",
            "cuda": "yaie.course.lessons.ops.cuda.matrix:transpose",
        },
        "row_sum": {
            "reference": "yaie.course.lessons.ops.reference.rows:row_sum",
            "triton": "yaie.course.lessons.ops.triton.rows:row_sum",
            "cuda": "yaie.course.lessons.ops.cuda.rows:row_sum",
        },
        "softmax": {
            "reference": "yaie.course.lessons.ops.reference.rows:softmax",
            "triton": "yaie.course.lessons.ops.triton.rows:softmax",
            "cuda": "yaie.course.lessons.ops.cuda.rows:softmax",
        },
        "matmul": {
            "reference": "yaie.course.lessons.ops.reference.matrix:matmul",
            "triton": "yaie.course.lessons.ops.triton.matmul:matmul",
            "cuda": "yaie.course.lessons.ops.cuda.matrix:matmul",
        },
        "attention_backward": {
            "reference": "yaie.course.lessons.ops.reference.attention_gradient:attention_backward",
            "cuda": "yaie.course.lessons.ops.cuda.flash_backward:attention_backward",
        },
        "reshape_and_cache_fp8": {
            "reference": "yaie.course.lessons.ops.reference.kv:reshape_and_cache_fp8",
            "cuda": "yaie.course.lessons.ops.cuda.kv:reshape_and_cache_fp8",
        },
        "gather_kv": {
            "reference": "yaie.course.lessons.ops.reference.kv:gather_kv",
            "cuda": "yaie.course.lessons.ops.cuda.kv:gather_kv",
        },
        "gather_kv_fp8": {
            "reference": "yaie.course.lessons.ops.reference.kv:gather_kv_fp8",
            "cuda": "yaie.course.lessons.ops.cuda.kv:gather_kv_fp8",
        },
        "prefix_sum": {
            "reference": "yaie.course.lessons.ops.reference.metadata:prefix_sum",
            "cuda": "yaie.course.lessons.ops.cuda.metadata:prefix_sum",
        },
        "fill_draft_extend_metadata": {
            "reference": "yaie.course.lessons.ops.reference.metadata:fill",
            "triton": "yaie.course.lessons.ops.triton.metadata:fill_draft_extend_metadata",
            "cuda": "yaie.course.lessons.ops.cuda.metadata:fill_draft_extend_metadata",
            "cuda_linear": "yaie.course.lessons.ops.cuda.metadata:fill_linear",
            "cuda_binary": "yaie.course.lessons.ops.cuda.metadata:fill_binary",
        },
        "match_prefixes": {
            "reference": "yaie.course.lessons.ops.reference.radix:match_prefixes",
            "cuda": "yaie.course.lessons.ops.cuda.radix:match_prefixes",
        },
        "gumbel_sample": {
            "reference": "yaie.course.lessons.ops.reference.sampling:gumbel_sample",
            "cuda": "yaie.course.lessons.ops.cuda.sampling:gumbel_sample",
        },
    }
)

from yaie.course.lessons.ops import (  # noqa: E402  # each defines its own operators
    attention_gradient,
    elementwise,
    kv,
    matrix,
    metadata,
    radix,
    rows,
    sampling,
)

__all__ = [
    "attention_gradient",
    "elementwise",
    "kv",
    "matrix",
    "metadata",
    "radix",
    "rows",
    "sampling",
]
