"""The check of attention."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from yaie.course.checks.nb01.oracle import (
    NO_RETURN,
    NOT_GROUPED,
    dense,
    kv_heads_of,
    random_tensor,
    visible,
)
from yaie.course.core.expect import close, equal, fail, given, short

# queries, keys, heads, KV heads, head_dim, causal: each row brings one new thing
CASES = [
    (3, 3, 1, 1, 4, False),  # softmax(q k^T / sqrt(head_dim)) v and nothing else
    (4, 4, 1, 1, 4, True),  # a mask
    (2, 5, 1, 1, 4, True),  # a past
    (3, 3, 2, 2, 4, True),  # heads
    (3, 4, 6, 2, 8, True),  # grouped heads
    (2, 3, 4, 1, 6, False),  # one KV head for all
    (1, 7, 9, 3, 64, True),  # a decode step of SmolLM2-135M
]


def check_attention(attention: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    new = partial(random_tensor, generator)
    for num_q, num_k, heads, kv, dim, causal in CASES:
        compare(attention, new(num_q, heads, dim), new(num_k, kv, dim), new(num_k, kv, dim), causal)
    check_scale(attention, new)
    check_large_scores(attention, new)
    check_dtypes(attention, new)
    check_defaults(attention, new)
    drawn = random.Random(0)
    for _ in range(60):
        kv, group, dim = drawn.randint(1, 3), drawn.randint(1, 3), drawn.choice((2, 5, 8))
        num_q = drawn.randint(1, 6)
        num_k = num_q + drawn.choice((0, 0, 1, 9))
        q, k, v = new(num_q, kv * group, dim), new(num_k, kv, dim), new(num_k, kv, dim)
        compare(attention, q, k, v, drawn.random() < 0.7)


def describe(q: Any, k: Any, causal: bool, scale: float | None = None) -> str:
    heads = f"query heads {q.shape[1]}, KV heads {k.shape[1]}, head_dim {q.shape[2]}"
    given_scale = "" if scale is None else f", scale={scale}"
    queries = f"{len(q)} {'query' if len(q) == 1 else 'queries'}"
    return f"attention of {queries} to {len(k)} keys, {heads}, causal={causal}{given_scale}"


def compare(
    attention: Callable[..., Any],
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    scale: float | None = None,
) -> None:
    call = describe(q, k, causal, scale)
    kept = [x.clone() for x in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    shapes = {}
    if group > 1:
        words = NOT_GROUPED.format(heads=q.shape[1], kv=k.shape[1], group=group)
        shapes[RuntimeError] = f"{words}, for keys and for values."
    with given(call, errors=shapes):
        got = attention(q, k, v, causal, scale)
        for x, before, name in zip((q, k, v), kept, "qkv", strict=True):
            equal(x, before, f"after the call, {name}", because="Leave the arguments as they are.")
        out, lse = state(got)
        mask = visible(len(q), len(k), len(k) - len(q)) if causal else None
        want_out, want_lse = (x.float() for x in dense(q, k, v, mask, scale))
        close(
            out,
            want_out,
            "the output",
            mistakes=chain(layouts(want_out), wrong_outputs(q, k, v, mask, scale)),
        )
        close(
            lse,
            want_lse,
            "the log-sum-exp",
            because="It is log(sum of exp(score)) over the keys that a query sees, after scaling.",
            mistakes=wrong_lses(q, k, v, mask, scale, want_lse),
        )


def state(got: Any) -> tuple[Any, Any]:
    """The two tensors that attention returns."""
    if got is None:
        fail(f"it returned None. {NO_RETURN}")
    if not isinstance(got, tuple) or len(got) != 2:
        came = f"{len(got)} values" if isinstance(got, tuple) else short(got)
        fail(f"it returned {came}, expected two tensors: the output and the log-sum-exp.")
    return got


def layouts(want: Any) -> Iterator[tuple[Any, str]]:
    text = "This is [heads, queries, head_dim]: bring the queries to the front again."
    yield want.transpose(0, 1), text


def wrong_outputs(
    q: Any, k: Any, v: Any, mask: Any, scale: float | None
) -> Iterator[tuple[Any, str]]:
    """What known mistakes give here, and what to tell."""
    (num_q, heads, dim), (num_k, kv, _) = q.shape, k.shape
    group = heads // kv
    right = {"mask": mask, "scale": scale}
    factor = dim**-0.5 if scale is None else scale

    def wrong(text: str, **changed: Any) -> tuple[Any, str]:
        return dense(q, k, v, **{**right, **changed})[0].float(), text

    if mask is not None:
        yield wrong(
            "No key is masked: a query must not see the keys of tokens that come after it.",
            mask=None,
        )
        past = num_k - num_q
        if past:
            yield wrong(
                "The causal mask is aligned top-left: it lets query i see keys 0 to i. The queries "
                f"are the last of {num_k} tokens, so query i is token i + {past} and sees keys 0 "
                f"to i + {past}.",
                mask=visible(num_q, num_k, 0),
            )
        else:
            strict = visible(num_q, num_k, past - 1)
            yield wrong("A token does not see itself here; it must.", mask=strict)
            # A first row that sees nothing is NaN by a softmax, and zeros if that was caught.
            out = dense(q, k, v, mask=strict, scale=scale)[0].float().nan_to_num(0.0)
            yield out, "A token does not see itself here; it must."
        yield wrong(
            "Masked scores are 0 instead of -inf: exp(0) is 1, so these keys still get weight.",
            hidden=0.0,
        )
        yield wrong(
            "The mask comes after the softmax, so the weights that remain sum to less than 1: set "
            "scores to -inf before it.",
            mask_after=True,
        )
        yield wrong(
            "The mask is upside down: it hides the past and shows the future.",
            mask=~mask | visible(num_q, num_k, past) & ~visible(num_q, num_k, past - 1),
        )
    if scale is None:
        yield wrong("The scores are not scaled by 1 / sqrt(head_dim).", scale=1.0)
        yield wrong(
            "The scores are scaled by 1 / head_dim: take the square root, and scale once.",
            scale=1 / dim,
        )
        yield wrong(
            "The scores are multiplied by sqrt(head_dim), where they should be divided.",
            scale=dim**0.5,
        )
    else:
        yield wrong("The argument `scale` is ignored, or taken for None.", scale=None)
        yield wrong(
            "`scale` is the whole factor: do not divide by sqrt(head_dim) as well.",
            scale=factor * dim**-0.5,
        )
    yield wrong(
        "The softmax runs over the queries: for each query, the weights of the keys sum to 1.",
        axis=1,
    )
    yield wrong("The softmax runs over the heads: each head has weights of its own.", axis=0)
    if kv > 1:
        text = f"All heads read KV head 0. Query head h reads KV head h // {group}."
        yield wrong(text, key_heads=[0] * heads)
    if group > 1:
        words = NOT_GROUPED.format(heads=heads, kv=kv, group=group)
        modulo = [head % kv for head in range(heads)]
        groups = kv_heads_of(heads, kv)
        if kv > 1:
            yield wrong(f"Query head h reads KV head h % {kv} here. {words}.", key_heads=modulo)
            text = f"The keys are grouped rightly, but the values are not. {words}, for both."
            yield wrong(text, value_heads=modulo)
            yield wrong(text, value_heads=[0] * heads)
            text = f"The values are grouped rightly, but the keys are not. {words}, for both."
            yield wrong(text, key_heads=modulo, value_heads=groups)


def wrong_lses(
    q: Any, k: Any, v: Any, mask: Any, scale: float | None, want: Any
) -> Iterator[tuple[Any, str]]:
    yield want.T, "This is [heads, queries]: it should be [queries, heads]."
    yield want.exp(), "This is the sum of exponentials; take its logarithm."
    yield want / 0.6931471805599453, "This is the logarithm to base 2; take the natural one."
    highest = _scores(q, k, mask, scale).amax(dim=2).T
    yield highest.float(), "This is the largest score; the log-sum-exp counts the others too."
    yield (
        (want.double() - highest).float(),
        (
            "The maximum was subtracted before the exponentials, and not added again after the "
            "logarithm."
        ),
    )
    yield dense(q, k, v, mask, 1.0)[1].float(), "These scores are not scaled."
    yield dense(q, k, v, None, scale)[1].float(), "This counts the masked keys as well."


def _scores(q: Any, k: Any, mask: Any, scale: float | None) -> Any:
    """Scaled and masked scores `[heads, queries, keys]`, float64."""
    import torch

    readers = kv_heads_of(q.shape[1], k.shape[1])
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()[:, readers])
    scores = scores * (q.shape[2] ** -0.5 if scale is None else scale)
    return scores if mask is None else scores.masked_fill(~mask, float("-inf"))


def check_scale(attention: Callable[..., Any], new: Callable[..., Any]) -> None:
    q, k, v = new(2, 2, 4), new(3, 2, 4), new(3, 2, 4)
    for scale in (0.3, 0.0):
        compare(attention, q, k, v, True, scale)


def check_large_scores(attention: Callable[..., Any], new: Callable[..., Any]) -> None:
    q, k, v = 60 * new(3, 2, 8), 4 * new(5, 1, 8), new(5, 1, 8)
    want, want_lse = (x.float() for x in dense(q, k, v, visible(3, 5, 2)))
    call = f"{describe(q, k, True)}, with scores up to {float(want_lse.max()):.0f}"
    with given(call):
        out, lse = state(attention(q, k, v, True))
        because = (
            "exp of a score above 88 is infinite in float32. Subtract each row's maximum before "
            "the exponential, or let torch.softmax and torch.logsumexp do it."
        )
        close(out, want, "the output", because=because, atol=1e-4)
        close(lse, want_lse, "the log-sum-exp", because=because)


def check_dtypes(attention: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Half precision in, computed in float32: only the last rounding may be seen."""
    import torch

    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (x.to(dtype) for x in (2 * new(40, 2, 16), 2 * new(40, 2, 16), new(40, 2, 16)))
        call = f"{describe(q, k, True)}, all {str(dtype).removeprefix('torch.')}"
        want, want_lse = dense(q, k, v, visible(40, 40, 0))
        with given(call):
            out, lse = state(attention(q, k, v, True))
            equal(out.dtype, dtype, "the output's dtype", because="It is that of the queries.")
            equal(lse.dtype, torch.float32, "the log-sum-exp's dtype")
            because = "Compute half-precision inputs in float32: .float() first, .to(q.dtype) last."
            close(lse, want_lse.float(), "the log-sum-exp", because=because)
            step = torch.finfo(dtype).eps
            exact = out.double()
            close(exact, want, "the output", because=because, rtol=0.6 * step, atol=1e-5)


