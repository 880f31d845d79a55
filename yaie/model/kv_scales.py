"""An 8-bit cache: the scales of its keys and values, folded into the weights.

An e4m3 has four bits of exponent and three of fraction: from 2⁻⁶ to 448 its relative error is at
most 1/16, wherever a number lies. A scale has only to bring numbers into that range, and a power of
two does it without an error of its own. Each KV head has one for its keys and one for its values.
They are found once, at the start, so what is cached never has to be stored again.

With keys divided by s and queries multiplied by s the scores are the same; with values divided by
s, so is the output times s. Both factors go into the projections that make queries, keys and values
and that take the output: no operator knows of scales, and a rank's heads have theirs. vLLM and
SGLang keep them beside the cache instead, as `k_scale` and `v_scale`, 1 by default.
"""

from dataclasses import replace

import torch

from yaie.model.batch import Batch
from yaie.model.linear import Linear
from yaie.model.llama import Llama
from yaie.ops.checks import FP8

TOKENS = 256  # that are computed to see how large keys and values are
LARGEST = 5  # the largest of them is brought to between 2⁵ and 2⁶, an eighth of what e4m3 holds


@torch.inference_mode()
def fold_scales(model: Llama) -> None:
    """Make a model's cache one of e4m3. Its logits over another cache stay as they are, bit by bit.

    Raises ValueError if the weights are in groups of integers, which have scales of their own.
    """
    first, config = model.layers[0].qkv, model.config
    if any(part.form for part in first.rows):
        raise ValueError(
            'kv_cache_dtype "fp8" needs weights in float32, bfloat16 or float16, got dtype '
            f"{first.rows[0].form!r}"
        )
    group, dim = config.num_attention_heads // config.num_key_value_heads, config.head_dim
    exponents = LARGEST + 1 - torch.frexp(_largest(model)).exponent  # [2, layers, KV heads]
    factors = torch.exp2(exponents.float()).to(model.dtype)
    for layer, keys, values in zip(model.layers, *factors, strict=True):
        queries, outputs = ((1 / factor).repeat_interleave(group) for factor in (keys, values))
        rows = torch.cat([queries, keys, values]).repeat_interleave(dim)
        _multiply(layer.qkv, rows[:, None])
        if layer.qkv.bias is not None:
            layer.qkv.bias.mul_(rows)
        _multiply(layer.output, outputs.repeat_interleave(dim)[None])
    model.cache_dtype = FP8
    model.pack()


def _largest(model: Llama) -> torch.Tensor:
    """The largest key and value of each head, `[2, layers, KV heads]`, over tokens from all of the
    vocabulary: those that begin a sequence have the largest keys."""
    config, device = model.config, model.embed.device
    count = min(TOKENS, config.max_position_embeddings)
    shape = (2, config.num_hidden_layers, 1, count, config.num_key_value_heads, config.head_dim)
    pools = torch.zeros(shape, dtype=model.dtype, device=device)
    tokens = torch.arange(count, device=device) * config.vocab_size // count
    model.hidden(Batch.of_prompt(tokens, count), *map(list, pools))
    return pools.abs().amax(dim=(2, 3, 5)).float()


def _multiply(linear: Linear, factor: torch.Tensor) -> None:
    """Multiply the weight by a factor for each row, `[rows, 1]`, or each column, `[1, columns]`."""
    if linear.weight is not None:
        linear.weight.mul_(factor)  # `rows`, if there are any, lie in it
        return
    counts = [len(part.data) for part in linear.rows]
    factors = factor.expand(sum(counts), -1).split(counts)
    pairs = zip(linear.rows, factors, strict=True)
    linear.rows = [replace(part, data=part.data * mine) for part, mine in pairs]
