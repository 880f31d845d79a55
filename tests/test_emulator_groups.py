"""Cooperative groups: what lanes that run together compute, in every order of threads."""

from itertools import accumulate
from pathlib import Path

import pytest
import torch

from yaie.emulator import runtime
from yaie.emulator.launch import Module

SOURCE = Path(__file__).parent / "emulator" / "groups.cu"
INT = torch.int32


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def groups(request):
    return Module(SOURCE.read_text(), SOURCE, checked=request.param)


@pytest.fixture(autouse=True, params=["forward", "reverse", "random"])
def order(groups, request):
    with runtime.settings(order=request.param, seed=3):
        yield
    assert groups.report is None or groups.report.clean, groups.report


def test_one_atomic_for_all_lanes_that_add(groups):
    x = torch.randint(0, 100, (1000,), generator=torch.Generator().manual_seed(1), dtype=INT)
    counter, kept = torch.zeros(1, dtype=INT), torch.full((1000,), -1, dtype=INT)
    groups.run_compact(x, counter, kept, 1000)
    wanted = [v for v in x.tolist() if v % 3 == 0]
    assert counter.item() == len(wanted)
    assert sorted(kept.tolist()) == sorted(wanted + [-1] * (1000 - len(wanted)))


def test_the_lanes_of_a_branch(groups):
    out = torch.full((5, 32), -1, dtype=INT)
    groups.run_branches(out)
    lanes = list(range(10, 32))
    down, up = [*lanes[1:], 31], [10, 11, *lanes[:-2]]
    odd = sum(1 << i for i, lane in enumerate(lanes) if lane % 2)
    same = {value: sum(1 << i for i, v in enumerate(lanes) if v // 30 == value) for value in (0, 1)}
    assert out[0].tolist() == [32] * 32
    assert out[1].tolist() == [10] * 10 + [a * 100 + b for a, b in zip(down, up, strict=True)]
    assert out[2, 10:].tolist() == [sum(lanes)] * 22
    assert out[3, 10:].tolist() == [odd ^ same[lane // 30] for lane in lanes]
    assert out[4, 10:].tolist() == [0, *accumulate(lanes[:-1])]


def test_the_partitions_of_a_warp(groups):
    out = torch.full((5, 64), -1, dtype=INT)
    groups.run_partitions(out)
    lanes = [t % 32 for t in range(64)]
    alike = [[u for u in range(t - t % 32, t - t % 32 + 32) if u % 3 == t % 3] for t in range(64)]
    assert out[0].tolist() == [lane // 4 * 100 + 8 for lane in lanes]
    assert out[1].tolist() == [100 * len(a) + a.index(t) for t, a in enumerate(alike)]
    assert out[2].tolist() == [1000 + n if n < 10 else 2200 + n - 10 for n in lanes]
    assert out[3].tolist() == [(3 if t // 2 % 2 == 0 else 12) * 100 + 151 for t in range(64)]
    assert out[4].tolist() == [a.index(t) % 2 for t, a in enumerate(alike)]


@pytest.mark.parametrize("size", [1, 4, 8, 32])
def test_a_group_whose_size_is_known_at_run_time(groups, size):
    out = torch.full((65,), -1, dtype=INT)
    groups.run_any_group(out, size)
    tiles = torch.arange(64).view(-1, size).sum(1).tolist()
    assert out[: 64 // size].tolist() == tiles
    assert out[64] == sum(range(64))


def test_scans(groups):
    x = torch.randint(-9, 9, (4, 16), generator=torch.Generator().manual_seed(2), dtype=INT)
    out = torch.full((3, 4, 16), -100, dtype=INT)
    groups.run_scans(x, out)
    sums = x.cumsum(1, dtype=INT)
    assert torch.equal(out[0], sums)
    assert torch.equal(out[1], x.cummax(1).values)
    assert torch.equal(out[2], sums - x)


def test_a_copy_shared_by_a_thread_block(groups):
    x, out = torch.arange(1000, dtype=INT), torch.full((1000,), -1, dtype=INT)
    groups.run_reverse(x, out, 1000)
    assert torch.equal(out, x.flip(0))
