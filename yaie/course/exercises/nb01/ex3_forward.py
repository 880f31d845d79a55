"""01.3: a layer with a cache, however the sequence is cut, against float64."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises import oracles
from yaie.course.exercises.nb01.oracle import heads_in_words

BASE = 1000.0

# batch, past, new tokens, heads, KV heads, head_dim
SHAPES = [
    (1, 0, 4, 2, 2, 4),  # a prompt
    (1, 3, 1, 2, 2, 4),  # a decode step
    (1, 3, 2, 2, 2, 4),  # a piece of a prompt, after another
    (2, 0, 3, 2, 2, 4),  # two sequences
    (2, 4, 2, 6, 2, 6),  # grouped heads
    (1, 5, 3, 4, 1, 8),
]


def cases() -> Iterator[Case]:
    new = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    for batch, past, tokens, heads, kv, dim in SHAPES:
        layer = layer_of(new, heads, kv, dim, room=32)
        hidden = new(batch, tokens, 10)
        pair = new(batch, past, kv, dim), new(batch, past, kv, dim)
        behind = f"a past of {past}" if past else "no past"
        name = f"{batch} × {tokens} tokens with {behind}, {heads_in_words(heads, kv, dim)}"
        past = pair if past else None
        yield Case(name, layer=layer, hidden=hidden, past=past, kind="step", ids=None)
    layer = layer_of(new, 2, 1, 4, room=32)
    ids, pair = torch.tensor([[3, 4, 5], [9, 8, 2]]), (new(2, 3, 1, 4), new(2, 3, 1, 4))
    for past, words in ((None, "no past"), (pair, "a past of 3")):
        name = f"2 × 3 tokens with {words} and position_ids={ids.tolist()}"
        yield Case(name, layer=layer, hidden=new(2, 3, 10), past=past, kind="step", ids=ids)
    layer = layer_of(new, 2, 1, 8, room=8192)
    hidden, past = new(1, 2, 10), (new(1, 6000, 1, 8), new(1, 6000, 1, 8))
    name = "1 × 2 tokens with a past of 6000"
    yield Case(name, layer=layer, hidden=hidden, past=past, kind="far", ids=None)
    layer = layer_of(new, 2, 1, 4, room=6)
    past = new(1, 4, 1, 4), new(1, 4, 1, 4)
    for count, pair in ((2, past), (3, past), (7, None)):
        behind = "a past of 4" if pair else "no past"
        name = f"{count} tokens with {behind}, where max_position_embeddings is 6"
        kind = "step" if count == 2 else "refused"
        hidden = new(1, count, 10)
        yield Case(name, layer=layer, hidden=hidden, past=pair, kind=kind, ids=None)
    ids = torch.tensor([[0, 1, 2]])
    ends = f"position_ids={ids.tolist()}, where max_position_embeddings is 6"
    name = f"3 tokens with a past of 4 and {ends}"
    yield Case(name, layer=layer, hidden=new(1, 3, 10), past=past, kind="refused", ids=ids)
    layer, hidden = layer_of(new, 6, 2, 4, room=32), new(2, 12, 10)
    for sizes in ([12], [1] * 12, [5, 1, 1, 5], [3, 9]):
        name = f"12 tokens in pieces of {sizes}, each with the past that the one before returned"
        yield Case(name, layer=layer, hidden=hidden, past=None, kind="pieces", sizes=sizes)


def layer_of(new: Any, heads: int, kv: int, dim: int, room: int, hidden: int = 10) -> dict:
    """The arguments of a block and its weights, in the order of its parameters."""
    shapes = [(heads * dim, hidden), (kv * dim, hidden), (kv * dim, hidden), (hidden, heads * dim)]
    weights = [new(*shape) * hidden**-0.5 for shape in shapes]
    return {"sizes": (hidden, heads, dim, room), "kv": kv, "weights": weights}


def new_block(RadixAttentionBlock: Any, layer: dict) -> Any:
    """A block with these weights, which touches no global random state."""
    with torch.random.fork_rng(devices=[]):
        block = RadixAttentionBlock(*layer["sizes"], num_kv_heads=layer["kv"], rope_base=BASE)
    with torch.no_grad():
        for weight, values in zip(block.parameters(), layer["weights"], strict=True):
            weight.copy_(values)
    return block.requires_grad_(False)


def oracle(
    layer: dict, hidden: Any, past: tuple[Any, Any] | None, ids: Any = None
) -> tuple[Any, Any, Any]:
    """Output, keys and values in float32, each sequence by itself, from the weights alone."""
    _, heads, dim, _ = layer["sizes"]
    *projections, project_out = (weight.double() for weight in layer["weights"])
    results = []
    for i, tokens in enumerate(hidden.double()):
        q, k, v = (
            torch.einsum("ti,hdi->thd", tokens, weight.reshape(count, dim, -1))
            for weight, count in zip(projections, (heads, layer["kv"], layer["kv"]), strict=True)
        )
        length = 0 if past is None else past[0].shape[1]
        positions = range(length, length + len(tokens)) if ids is None else ids[i].tolist()
        q, k = (oracles.rotary(x, positions, BASE) for x in (q, k))
        if past is not None:
            k, v = (torch.cat((old[i].double(), x)) for old, x in zip(past, (k, v), strict=True))
        out = oracles.attention(q, k, v)[0].flatten(1)
        results.append([x.float() for x in (out @ project_out.T, k, v)])
    return tuple(torch.stack(part) for part in zip(*results, strict=True))


def observe(RadixAttentionBlock: Any, case: Case, see: Observer) -> None:
    block = new_block(RadixAttentionBlock, case.layer)
    if case.kind == "refused":
        because = "There is no rotary angle for position 6: say so, instead of computing nonsense."
        if case.ids is not None:
            because = "Past and new tokens are 7 together, whatever positions the new ones get."
        call = partial(block, case.hidden, past_key_value=case.past, position_ids=case.ids)
        see.raises("forward", ValueError, call, because)
    elif case.kind == "pieces":
        observe_pieces(block, case, see)
    else:
        observe_step(block, case, see)


def observe_step(block: Any, case: Case, see: Observer) -> None:
    past = None if case.past is None else tuple(x.clone() for x in case.past)
    with see.call("forward with use_cache=True"):
        named = {} if case.ids is None else {"position_ids": case.ids}
        got = block(case.hidden, past_key_value=past, use_cache=True, **named)
    out, weights, cache = see.parts("forward", got, "output", "None", "(keys, values)")
    see.equal("the second of the three results", weights, None, "The weights are not kept.")
    keys, values = see.parts("the new past", cache, "keys", "values")
    want, want_keys, want_values = oracle(case.layer, case.hidden, case.past, case.ids)
    order = "It holds the past as it was, then the new tokens, KV heads only, keys rotated."
    atol = 2e-5 if case.kind == "far" else 1e-5
    see.close("the new past's keys", keys, want_keys, order, atol=atol)
    see.close("the new past's values", values, want_values, order)
    through = "Each new token attends to the past, and to the new tokens up to itself."
    see.close("the output", out, want, through)
    for x, before in zip(past or (), case.past or (), strict=True):
        see.equal("past_key_value after the call", x, before, "Leave the argument as it is.")
    with see.call("forward without use_cache"):
        alone = block(case.hidden, past_key_value=past, **named)
    got = "a tuple" if isinstance(alone, tuple) else "no tuple"
    problem = "returned a tuple" if got == "a tuple" else ""
    if see.note("forward without use_cache", got, problem, "It returns the output alone."):
        same = "`use_cache` only decides whether the new past is returned, too."
        see.close("the output of forward without use_cache", alone, want, same)


def observe_pieces(block: Any, case: Case, see: Observer) -> None:
    past, outputs = None, []
    for piece in case.hidden.split(case.sizes, dim=1):
        with see.call(f"forward of a piece of {piece.shape[1]}"):
            out, _, past = block(piece, past_key_value=past, use_cache=True)
        outputs.append(out)
    same = "A token's output depends on the tokens up to it, not on how they came."
    see.close(
        "the output", torch.cat(outputs, dim=1), oracle(case.layer, case.hidden, None)[0], same
    )


def draw(RadixAttentionBlock: Any) -> Any:
    """The weights with which the learner's block looks back, as its cache grows.

    The value of token j is 1 in component j, so the output of a token is its row of weights.
    """
    texts = ["The", " cat", " sat", " on", " the", " mat", ",", " tired"]
    size = len(texts)
    new = partial(torch.randn, generator=torch.Generator().manual_seed(5))
    layer = layer_of(new, 1, 1, size, room=32, hidden=size)
    query, key, _, _ = layer["weights"]
    layer["weights"] = [5 * query, 3 * key, torch.eye(size), torch.eye(size)]
    block = new_block(RadixAttentionBlock, layer)
    hidden = torch.eye(size).unsqueeze(0)
    past, panels, titles, seen = None, [], [], 0
    for piece in hidden.split([5, 1, 2], dim=1):
        out, _, past = block(piece, past_key_value=past, use_cache=True)
        end = seen + piece.shape[1]
        panels.append((out[0, :, :end], texts[:end]))
        titles.append(f"{piece.shape[1]} new, {seen} cached")
        seen = end

    def draw_panel(panel: tuple[Any, list[str]]) -> Any:
        weights, keys = panel
        return viz.draw_attention(weights, keys=keys, cell=0.3)

    return viz.film_strip(panels, draw_panel, titles)
