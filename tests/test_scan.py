"""Prefix sums against a loop: both rungs, any length, any order of the threads."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_kernels import check_launches, poisoned
from launches import captured, each_device, gpu_only, ints

from yaie.build import jit
from yaie.course.lessons.ops.metadata import prefix_sum
from yaie.course.lessons.ops.reference.metadata import prefix_sum as reference

LENGTHS = (0, 1, 2, 3, 4, 5, 31, 32, 33, 127, 255, 1023, 1024, 1025)
LONG = (4095, 8192, 8193, 12_288, 12_291, 40_000)


def drawn(n: int, seed: int = 0) -> list[int]:
    draw = random.Random(seed + n)
    return [draw.randrange(-5, 100) for _ in range(n)]


def sums_before(x: list[int]) -> list[int]:
    sums = [0]
    for number in x:
        sums.append(sums[-1] + number)
    return sums


@each_device
@pytest.mark.parametrize("threads", [1, 4, 64, 1024])
def test_blelloch(threads: int, device: str) -> None:
    for n in LENGTHS:
        if n > 40 * threads:
            continue
        x = drawn(n)
        check_launches(
            *("scan/blelloch.cu", "blelloch", [ints(x)], [ints(sums_before(x))]),
            lambda inputs, out, n=n: (*inputs, *out, n, threads),
            device,
        )


@pytest.mark.parametrize("threads", [0, -2, 3, 48, 2048])
def test_blelloch_takes_a_power_of_two(threads: int) -> None:
    with pytest.raises(jit.KernelError, match="cudaErrorInvalidValue"):
        jit.load("scan/blelloch.cu").blelloch_i32(ints([1]), poisoned(2), 1, threads)


@each_device
def test_prefix_sum_of_any_length(device: str) -> None:
    for n in (*LENGTHS, *LONG):
        x = drawn(n)
        check_launches(
            *("scan/prefix_sum.cu", "prefix_sum", [ints(x)], [ints(sums_before(x))]),
            lambda inputs, out, n=n: (*inputs, *out, poisoned(n // 4096 + 2, device=device), n),
            device,
        )


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_operator(backend: str, device: str) -> None:
    for n in (0, 1, 100, 9000):
        x = drawn(n)
        assert prefix_sum(ints(x, device), backend=backend).tolist() == sums_before(x)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-1000, 1000), max_size=300))
def test_any_numbers(x: list[int]) -> None:
    wanted = sums_before(x)
    assert reference(ints(x)).tolist() == wanted
    assert prefix_sum(ints(x), backend="cuda").tolist() == wanted


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(TypeError, match="x must be int32, got int64"):
        prefix_sum(torch.arange(3))
    with pytest.raises(ValueError, match=r"x must have shape \[n\], got \[1, 3\]"):
        prefix_sum(ints([[1, 2, 3]]))


@gpu_only
def test_captured_in_a_cuda_graph(device: str) -> None:
    x = ints(drawn(20_000), device)
    got, replay = captured(lambda: prefix_sum(x, backend="cuda"))
    fresh = drawn(20_000, seed=1)
    x.copy_(ints(fresh))
    replay()
    assert got.tolist() == sums_before(fresh)
