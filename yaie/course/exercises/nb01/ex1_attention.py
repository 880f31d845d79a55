"""01.1: attention's output and log-sum-exp, against float64."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises import oracles
from yaie.course.exercises.nb01.oracle import heads_in_words
from yaie.ops.reference.attention import paged_attention


def fit(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Attention over the paged cache that computes every prompt with the learner's."""
    return partial(paged_attention, attention=attention)


# queries, keys, heads, KV heads, head_dim, causal: each row brings one new thing
SHAPES = [
    (3, 3, 1, 1, 4, False),  # softmax(q k^T / sqrt(head_dim)) v and nothing else
    (4, 4, 1, 1, 4, True),  # a mask
    (2, 5, 1, 1, 4, True),  # a past
    (3, 3, 2, 2, 4, True),  # heads
    (3, 4, 6, 2, 8, True),  # grouped heads
    (2, 3, 4, 1, 6, False),  # one KV head for all
    (1, 7, 9, 3, 64, True),  # a decode step of SmolLM2-135M
]


def cases() -> Iterator[Case]:
    new = partial(torch.randn, generator=torch.Generator().manual_seed(0))

    def qkv(num_q: int, num_k: int, heads: int, kv: int, dim: int) -> list[Any]:
        return [new(num_q, heads, dim), new(num_k, kv, dim), new(num_k, kv, dim)]

    for *shape, causal in SHAPES:
        yield case(qkv(*shape), causal)
    small = qkv(2, 3, 2, 2, 4)
    for scale in (0.3, 0.0):
        yield case(small, True, scale)
    q, k, v = qkv(3, 5, 2, 1, 8)
    yield case([60 * q, 4 * k, v], True, also=", scores up to 317", atol=1e-4)
    far = torch.full((2, 1, 4), 200.0)
    keys = -far * torch.tensor([1.0, 0.5]).view(2, 1, 1)
    yield case([far, keys, new(2, 1, 4)], True, also=", scores down to -80000")
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = qkv(40, 40, 2, 2, 16)
        half = [x.to(dtype) for x in (2 * q, 2 * k, v)]
        yield case(half, True, also=f", all {dtype_name(dtype)}", rtol=0.6 * torch.finfo(dtype).eps)
    yield case([x.double() for x in qkv(2, 3, 2, 2, 4)], True, also=", all float64")
    yield case(qkv(2, 3, 2, 2, 4), None)
    drawn = random.Random(0)
    for _ in range(60):
        kv, group, dim = drawn.randint(1, 3), drawn.randint(1, 3), drawn.choice((2, 5, 8))
        num_q = drawn.randint(1, 6)
        num_k = num_q + drawn.choice((0, 0, 1, 9))
        tensors = qkv(num_q, num_k, kv * group, kv, dim)
        yield case(tensors, drawn.random() < 0.7)


def case(
    qkv: list[Any],
    causal: bool | None,
    scale: float | None = None,
    also: str = "",
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> Case:
    """A call of attention; `causal` None: with the default."""
    q, k, _ = qkv
    arguments = {} if causal is None else {"causal": causal}
    arguments |= {} if scale is None else {"scale": scale}
    told = "".join(f", {name}={value}" for name, value in arguments.items())
    queries = f"{len(q)} {'query' if len(q) == 1 else 'queries'}"
    heads = heads_in_words(q.shape[1], k.shape[1], q.shape[2])
    name = f"attention of {queries} to {len(k)} keys, {heads}{told}{also}"
    return Case(name, qkv=qkv, arguments=arguments, rtol=rtol, atol=atol)


def observe(attention: Callable[..., Any], case: Case, see: Observer) -> None:
    q, k, v = (x.clone() for x in case.qkv)
    with see.call("the call"):
        got = attention(q, k, v, **case.arguments)
    see.unchanged("qkv", (q, k, v), case.qkv)
    out, lse = see.parts("the call", got, "output", "log-sum-exp")
    q, k, v = case.qkv
    past, group = len(k) - len(q), q.shape[1] // k.shape[1]
    is_causal = case.arguments.get("causal", True)
    want, want_lse = oracles.attention(q, k, v, is_causal, case.arguments.get("scale"))
    if q.dtype == torch.float32:
        want = want.float()
    else:  # only the last rounding may be seen
        see.equal("the output's dtype", out.dtype, q.dtype, "It is that of the queries.")
        always = "It is float32, whatever the dtype of the queries."
        see.equal("the log-sum-exp's dtype", lse.dtype, torch.float32, always)
        out = out.double()
    sees = f"keys 0 to i + {past}" if is_causal else "all keys"
    average = f"Query i sees {sees}, and query head h reads KV head h // {group}."
    if q.dtype in (torch.float16, torch.bfloat16):
        average = "Round only the output to its dtype: scores, weights and sums are float32."
    see.close("the output", out, want, average, rtol=case.rtol, atol=case.atol)
    total = f"It is log(sum of exp(score)) over {sees}, after scaling."
    see.close("the log-sum-exp", lse, want_lse.float(), total)


def draw(attention: Callable[..., Any]) -> Any:
    """The learner's weights for a whole prompt, and for its last tokens with a past.

    Where value j is 1 in component j and 0 elsewhere, the output is the row of weights.
    """
    texts = ["The", " cat", " sat", " on", " the", " mat", ",", " tired"]
    generator = torch.Generator().manual_seed(3)
    size = len(texts)
    q, k = (2 * torch.randn(size, 1, size, generator=generator) for _ in range(2))
    one_hot = torch.eye(size).unsqueeze(1)
    panels = [attention(q[start:], k, one_hot, True)[0][:, 0] for start in (0, 5, 7)]
    titles = ["prefill: 8 queries, no past", "3 queries, a past of 5", "decode: one query"]
    return viz.film_strip(panels, partial(viz.draw_attention, keys=texts, cell=0.3), titles)