def check_defaults(attention: Callable[..., Any], new: Callable[..., Any]) -> None:
    q, k, v = new(2, 2, 4), new(3, 2, 4), new(3, 2, 4)
    call = "attention(q, k, v), causal unless told otherwise"
    with given(call):
        out, _ = state(attention(q, k, v))
        close(out, dense(q, k, v, visible(2, 3, 1))[0].float(), "the output")


def draw_weights(attention: Callable[..., Any]) -> Any:
    """The learner's weights for a prompt at once, and for its last tokens with a past.

    Where value j is 1 in component j and 0 elsewhere, the output is the row of weights.
    """
    import torch

    from yaie.course.viz import draw_attention, film_strip

    texts = ["The", " cat", " sat", " on", " the", " mat", ",", " tired"]
    generator = torch.Generator().manual_seed(3)
    size = len(texts)
    q, k = (2 * random_tensor(generator, size, 1, size) for _ in range(2))
    one_hot = torch.eye(size).unsqueeze(1)
    panels = [attention(q[start:], k, one_hot, True)[0][:, 0] for start in (0, 5, 7)]
    titles = ["prefill: 8 queries, no past", "3 queries, a past of 5", "decode: one query"]
    return film_strip(panels, partial(draw_attention, keys=texts, cell=0.3), titles)
