"""The check of RadixAttentionBlock.forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from yaie.course.checks.nb01.oracle import (
    NO_RETURN,
    NOT_GROUPED,
    dense,
    kv_heads_of,
    random_tensor,
    rotate,
    rotate_rounded,
    visible,
)
from yaie.course.core.expect import close, equal, fail, given, raises, short

BASE = 1000.0

# batch, past, new tokens, heads, KV heads, head_dim
CASES = [
    (1, 0, 4, 2, 2, 4),  # a prompt
    (1, 3, 1, 2, 2, 4),  # a decode step
    (1, 3, 2, 2, 2, 4),  # a piece of a prompt, after another
    (2, 0, 3, 2, 2, 4),  # two sequences
    (2, 4, 2, 6, 2, 6),  # grouped heads
    (1, 5, 3, 4, 1, 8),
]


def check_forward(RadixAttentionBlock: Any) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    new = partial(random_tensor, generator)
    for batch, past, tokens, heads, kv, dim in CASES:
        block = new_block(RadixAttentionBlock, new, 10, heads, kv, dim, 32)
        hidden = new(batch, tokens, 10)
        keys, values = new(batch, past, kv, dim), new(batch, past, kv, dim)
        compare(block, hidden, (keys, values) if past else None)
    check_far_positions(RadixAttentionBlock, new)
    check_room(RadixAttentionBlock, new)
    check_steps(RadixAttentionBlock, new)


def new_block(
    RadixAttentionBlock: Any, new: Any, hidden: int, heads: int, kv: int, dim: int, room: int
) -> Any:
    """A block with random weights, which touches no global random state."""
    import torch

    with torch.random.fork_rng(devices=[]):
        block = RadixAttentionBlock(hidden, heads, dim, room, num_kv_heads=kv, rope_base=BASE)
    with torch.no_grad():
        for weight in block.parameters():
            weight.copy_(new(*weight.shape) * hidden**-0.5)
    return block.requires_grad_(False)


def compare(block: Any, hidden: Any, past: tuple[Any, Any] | None) -> None:
    batch, tokens, _ = hidden.shape
    length = 0 if past is None else past[0].shape[1]
    group = block.num_heads // block.num_kv_heads
    behind = f"a past of {length}" if length else "no past"
    call = (
        f"forward of {batch} × {tokens} tokens with {behind} "
        f"({block.num_heads} heads, {block.num_kv_heads} KV heads of {block.head_dim})"
    )
    words = NOT_GROUPED.format(heads=block.num_heads, kv=block.num_kv_heads, group=group)
    shapes = {RuntimeError: f"{words}. k_proj and v_proj make KV heads."} if group > 1 else {}
    kept = None if past is None else [x.clone() for x in past]
    with given(call, errors=shapes):
        got = block(hidden, past_key_value=past, use_cache=True)
        out, keys, values = unpack(got)
        want, want_keys, want_values = oracle(block, hidden, past)
        close(keys, want_keys, "the new past's keys", mistakes=wrong_keys(block, hidden, past))
        because = "It holds the values of the past, then those of the new tokens."
        mistakes = wrong_values(block, hidden, past)
        close(values, want_values, "the new past's values", because=because, mistakes=mistakes)
        close(out, want, "the output", mistakes=wrong_outputs(block, hidden, past))
        for x, before in zip(past or (), kept or (), strict=True):
            equal(x, before, "after the call, past_key_value", because="Leave it as it is.")
    with given(f"{call}, use_cache=False"):
        alone = block(hidden, past_key_value=past)
        if isinstance(alone, tuple):
            fail("it returned a tuple: without use_cache it returns the output alone.")
        close(alone, want, "the output")


def unpack(got: Any) -> tuple[Any, Any, Any]:
    """Output, keys and values of what forward returns with use_cache=True."""
    if got is None:
        fail(f"it returned None. {NO_RETURN}")
    if not isinstance(got, tuple) or len(got) != 3:
        came = f"{len(got)} values" if isinstance(got, tuple) else short(got)
        fail(f"with use_cache=True it returned {came}, expected (output, None, (keys, values)).")
    out, weights, past = got
    equal(weights, None, "the second of the three results", because="Weights are not kept.")
    if not isinstance(past, tuple) or len(past) != 2:
        fail(f"the new past is {short(past)}, expected a tuple (keys, values).")
    return out, *past


def project(block: Any, hidden: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one sequence `[tokens, heads, head_dim]`, float64, unrotated."""
    import torch

    sizes = (block.num_heads, block.num_kv_heads, block.num_kv_heads)
    weights = (block.q_proj.weight, block.k_proj.weight, block.v_proj.weight)
    pairs = zip(weights, sizes, strict=True)
    return tuple(
        torch.einsum("ti,hdi->thd", hidden.double(), w.double().reshape(heads, block.head_dim, -1))
        for w, heads in pairs
    )


