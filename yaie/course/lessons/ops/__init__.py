"""Operators that only lessons use, registered beside the engine's when this package is imported.

Laid out like `yaie.ops`: one module per family with its checks and its dispatch; the plain
functions in `reference`, the kernels in `triton` and `cuda`.
"""

from importlib import import_module

from yaie.ops.registry import declare

ALL = ("reference", "triton", "cuda")
NO_TRITON = ("reference", "cuda")
FAMILIES = {  # module of each back end -> its operators, and the back ends that have them
    "elementwise": {"add": ALL, "add_relu": ALL},
    "rows": {"row_sum": ALL, "softmax": ALL},
    "matrix": {"transpose": NO_TRITON, "matmul": ALL},
    "attention": {"attention": ALL},
    "attention_gradient": {"attention_backward": NO_TRITON},
    "kv": dict.fromkeys(("copy_blocks", "reshape_and_cache_fp8", "gather_kv"), NO_TRITON),
    "metadata": {"prefix_sum": NO_TRITON, "fill_draft_extend_metadata": ALL},
    "radix": {"match_prefixes": NO_TRITON},
    "shared_prefix": {"shared_prefix_attention": NO_TRITON},
    "sampling": {"gumbel_sample": NO_TRITON},
}
TABLE = {
    operator: {backend: f"{__name__}.{backend}.{family}:{operator}" for backend in backends}
    for family, operators in FAMILIES.items()
    for operator, backends in operators.items()
}
TABLE["attention"]["cuda_hopper"] = f"{__name__}.cuda.attention:attention_hopper"
TABLE["attention_backward"]["reference"] = f"{__name__}.reference.flash:attention_backward"
TABLE["matmul"]["triton"] = f"{__name__}.triton.matmul:matmul"
TABLE["fill_draft_extend_metadata"] |= {
    "reference": f"{__name__}.reference.metadata:fill",
    **{
        f"{backend}_{search}": f"{__name__}.{backend}.metadata:fill_{search}"
        for backend in ("cuda", "triton")
        for search in ("linear", "binary")
    },
}
declare(TABLE)

for family in FAMILIES:
    import_module(f"{__name__}.{family}")  # each defines its own operators
