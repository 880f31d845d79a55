"""Operators: the same numbers as the reference, and an error that names whatever does not fit."""

import pytest
import torch
from launches import each_device, ints, skip_unless_it_runs_on

from yaie.course.lessons.ops.attention import attention_forward
from yaie.course.lessons.ops.kv import copy_blocks
from yaie.ops import registry
from yaie.ops.attention import paged_attention_forward
from yaie.ops.kv import reshape_and_cache

META = torch.device("meta")


def dense(dim=8):
    return {"q": torch.randn(3, 4, dim), "k": torch.randn(5, 2, dim), "v": torch.randn(5, 2, dim)}


def paged(dim=8):
    return {
        "q": torch.randn(4, 4, dim),
        "key_pool": torch.randn(6, 4, 2, dim),
        "value_pool": torch.randn(6, 4, 2, dim),
        "block_tables": ints([[5, 1], [2, 0]]),
        "context_lens": ints([7, 3]),
        "cu_seqlens": ints([0, 1, 4]),
    }


def cached(dim=8):
    return {
        "keys": torch.randn(3, 2, dim),
        "values": torch.randn(3, 2, dim),
        "key_pool": torch.zeros(6, 4, 2, dim),
        "value_pool": torch.zeros(6, 4, 2, dim),
        "slot_mapping": ints([23, 0, 9], dtype=torch.int64),
    }


OPS = {
    attention_forward: dense,
    paged_attention_forward: paged,
    reshape_and_cache: cached,
}
NAMES = ("ragged_attention", "paged_attention", "reshape_and_cache")
ARGUMENTS = [
    pytest.param(op, name, id=f"{op.__name__}-{name}")
    for op, make in OPS.items()
    for name in make()
]


@pytest.mark.parametrize(("op", "name"), ARGUMENTS)
@pytest.mark.parametrize("mistake", ["not a tensor", "rank", "size", "dtype", "device"])
def test_what_does_not_fit_is_named(op, name, mistake):
    arguments = OPS[op]()
    good = arguments[name]
    if mistake == "not a tensor":
        arguments[name], error = good.tolist(), TypeError
    elif mistake == "rank":
        arguments[name], error = good.unsqueeze(-1), ValueError
    elif mistake == "size":
        # Tables may be wider than needed, so those get more rows.
        dim = 0 if name == "block_tables" else -1
        arguments[name], error = good.repeat_interleave(3, dim=dim), ValueError
    elif mistake == "dtype":
        arguments[name], error = good.to(torch.int16), TypeError
    else:
        arguments[name], error = good.to(META), ValueError
    # These set sizes and devices for others: what contradicts them may be named instead.
    others = {"q": "k|key_pool", "keys": "values", "context_lens": "block_tables"}
    wanted = f"({name}|{others[name]})" if name in others else name
    with pytest.raises(error, match=rf"^{wanted} "):
        op(**arguments)


@pytest.mark.parametrize("op", [paged_attention_forward, reshape_and_cache])
@pytest.mark.parametrize("name", ["key_pool", "value_pool"])
def test_a_pool_must_be_contiguous(op, name):
    """Writing to slots of one that is not would write to a copy."""
    arguments = OPS[op]()
    arguments[name] = arguments[name].transpose(0, 1).contiguous().transpose(0, 1)
    with pytest.raises(ValueError, match=f"{name} must be contiguous"):
        op(**arguments)


@each_device
@pytest.mark.parametrize("backend", ["reference", "cpp", "triton", "cuda"])
@pytest.mark.parametrize(("op", "name"), [*zip(OPS, NAMES, strict=True)])
def test_lengths_starts_and_slots_may_be_columns(op, name, backend, device):
    """A kernel must not read what lies between their elements."""
    skip_unless_it_runs_on(device, backend)
    if backend not in registry.backends(name):
        pytest.skip("a back end without this operator")
    arguments = OPS[op](dim=16)
    if op is attention_forward:
        arguments |= {"cu_seqlens_q": ints([0, 1, 3]), "cu_seqlens_k": ints([0, 4, 5])}
    arguments = {key: x.to(device) for key, x in arguments.items()}
    columns = {
        key: x.clone() if x.is_floating_point() else torch.stack([x, 0 * x], dim=-1)[..., 0]
        for key, x in arguments.items()
    }
    wanted, got = (op(**given, backend=backend) for given in (arguments, columns))
    if op is reshape_and_cache:
        wanted, got = arguments.values(), columns.values()
    assert all(map(torch.equal, got, wanted))


