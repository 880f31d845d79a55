"""Exercises of notebook 01: attention, rotary positions, and a layer with a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaie.course.checks.nb01.attention import check_attention, draw_weights
from yaie.course.checks.nb01.block import check_forward, draw_steps
from yaie.course.checks.nb01.rotary import check_apply_rotary, draw_angles
from yaie.course.core.manifest import Exercise

NOTEBOOK = "01_attention_and_kv_cache"


def attend_paged(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Attention over the paged cache that computes every prompt with the learner's."""
    from functools import partial

    from yaie.ops.reference.attention import paged_attention

    return partial(paged_attention, attention=attention)


EXERCISES = [
    Exercise(
        id="01.1",
        notebook=NOTEBOOK,
        slug="attention",
        title="Attention: causal, grouped, with its log-sum-exp",
        target="yaie.ops.reference.attention:attention",
        task=(
            "Queries, keys and values of one sequence arrive. Score every key for every query, "
            "hide the keys that a query must not see, turn the scores into weights, and average "
            "the values with them. Return the output, and for each row the logarithm of the sum "
            "of exp(score), which later notebooks need to merge partial results. Use whatever "
            "torch offers: `einsum`, `softmax`, `logsumexp`. The file imports the reference's two "
            "helpers; `causal_mask` is worth a look, `safe_softmax` is not needed here."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "It is softmax(q kᵀ · scale) v for each head by itself. Everything else is bringing "
            "the heads together with their keys, and a mask.",
            "For each head and query the weights of the keys sum to 1. The queries are the last "
            "tokens of the sequence: with 2 queries and 5 keys, the first query is token 3 and "
            "sees keys 0 to 3. Query heads 0 to group - 1 read KV head 0, the next `group` heads "
            "KV head 1.",
            "One line for each step, in float32 (a float64 input may stay what it is):\n"
            "    k, v = (x.repeat_interleave(..., dim=1) for x in (k, v))\n"
            '    scores = torch.einsum("qhd,khd->hqk", ...) * scale\n'
            "    if causal: scores = scores.masked_fill(~mask, ...)   # [queries, keys]\n"
            "    weights = scores.softmax(dim=...)\n"
            '    out = torch.einsum("hqk,khd->qhd", ...)\n'
            "    lse = scores.logsumexp(dim=...)\n"
            "`causal_mask(num_q, num_k)` gives the mask. The log-sum-exp has the "
            "heads last, and the output the dtype of q.",
        ),
        proves=(
            "It agrees with a float64 oracle on 72 shapes, with and without a past, grouped and "
            "not, with large scores and in half precision."
        ),
        check=check_attention,
        picture=draw_weights,
        operator="paged_attention",
        fit=attend_paged,
    ),
    Exercise(
        id="01.2",
        notebook=NOTEBOOK,
        slug="apply_rotary",
        title="Turn queries and keys by their positions",
        target="yaie.ops.reference.rotary:apply_rotary",
        task=(
            "Every head of every token is a list of points in a plane: component i and component "
            "i + head_dim / 2 are the coordinates of point i. Turn each point by the angle that "
            "the tables give for the token's position. The tokens may belong to several sequences "
            "and need not begin at 0, so look the angles up at `positions`."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "A point (x, y) turned by the angle a is (x cos a - y sin a, y cos a + x sin a).",
            "Row p of the tables belongs to position p, and column i to pair i. All heads of a "
            "token turn alike. Position 0 changes nothing, and no position changes the length of "
            "a head.",
            "Four lines:\n"
            "    cos, sin = cos[positions], sin[positions]     # and an axis for the heads\n"
            "    first, second = x.chunk(2, dim=-1)\n"
            "    rotated = torch.cat((..., ...), dim=-1)\n"
            "    return rotated in the dtype of x\n"
            "The axis: `.unsqueeze(1)` makes [tokens, head_dim / 2] into "
            "[tokens, 1, head_dim / 2].",
        ),
        proves=(
            "It agrees with a product of complex numbers at 66 sets of positions, at position "
            "8191, and in half precision to the last digit."
        ),
        check=check_apply_rotary,
        picture=draw_angles,
        operator="rotary",
    ),
    Exercise(
        id="01.3",
        notebook=NOTEBOOK,
        slug="forward",
        title="An attention layer with a KV cache",
        target="yaie.course.lessons.attention_block:RadixAttentionBlock.forward",
        task=(
            "Put the layer together: project the new tokens to queries, keys and values, rotate "
            "queries and keys by their positions, put the keys and values behind those of the "
            "past, attend, and project back. The layers are `self.q_proj`, `self.k_proj`, "
            "`self.v_proj` and `self.o_proj`; the sizes `self.num_heads`, `self.num_kv_heads` and "
            "`self.head_dim`; the rotary tables `self.cos` and `self.sin`. `apply_rotary` and "
            "`attention` take one sequence each, without the batch axis."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "New tokens know the past by its keys and values alone. So a step projects and "
            "rotates only what is new, and the past comes back unchanged with the new behind it.",
            "With a past of p tokens, new token i is at position p + i, for its query and its "
            "key. After the call the past holds p + new tokens, KV heads only, keys rotated. "
            "Feeding a sequence whole, or a token at a time, gives the same output.",
            "In this order:\n"
            "    past = 0 or past_key_value[0].shape[1]   # ValueError if tables are too short\n"
            "    positions = torch.arange(past, past + num_tokens)\n"
            "    q = self.q_proj(hidden_states).view(batch, num_tokens, ..., self.head_dim)\n"
            "    # k and v likewise\n"
            "    q = torch.stack([apply_rotary(x, positions, ...) for x in q])   # k likewise\n"
            "    # with a past: k = torch.cat((..., k), dim=1), v likewise\n"
            "    # attention(...)[0] for each sequence of the batch, stacked\n"
            "    out = self.o_proj(out.flatten(2))\n"
            "and return `out`, or `(out, None, (k, v))`.",
        ),
        proves=(
            "However 12 tokens are cut into steps, the output is that of a float64 oracle which "
            "sees them whole."
        ),
        check=check_forward,
        picture=draw_steps,
    ),
]
