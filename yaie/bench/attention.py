"""The section `attention` of `yaie bench engine`: kernels of attention beside each other."""

import warnings

import torch
from torch.nn.attention import SDPBackend

from yaie.bench.bench import Bench
from yaie.bench.cases import Draw
from yaie.bench.cases_attention import prefill, sdpa
from yaie.bench.info import kernel_info
from yaie.bench.oracle import WrongAnswer
from yaie.bench.protocol import (
    Call,
    CpuClock,
    clock_for,
    compare,
    relative_error,
    row_error,
    tensors,
    why_wrong,
)
from yaie.bench.record import rounded

OURS = "this engine"
TORCH = {  # of scaled_dot_product_attention
    "FlashAttention": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
ABSENT = ("No available kernel", "No viable backend")  # torch's words, on a GPU and on a CPU


def attention(bench: Bench) -> None:
    """Causal attention of one prompt over itself, by this engine's kernel and by torch's.

    The heads are the model's, each with its own keys and values, as torch's kernels want them. A
    row has the milliseconds of each kernel and its error against float64; None and no error where
    torch has no such kernel for the device, or no memory for its scores.
    """
    config = bench.llm().engine.config
    heads, head_dim = config.num_attention_heads, config.head_dim
    clock = clock_for(bench.device) if bench.on_gpu else CpuClock(now=bench.clock.now)
    for prompt in bench.sizes.lengths:
        case = {"prompt": prompt, "heads": heads, "head_dim": head_dim}
        if not bench.record.find("attention", case):
            bench.say(f"attention of a prompt of {prompt} tokens")
            calls, errors = _right(bench, prompt, heads, head_dim)
            found = {name: timing.median for name, timing in compare(calls, clock).items()}
            times = {name: found.get(name) for name in (OURS, *TORCH)}
            bench.record.add("attention", rounded(case | {"requests": 1} | times | errors))


def _right(
    bench: Bench, prompt: int, heads: int, head_dim: int
) -> tuple[dict[str, Call], dict[str, float]]:
    """A call of each kernel that is available, and the relative error of each.

    Raises:
        WrongAnswer: a result is not that of float64, beyond rounding.
    """
    case = prefill(1, heads, prompt, head_dim, True, bench.torch_dtype)
    arguments = case.arguments(Draw.on(bench.device, bench.torch_dtype))
    wanted = case.oracle(*arguments)[0]
    entries = kernel_info(bench.device)
    own = next(e.backend for e in entries if e.operator == case.operator and e.chosen)
    ways = {OURS: case.ours(own)} | {name: sdpa(kernel, 1) for name, kernel in TORCH.items()}
    calls, errors = {}, {}
    for name, prepare in ways.items():
        call = prepare(*arguments)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns before it raises
                got = tensors(call())[0].reshape(wanted.shape)
        except RuntimeError as failure:
            is_absent = str(failure).startswith(ABSENT)
            if name not in TORCH or not (is_absent or isinstance(failure, torch.OutOfMemoryError)):
                raise
            why = "torch has no such kernel here" if is_absent else str(failure).splitlines()[0]
            bench.say(f"{name}: {why}")
            continue
        error = relative_error(got, wanted)
        if reason := why_wrong(error, row_error(got, wanted), bench.torch_dtype):
            raise WrongAnswer(f"attention of {prompt} tokens, {name}: {reason}")
        calls[name], errors[f"error of {name}"] = call, error
    return calls, errors