def oracle(
    block: Any,
    hidden: Any,
    past: tuple[Any, Any] | None,
    base: float = BASE,
    start: int | None = None,
    turn_q: bool = True,
    turn_k: bool = True,
    turn_past: bool = False,
    turn_v: bool = False,
    top_left: bool = False,
    causal: bool = True,
    project_out: bool = True,
    mixed_heads: bool = False,
    modulo: bool = False,
    past_first: bool = True,
    rounded: bool = False,
) -> tuple[Any, Any, Any]:
    """Output, keys and values in float32, each sequence alone; the knobs are mistakes."""
    import torch

    length = 0 if past is None else past[0].shape[1]
    results = []
    for i, tokens in enumerate(hidden):
        count = len(tokens)
        begin = length if start is None else start
        positions = range(begin, begin + count)
        q, k, v = project(block, tokens)
        if mixed_heads:
            q, k, v = (x.reshape(x.shape[1], count, -1).transpose(0, 1) for x in (q, k, v))
        turn = rotate_rounded if rounded else rotate
        q = turn(q, positions, base) if turn_q else q
        k = turn(k, positions, base) if turn_k else k
        v = rotate(v, positions, base) if turn_v else v
        if past is not None:
            old_k, old_v = past[0][i].double(), past[1][i].double()
            if turn_past:
                old_k = rotate(old_k, range(length), base)
            k = torch.cat((old_k, k) if past_first else (k, old_k))
            v = torch.cat((old_v, v) if past_first else (v, old_v))
        mask = visible(count, len(k), 0 if top_left else len(k) - count) if causal else None
        heads, kv = block.num_heads, block.num_kv_heads
        readers = [h % kv for h in range(heads)] if modulo else kv_heads_of(heads, kv)
        out = dense(q, k, v, mask, key_heads=readers)[0].flatten(1)
        out = out @ block.o_proj.weight.double().T if project_out else out
        results.append((out.float(), k.float(), v.float()))
    return tuple(torch.stack(part) for part in zip(*results, strict=True))


RESTART = (
    "The rotary positions begin at 0 although there is a past: the new tokens come after it, at "
    "positions {past}, {next}, …"
)
IN_FLOAT16 = (
    "Are the rotary tables rounded to float16, which has three digits? Keep them in float32, "
    "whatever the dtype of the model."
)
LAYOUT = (
    "The projection's columns are heads × head_dim for each token: view them as [batch, tokens, "
    "heads, head_dim]."
)


def wrong_keys(block: Any, hidden: Any, past: Any) -> Iterator[tuple[Any, str]]:
    length = 0 if past is None else past[0].shape[1]

    def wrong(text: str, **knobs: Any) -> tuple[Any, str]:
        return oracle(block, hidden, past, **knobs)[1], text

    if length:
        yield wrong(RESTART.format(past=length, next=length + 1), start=0)
        yield wrong(
            "The past's keys were turned once more. They are rotated already: rotate the new keys, "
            "then put them behind the past.",
            turn_past=True,
        )
        text = "The past's keys were turned once more, and the new ones not at all."
        yield wrong(text, turn_past=True, turn_k=False)
        yield wrong("The new keys stand before the past; they come after it.", past_first=False)
        new_only = oracle(block, hidden, past)[1][:, length:]
        yield new_only, "These are the new keys only: the new past holds the old one as well."
    yield wrong(
        "The keys in the new past are not rotated. They are kept rotated, so that a step rotates "
        "its own token and no other.",
        turn_k=False,
    )
    text = "The tables are those of base 10000: take self.cos and self.sin."
    yield wrong(text, base=10000.0)
    yield wrong(IN_FLOAT16, rounded=True)
    if hidden.shape[1] > 1 and block.num_kv_heads > 1:
        yield wrong(LAYOUT, mixed_heads=True)
    right = oracle(block, hidden, past)[1]
    group = block.num_heads // block.num_kv_heads
    if group > 1:
        yield (
            right.repeat_interleave(group, dim=2),
            f"The past keeps every key {group} times. Keep the KV heads alone; that is what "
            "grouped-query attention saves.",
        )
    yield right.transpose(1, 2), "This is [batch, KV heads, tokens, head_dim]."


