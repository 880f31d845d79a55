"""CUDA C++ on the CPU: kernels compute what they compute on a GPU."""

import os
import re
import threading

import pytest
import torch
from emulated import FEATURES as SOURCE
from emulated import with_launchers
from warm import python

from yaie.emulator import runtime
from yaie.emulator.launch import KernelError, Module

TEXT = with_launchers(SOURCE.read_text())
SCHEDULES = [("forward", 0), ("reverse", 0), ("random", 1), ("random", 2)]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def kernels(request):
    return Module(TEXT, SOURCE, checked=request.param)


@pytest.fixture(params=SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
def schedule(request):
    with runtime.settings(order=request.param[0], seed=request.param[1]):
        yield request.param


def clean(kernels) -> bool:
    return kernels.report is None or kernels.report.clean


def test_three_dimensions(kernels, schedule):
    out = torch.full((12 * 24,), -1, dtype=torch.int32)
    kernels.run_places(out)
    expected = [block * 1000 + thread for block in range(12) for thread in range(24)]
    assert out.tolist() == expected
    assert clean(kernels), kernels.report


@pytest.mark.parametrize("n", [1, 31, 256, 257, 5000])
def test_reduction_in_dynamic_shared_memory(kernels, schedule, n):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    out = torch.empty((n + 255) // 256)
    kernels.run_tree_sum(x, out, n)
    torch.testing.assert_close(out.double().sum(), x.double().sum(), rtol=1e-5, atol=1e-4)
    assert clean(kernels), kernels.report


@pytest.mark.parametrize("rows, columns", [(1, 1), (33, 31), (70, 65)])
def test_transpose_through_a_template(kernels, schedule, rows, columns):
    x = torch.randn(rows, columns)
    out = torch.empty(columns, rows)
    kernels.run_transpose(x, out, rows, columns)
    assert torch.equal(out, x.T)
    halves = torch.empty(columns, rows, dtype=torch.float16)
    kernels.run_transpose_half(x.half(), halves, rows, columns)
    assert torch.equal(halves, x.half().T)
    assert clean(kernels), kernels.report


def bits(lanes) -> int:
    value = sum(1 << lane for lane in lanes)
    return value - (1 << 32) if value >= 1 << 31 else value


def test_warp_operations(kernels, schedule):
    lanes = range(32)
    out = torch.zeros(17, 32, dtype=torch.int32)
    kernels.run_warp_operations(out)
    odd = 0
    for lane in lanes:
        odd ^= lane * 3
    expected = [
        [50] * 32,
        [lane // 8 * 8 + 1 for lane in lanes],
        [lane - 3 if lane >= 3 else lane for lane in lanes],
        [lane + 3 if lane + 3 < 32 else lane for lane in lanes],
        [lane + 3 if lane % 8 + 3 < 8 else lane for lane in lanes],
        [lane ^ 5 for lane in lanes],
        [(lane ^ 2) // 2 for lane in lanes],
        [1] * 32,
        [0] * 32,
        [bits(lane for lane in lanes if lane % 3 == 0)] * 32,
        [496] * 32,
        [-26] * 32,
        [5] * 32,
        [odd] * 32,
        [bits(range(lane // 8 * 8, lane // 8 * 8 + 8)) for lane in lanes],
        [sum(range(16))] * 16 + [sum(range(16, 32))] * 16,
        [0] * 32,  # all lanes, plus one
    ]
    assert out.tolist() == expected
    assert clean(kernels), kernels.report


def test_barriers_that_count(kernels, schedule):
    out = torch.zeros(100, dtype=torch.int32)
    kernels.run_barrier_votes(out)
    assert out.tolist() == [3410] * 100


def test_atomics(kernels, schedule):
    ints, total = torch.full((5,), 9, dtype=torch.int32), torch.zeros(1)
    wrapped = torch.zeros(1, dtype=torch.int32)
    kernels.run_atomics(ints, total, wrapped)
    threads = 37 * 96
    assert ints.tolist() == [threads, threads - 1, -95, -1, 2 * threads]
    assert total.item() == threads / 2
    assert wrapped.item() == threads % 7


def test_vectors_and_constant_memory(kernels):
    x = torch.randn(513, 4)
    out = torch.empty_like(x)
    kernels.run_vectors(x, out, 513)
    assert torch.equal(out, x.flip(1) + torch.tensor([0.0, 2.0, 0.0, 0.0]))
    assert clean(kernels), kernels.report


def test_half_is_bit_exact(kernels):
    a = torch.randn(2048, generator=torch.Generator().manual_seed(0)).half() * 100
    b = torch.randn(2048, generator=torch.Generator().manual_seed(1)).half()
    out = torch.empty_like(a)
    kernels.run_half_add_relu(a, b, out, 1024)
    assert torch.equal(out, (a + b).relu())


def test_fused_multiply_add_rounds_once(kernels):
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.randn(4096, generator=generator).half() for _ in range(3))
    out = torch.empty_like(a)
    kernels.run_half_fma(a, b, c, out, 4096)
    exact = a.double() * b.double() + c.double()
    nearest = torch.tensor(exact.numpy().astype("float16"))
    assert torch.equal(out, nearest)


def test_every_half_survives_the_way_through_float(kernels):
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    a = every.view(torch.float16)
    zeros = torch.zeros_like(a)
    out = torch.empty_like(a)
    kernels.run_half_fma(a, torch.ones_like(a), zeros, out, a.numel())
    number = ~a.isnan()
    assert torch.equal(out[number], a[number])
    assert out[~number].isnan().all()


@pytest.mark.parametrize("scale", [1.0, 1.3, 1e-3, float("inf")])
def test_bfloat16_rounds_to_nearest_even(kernels, scale):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(2)).bfloat16()
    out = torch.empty_like(x)
    kernels.run_brain_scale(x, out, scale, 1000)
    assert torch.equal(out, (x.float() * torch.tensor(scale)).bfloat16())


def test_cooperative_groups(kernels, schedule):
    x = torch.arange(64, dtype=torch.float32)
    out = torch.zeros(8)
    kernels.run_tiles(x, out)
    assert torch.equal(out, x.view(8, 8).sum(1))
    assert clean(kernels), kernels.report


def test_mathematics(kernels):
    x = torch.linspace(0.5, 5, 64)
    out = torch.empty(64)
    kernels.run_mathematics(x, out, 64)
    i = torch.arange(64)
    ones = torch.tensor([bin(k).count("1") for k in range(64)])
    expected = x.rsqrt() + (-x).exp() + x.clamp(min=2) + ones + x + i.clamp(min=3) + x / 2
    torch.testing.assert_close(out, expected)


def test_printf_reaches_python(kernels, capsys):
    kernels.run_says()
    assert capsys.readouterr().out == "thread 0 of 64\nthread 1 of 64\n"


def line_of(text: str) -> int:
    rows = SOURCE.read_text().splitlines()
    return 1 + next(i for i, row in enumerate(rows) if text in row)


def test_a_failed_assertion_names_its_line(kernels):
    kernels.run_asserts(4)
    with pytest.raises(KernelError, match=rf"line {line_of('assert(n > 3)')}: .*n > 3"):
        kernels.run_asserts(3)
    kernels.run_asserts(4)


def test_a_crash_is_an_exception_and_the_next_launch_works():
    kernels = Module(TEXT, SOURCE)
    line = line_of("1ll << 40")
    with pytest.raises(KernelError, match=f"line {line}: segmentation fault"):
        kernels.run_crashes(torch.zeros(1, dtype=torch.int32))
    test_three_dimensions(kernels, None)


def test_division_by_zero(kernels):
    line = line_of("7 / p[1]")
    with pytest.raises(KernelError, match=f"line {line}: integer division by zero"):
        kernels.run_divides(torch.zeros(2, dtype=torch.int32))


@pytest.mark.parametrize("name", ["hangs", "hangs_at_barriers"])
def test_an_endless_loop_ends(kernels, name):
    flag = torch.zeros(1, dtype=torch.int32)
    launch, line = getattr(kernels, f"run_{name}"), line_of(f"void {name}(")
    with runtime.settings(time_limit=0.2), pytest.raises(KernelError) as caught:
        launch(flag)
    found = re.search(r"line (\d+): still running when the time limit", str(caught.value))
    assert found and line <= int(found[1]) <= line + 2, caught.value
    flag[0] = 1
    launch(flag)


def test_without_hand_written_switches():
    """Other processors go from thread to thread by ucontext: the same results."""
    code = (
        "import sys, torch; from yaie.emulator import build\n"
        "build._RUNTIME.append('-DEMULATOR_UCONTEXT')\n"
        "from yaie.emulator.launch import KernelError, Module\n"
        "m = Module(*sys.argv[1:])\n"
        "x, out = torch.ones(5000), torch.empty(20)\n"
        "m.run_tree_sum(x, out, 5000)\n"
        "try: m.run_crashes(torch.zeros(1, dtype=torch.int32))\n"
        "except KernelError as error: print('segmentation fault' in str(error))\n"
        "m.run_tree_sum(x, out, 5000)\n"
        "print(out.sum().item())\n"
    )
    done = python(code, TEXT, SOURCE)
    assert done.stdout.split() == ["True", "5000.0"], done.stderr


def test_calls_from_several_python_threads(kernels):
    results = []

    def sums(value: float) -> None:
        x, out = torch.full((512,), value), torch.empty(2)
        for _ in range(5):
            kernels.run_tree_sum(x, out, 512)
            results.append(out.sum().item() == 512 * value)

    threads = [threading.Thread(target=sums, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_a_forked_process_has_its_own_cores():
    kernels = Module(TEXT, SOURCE)
    ints, total = torch.zeros(5, dtype=torch.int32), torch.zeros(1)
    wrapped = torch.zeros(1, dtype=torch.int32)
    kernels.run_atomics(ints, total, wrapped)  # starts the helpers, which a fork does not copy
    child = os.fork()
    if child == 0:
        kernels.run_atomics(ints, total, wrapped)
        os._exit(0 if ints[0] == 37 * 96 else 1)
    assert os.waitpid(child, 0)[1] == 0
