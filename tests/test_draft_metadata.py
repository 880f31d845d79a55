"""Metadata of draft-extend against two loops: every back end, both rungs, no hidden copy."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from integer_kernels import LEAST, check_launches, poisoned
from launches import (
    NEEDS_TRITON,
    Seen,
    captured,
    each_device,
    each_way,
    gpu_only,
    ints,
    shifted,
    skip_unless_it_runs_on,
)

from yaie.build import jit
from yaie.course.core.paths import kept
from yaie.course.core.triton import HAS_TRITON
from yaie.course.lessons.ops.cuda import metadata
from yaie.course.lessons.ops.metadata import (
    fill_draft_extend_metadata,
    fill_draft_extend_metadata_cuda,
    get_kernel_info,
    is_cuda_kernel_available,
)
from yaie.course.lessons.ops.reference import metadata as draft_metadata

BATCHES = (1, 2, 3, 16, 17, 31, 33, 255, 256, 257, 1023, 1024, 1025, 4096)
ORDERED = (1, 3, 16, 17, 257, 1024)  # are run in each order of the threads
EVERY = ("reference", "triton", "cuda", "cuda_linear", "cuda_binary", "triton_linear")
EVERY += ("triton_binary",)
TOPK = 40
each_backend = pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=NEEDS_TRITON if "triton" in b else ()) for b in EVERY]
)


def lists(batch: int, seed: int = 0) -> tuple[list[int], list[int]]:
    draw = random.Random(batch + seed)
    lengths = [draw.choice([0, 0, 1, 2, 5]) for _ in range(batch)]
    return lengths, [draw.randrange(0, 90) for _ in range(batch)]


def both(lengths: list[int], keys: list[int], topk: int) -> tuple[list[int], list[int]]:
    """What must come out: the definition, token by token."""
    expanded, cached = [], []
    for q, kv in zip(lengths, keys, strict=True):
        for i in range(q):
            seen = kv - q + 1 + i
            seen = seen if seen > 0 else 0
            expanded.append(seen)
            cached.append(seen if seen < topk else topk)
    return expanded, cached


def as_it_is(x: torch.Tensor) -> torch.Tensor:
    return x


def fill(lengths, keys, topk, room, num_tokens, backend, device="cpu", place=as_it_is):
    """(what is returned, both outputs as lists) with `room` elements in each output."""
    outputs = [place(poisoned(room, device=device)) for _ in "ab"]
    inputs = [place(ints(x, device)) for x in (lengths, keys)]
    arguments = (*inputs, topk, *outputs, num_tokens)
    got = fill_draft_extend_metadata(*arguments, backend=backend)
    return got, *(x.tolist() for x in outputs)


# ---------------------------------------------------------------------------------- launchers


@each_device
def test_from_ends(device: str) -> None:
    for batch in BATCHES if device == "cuda" else (1, 3, 16, 17, 257, 1025):
        lengths, keys = lists(batch)
        ends = ints(lengths).cumsum(0).int()
        wanted = [ints([*x, LEAST]) for x in both(lengths, keys, TOPK)]
        n = sum(lengths)
        check_launches(
            *("metadata/fill_from_ends.cu", "fill_from_ends", [ends, ints(keys)], wanted),
            lambda inputs, out, b=batch, n=n: (*inputs, TOPK, *out, b, n),
            device,
        )


# ---------------------------------------------------------------------------------- operators


@each_device
@each_backend
def test_every_back_end_at_any_batch(backend: str, device: str) -> None:
    skip_unless_it_runs_on(device, backend)
    slow = "triton" in backend and device == "cpu"
    for batch in (1, 2, 17, 65) if slow else (*BATCHES, *([5000] if backend == "cuda" else [])):
        lengths, keys = lists(batch)
        n, rest = sum(lengths), [LEAST] * 5
        for num_tokens, place, topk in ((None, as_it_is, TOPK), (n, as_it_is, 0), (n, shifted, 7)):
            expanded, cached = both(lengths, keys, topk)
            ways = each_way(device) if "cuda" in backend and batch in ORDERED else [None]
            for _ in ways:
                got = fill(lengths, keys, topk, n + 5, num_tokens, backend, device, place)
                assert got == (n, expanded + rest, cached + rest), batch


@each_backend
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [3, 2]], ids=str)
def test_no_tokens_and_the_example_of_the_definition(backend: str, lengths: list[int]) -> None:
    keys = [10, 4] if any(lengths) else [7] * len(lengths)
    wanted = ([8, 9, 10, 3, 4], [8, 9, 9, 3, 4]) if any(lengths) else ([], [])
    for num_tokens in (None, sum(lengths)):
        got = fill(lengths, keys, 9, sum(lengths) + 2, num_tokens, backend)
        assert got == (sum(lengths), *(x + [LEAST] * 2 for x in wanted))


def test_the_name_that_stays() -> None:
    for adaptive in (True, False):
        out = [poisoned(6) for _ in "ab"]
        named = {"extend_seq_lens": ints([3, 2]), "seq_lens": ints([10, 4]), "nsa_index_topk": 9}
        named |= {"out_seqlens_expanded": out[0], "out_nsa_cache_seqlens": out[1]}
        assert fill_draft_extend_metadata_cuda(**named, use_adaptive=adaptive) == 5
        wanted = [[8, 9, 10, 3, 4, LEAST], [8, 9, 9, 3, 4, LEAST]]
        assert [x.tolist() for x in out] == wanted
        in_order = [*named.values()][:3], [poisoned(6) for _ in "ab"]
        assert fill_draft_extend_metadata_cuda(*in_order[0], *in_order[1], adaptive) == 5
        assert [x.tolist() for x in in_order[1]] == wanted


def test_kernel_info() -> None:
    info = get_kernel_info()
    assert info["available"] == is_cuda_kernel_available()
    assert info["backends"] == list(EVERY)
    if not torch.cuda.is_available():
        assert not is_cuda_kernel_available()
        assert (info["how"], info["backend"]) == ("emulated", "reference")


def test_constants_are_those_of_the_kernel() -> None:
    source = (jit.CSRC / get_kernel_info()["file"]).read_text()
    for name in ("THREADS", "LINEAR_UP_TO", "MOST_REQUESTS"):
        (value,) = re.findall(rf"constexpr int {name} = (\d+);", source)
        assert int(value) == getattr(metadata, name)
    assert get_kernel_info()["binary_search_threshold"] == metadata.LINEAR_UP_TO
    assert get_kernel_info()["block_size"] == metadata.THREADS


def test_the_threshold_is_the_largest_batch_at_which_counting_was_measured_no_slower() -> None:
    steps = kept("20_search_h200")["search"].values()
    slower = set()
    for step in steps:
        times = {who: row["graph_ms"] for who, row in step["rows"].items()}
        if times["cuda_linear"] > max(times["cuda_binary"], times["cuda_binary, again"]):
            slower.add(step["requests"])
    assert max({step["requests"] for step in steps} - slower) == metadata.LINEAR_UP_TO


# ---------------------------------------------------------------------------------- promises


@contextmanager
def no_lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """tolist, cpu and numpy are not operators, so no mode sees them."""

    def refuse(*_: object) -> None:
        raise AssertionError("a copy to the host")

    with monkeypatch.context() as patch:
        for name in ("tolist", "cpu", "numpy"):
            patch.setattr(torch.Tensor, name, refuse)
        yield


def test_the_reference_copies_nothing_to_the_host_if_it_is_told_the_count(monkeypatch) -> None:
    lengths, keys = lists(20)
    for num_tokens, wanted in ((sum(lengths), 0), (None, 1)):
        outputs = [poisoned(100) for _ in "ab"]
        arguments = (ints(lengths), ints(keys), TOPK, *outputs, num_tokens)
        with no_lists(monkeypatch), Seen() as seen:
            draft_metadata.fill_draft_extend_metadata(*arguments)
        # This operator copies a number to the host.
        assert seen.names.count("aten._local_scalar_dense.default") == wanted


@gpu_only
@each_backend
def test_captured_in_a_cuda_graph(backend: str, device: str) -> None:
    """A capture fails if anything waits for the device."""
    lengths, keys = lists(1024)
    n = sum(lengths)
    inputs = [ints(lengths, device), ints(keys, device)]
    outputs = [poisoned(n, device=device) for _ in "ab"]
    _, replay = captured(
        lambda: fill_draft_extend_metadata(*inputs, TOPK, *outputs, n, backend=backend)
    )
    lengths.reverse()
    inputs[0].copy_(ints(lengths))
    for out in outputs:
        out.fill_(LEAST)
    replay()
    assert [x.tolist() for x in outputs] == list(both(lengths, keys, TOPK))


@gpu_only
@pytest.mark.parametrize("backend", EVERY[1:])
@pytest.mark.parametrize("said", [0, 10, 300])
def test_a_wrong_count_writes_no_other_memory(backend: str, said: int, device: str) -> None:
    """Neither beyond the count that is given, nor beyond the sum."""
    lengths, keys = [3] * 40, [50] * 40
    _, expanded, cached = fill(lengths, keys, TOPK, 300, said, backend, device)
    for got, wanted in zip((expanded, cached), both(lengths, keys, TOPK), strict=True):
        written = wanted[:said]
        assert got == written + [LEAST] * (300 - len(written))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("function", [fill_draft_extend_metadata, "reference"])
def test_an_output_that_is_too_short(place: int, function) -> None:
    if function == "reference":
        function = draft_metadata.fill_draft_extend_metadata
    name = ("out_seqlens_expanded", "out_nsa_cache_seqlens")[place]
    outputs = [poisoned(5), poisoned(5)]
    outputs[place] = poisoned(4)
    for num_tokens in (None, 5):
        with pytest.raises(ValueError, match=f"{name} must have room for 5 tokens, got 4"):
            function(ints([3, 2]), ints([10, 4]), 9, *outputs, num_tokens)
        assert all((x == LEAST).all() for x in outputs)


def test_bad_arguments() -> None:
    q, kv, out = ints([3, 2]), ints([10, 4]), poisoned(5)
    with pytest.raises(TypeError, match="extend_seq_lens must be int32, got int64"):
        fill_draft_extend_metadata(q.long(), kv, 9, out, out)
    with pytest.raises(ValueError, match=r"seq_lens must have shape \[2\], got \[1\]"):
        fill_draft_extend_metadata(q, kv[:1], 9, out, out)
    with pytest.raises(ValueError, match="extend_seq_lens must not be negative, got -3"):
        fill_draft_extend_metadata(-q, kv, 9, out, out)
    with pytest.raises(ValueError, match="nsa_index_topk must not be negative, got -1"):
        fill_draft_extend_metadata(q, kv, -1, out, out)
    with pytest.raises(ValueError, match="num_tokens must be the sum of extend_seq_lens, 5, got 4"):
        fill_draft_extend_metadata(q, kv, 9, out, out, 4)
    with pytest.raises(ValueError, match="num_tokens must be the sum of extend_seq_lens, got 1"):
        fill_draft_extend_metadata(q[:0], kv[:0], 9, out, out, 1)
    with pytest.raises(ValueError, match=r"must be contiguous, got strides \[2\]"):
        fill_draft_extend_metadata(q, kv, 9, poisoned(10)[::2], out)
    many = ints([0] * 4097)
    for backend in ("cuda_binary", *["triton_binary"] * HAS_TRITON):
        with pytest.raises(ValueError, match="takes up to 4096 requests, got 4097"):
            fill_draft_extend_metadata(many, many, 9, out, out, backend=backend)