def wrong_values(block: Any, hidden: Any, past: Any) -> Iterator[tuple[Any, str]]:
    length = 0 if past is None else past[0].shape[1]
    right = oracle(block, hidden, past)[2]
    turned = oracle(block, hidden, past, turn_v=True)[2]
    yield turned, "The values were rotated: only queries and keys are."
    if length:
        text = "These are the new values only: the new past holds the old ones as well."
        yield right[:, length:], text
        before = oracle(block, hidden, past, past_first=False)[2]
        yield before, "The new values stand before the past; they come after it."
    yield oracle(block, hidden, past)[1], "These are the keys."


def wrong_outputs(block: Any, hidden: Any, past: Any) -> Iterator[tuple[Any, str]]:
    length = 0 if past is None else past[0].shape[1]

    def wrong(text: str, **knobs: Any) -> tuple[Any, str]:
        return oracle(block, hidden, past, **knobs)[0], text

    if length:
        yield _queries_from_zero(block, hidden, past), RESTART.format(past=length, next=length + 1)
    yield wrong("The queries are not rotated: queries and keys both are.", turn_q=False)
    yield wrong(
        "No key is masked: in a prompt, a token must not see those that come after it.",
        causal=False,
    )
    if length:
        yield wrong(
            "The causal mask is aligned top-left: the first new token sees only the first key. "
            f"It comes after {length} tokens, and sees them all. (is_causal=True of torch's "
            "scaled_dot_product_attention is aligned that way.)",
            top_left=True,
        )
        without = oracle(block, hidden, None, start=length)[0]
        yield without, "The new tokens attend to each other only; the past is not seen."
    if block.num_heads > block.num_kv_heads > 1:
        words = NOT_GROUPED.format(
            heads=block.num_heads,
            kv=block.num_kv_heads,
            group=block.num_heads // block.num_kv_heads,
        )
        yield wrong(f"Query heads read the wrong KV heads. {words}.", modulo=True)
    yield wrong(
        "o_proj is missing: it turns the heads' outputs back into a hidden state.",
        project_out=False,
    )
    yield (
        _heads_scrambled(block, hidden, past),
        ("The heads' outputs are joined in the wrong order: for each token, head after head."),
    )


def _queries_from_zero(block: Any, hidden: Any, past: Any) -> Any:
    """The output when keys are right and only the queries begin at position 0."""
    import torch

    _, keys, values = oracle(block, hidden, past)
    outputs = []
    for i, tokens in enumerate(hidden):
        q = rotate(project(block, tokens)[0], range(len(tokens)), BASE)
        mask = visible(len(tokens), keys.shape[1], keys.shape[1] - len(tokens))
        out = dense(q, keys[i], values[i], mask)[0].flatten(1)
        outputs.append((out @ block.o_proj.weight.double().T).float())
    return torch.stack(outputs)


def _heads_scrambled(block: Any, hidden: Any, past: Any) -> Any:
    """The output when [heads, tokens, head_dim] is flattened as if it were [tokens, heads, …]."""
    batch, tokens, _ = hidden.shape
    joined = oracle(block, hidden, past, project_out=False)[0].double()
    heads = joined.reshape(batch, tokens, block.num_heads, block.head_dim)
    scrambled = heads.transpose(1, 2).reshape(batch, tokens, -1)
    return (scrambled @ block.o_proj.weight.double().T).float()