@pytest.mark.parametrize(
    ("op", "name"), [(attention_forward, "k"), (paged_attention_forward, "key_pool")]
)
@pytest.mark.parametrize("kv_heads", [0, 3])
def test_heads_that_do_not_divide(op, name, kv_heads):
    arguments = OPS[op]()
    pair = (name, "v" if name == "k" else "value_pool")
    for one in pair:
        shape = list(arguments[one].shape)
        shape[-2] = kv_heads
        arguments[one] = torch.zeros(shape)
    with pytest.raises(ValueError, match=f"q has 4 heads, not a multiple of the {kv_heads}"):
        op(**arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cu_seqlens", ints([0, 1, 3])),
        ("cu_seqlens", ints([0, 1, 5])),
        ("cu_seqlens", ints([1, 2, 4])),
        ("cu_seqlens", ints([0, 5, 4])),
        ("context_lens", ints([7, 2])),
        ("context_lens", ints([0, 3])),
        ("context_lens", ints([-1, 3])),
        ("block_tables", ints([[5], [2]])),
    ],
)
def test_lengths_that_contradict_each_other(name, value):
    with pytest.raises(ValueError, match=f"^{name} "):
        paged_attention_forward(**paged() | {name: value})


@pytest.mark.parametrize("slot", [-1, 24, 10**9])
def test_slots_outside_the_pool(slot):
    arguments = cached()
    arguments["slot_mapping"][1] = slot
    with pytest.raises(ValueError, match=f"slot_mapping must be from 0 to 23, got {slot}"):
        reshape_and_cache(**arguments)
    assert not arguments["key_pool"].any()


def test_a_slot_twice():
    arguments = cached()
    arguments["slot_mapping"][1] = arguments["slot_mapping"][0]
    with pytest.raises(ValueError, match="slot_mapping must not have a slot twice"):
        reshape_and_cache(**arguments)
    assert not arguments["key_pool"].any()


@pytest.mark.parametrize("block", [-1, 7])
def test_blocks_outside_the_pool(block):
    arguments = paged()
    size = arguments["key_pool"].shape[1]
    tables, lengths = arguments["block_tables"], arguments["context_lens"].tolist()
    for sequence, length in enumerate(lengths):
        tables[sequence, -(-length // size) :] = block  # entries past the end are not read
    paged_attention_forward(**arguments)
    tables[0, 0] = block
    with pytest.raises(ValueError, match=f"block_tables must be from 0 to .*, got {block}"):
        paged_attention_forward(**arguments)


# ------------------------------------------------------------------------------------- copies


def pools(layers=2):
    return [torch.arange(6.0).view(6, 1, 1, 1).expand(6, 4, 2, 8) + 100 * i for i in range(layers)]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([[0, 1], [2, 1]], "block_mapping must not have a target twice"),
        ([[0, 6]], "block_mapping must be from 0 to 5, got 6"),
        ([[-1, 2]], "block_mapping must be from 0 to 5, got -1"),
        ([0, 1], r"block_mapping must have shape \[pairs, 2\]"),
        ([[0, 1, 2]], r"block_mapping must have shape \[pairs, 2\]"),
        ([[0.5, 1.0]], "block_mapping must be int64"),
    ],
)
def test_bad_copies_change_nothing(mapping, message):
    key_pools, value_pools = pools(), pools()
    with pytest.raises((ValueError, TypeError), match=message):
        copy_blocks(key_pools, value_pools, torch.tensor(mapping))
    assert torch.equal(key_pools[0], pools()[0])


def test_copies_need_keys_and_values_of_every_layer():
    with pytest.raises(ValueError, match="key_pools and value_pools must be one per layer"):
        copy_blocks(pools(2), pools(1), torch.tensor([[0, 1]]))


def test_a_bad_pool_is_named_by_its_layer():
    key_pools, value_pools = pools(), pools()
    value_pools[1] = torch.zeros(6, 4, 2)
    with pytest.raises(ValueError, match=r"value_pools\[1\] must have shape"):
        copy_blocks(key_pools, value_pools, torch.tensor([[0, 1]]))
    assert torch.equal(key_pools[0], pools()[0])


# ------------------------------------------------------------------------------------- ragged


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cu_seqlens_q", ints([0, 1, 4])),
        ("cu_seqlens_q", ints([0, 4, 3])),
        ("cu_seqlens_q", None),
        ("cu_seqlens_k", ints([1, 2, 5])),
        ("cu_seqlens_k", ints([0, 5])),
        ("cu_seqlens_k", None),
    ],
)
def test_starts_that_do_not_fit(name, value):
    starts = {"cu_seqlens_q": ints([0, 1, 3]), "cu_seqlens_k": ints([0, 4, 5])}
    attention_forward(**dense(), **starts)
    with pytest.raises((ValueError, TypeError), match=f"^{name} "):
        attention_forward(**dense(), **starts | {name: value})