def check_far_positions(RadixAttentionBlock: Any, new: Any) -> None:
    """Position 6000: a table in float16 gives another key than one in float32."""
    room = 8192
    block = new_block(RadixAttentionBlock, new, 10, 2, 1, 8, room)
    hidden, past = new(1, 2, 10), (new(1, 6000, 1, 8), new(1, 6000, 1, 8))
    with given("forward of 1 × 2 tokens with a past of 6000"):
        _, keys, _ = unpack(block(hidden, past_key_value=past, use_cache=True))
        want = oracle(block, hidden, past)[1]
        close(
            keys[:, 6000:],
            want[:, 6000:],
            "the keys of the two new tokens",
            because=IN_FLOAT16,
            atol=2e-5,
        )


def check_room(RadixAttentionBlock: Any, new: Any) -> None:
    """The tables end at max_position_embeddings."""
    block = new_block(RadixAttentionBlock, new, 10, 2, 1, 4, 6)
    past = new(1, 4, 1, 4), new(1, 4, 1, 4)
    call = "forward of 2 tokens with a past of 4, where max_position_embeddings=6,"
    fits = "These are 6 tokens, at positions 0 to 5: they fit."
    with given(call, errors={ValueError: fits}):
        block(new(1, 2, 10), past_key_value=past)
    because = "There is no rotary angle for position 6; say so in words a caller understands."
    for count, what in ((3, past), (7, None)):
        call = f"forward of {count} tokens with {'a past of 4' if what else 'no past'}, "
        raises(
            ValueError,
            lambda n=count, p=what: block(new(1, n, 10), past_key_value=p),
            f"{call}where max_position_embeddings=6,",
            because,
        )


def check_steps(RadixAttentionBlock: Any, new: Any) -> None:
    """However a sequence is cut, the output is that of the whole."""
    block = new_block(RadixAttentionBlock, new, 10, 6, 2, 4, 32)
    hidden = new(2, 12, 10)
    want = oracle(block, hidden, None)[0]
    for sizes in ([12], [1] * 12, [5, 1, 1, 5], [3, 9]):
        with given(f"a sequence of 12 tokens in pieces of {sizes}, each with the past it got"):
            close(in_pieces(block, hidden, sizes), want, "the output")


def in_pieces(block: Any, hidden: Any, sizes: Sequence[int]) -> Any:
    import torch

    past, outputs = None, []
    for piece in hidden.split(list(sizes), dim=1):
        out, _, past = block(piece, past_key_value=past, use_cache=True)
        outputs.append(out)
    return torch.cat(outputs, dim=1)


def draw_steps(RadixAttentionBlock: Any) -> Any:
    """The weights with which the learner's block looks back, as its cache grows.

    The value of token j is 1 in component j, so the output of a token is its row of weights.
    """
    import torch

    from yaie.course.viz import draw_attention, film_strip

    texts = ["The", " cat", " sat", " on", " the", " mat", ",", " tired"]
    size = len(texts)
    generator = torch.Generator().manual_seed(5)
    new = partial(random_tensor, generator)
    block = new_block(RadixAttentionBlock, new, size, 1, 1, size, 32)
    with torch.no_grad():
        block.q_proj.weight.mul_(5), block.k_proj.weight.mul_(3)
        block.v_proj.weight.copy_(torch.eye(size)), block.o_proj.weight.copy_(torch.eye(size))
    hidden = torch.eye(size).unsqueeze(0)
    past, panels, titles, seen = None, [], [], 0
    for piece in hidden.split([5, 1, 2], dim=1):
        out, _, past = block(piece, past_key_value=past, use_cache=True)
        end = seen + piece.shape[1]
        panels.append((out[0, :, :end], texts[:end]))
        titles.append(f"{piece.shape[1]} new, {seen} cached")
        seen = end

    def draw(panel: tuple[Any, list[str]], at: Any = None) -> Any:
        weights, keys = panel
        return draw_attention(weights, keys=keys, cell=0.3, at=at)

    return film_strip(panels, draw, titles)
