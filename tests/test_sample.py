"""The sampling kernels: what is kept, which token a number draws, how often, and what is refused.

A number is looked up in the cumulative probabilities, in descending order. So a token drawn with 0
is the first that the filters keep, and one drawn with the largest number below 1 the last: with the
order they say what is kept. Where rounding could move a threshold or a token's border, there is no
one answer; such numbers are left out, and `away_from_edges` says which.
"""

import collections
import math
import struct
from functools import partial

import pytest
import torch
from launches import captured, each_device, each_dtype, shifted
from oracles import EXAMPLE, FILTERED, chi_square_p

from yaie.build import jit
from yaie.course.lessons.ops.reference import sampling as seeded
from yaie.course.lessons.ops.sampling import gumbel_sample
from yaie.emulator import settings
from yaie.engine.sampling import SamplingKernel
from yaie.ops.cuda.launching import SUFFIXES
from yaie.ops.reference import sampling as draws
from yaie.ops.sampling import sample

INF = math.inf
LAST = 1 - 2**-53  # the largest uniform number
DRAWN = 2**-31.95  # of the largest probability: less is never drawn
VOCABULARIES = (1, 2, 31, 33, 383, 1000, 2049, 4099)
SETTINGS = [  # temperature, top_k, top_p, min_p
    *((1.0, 0, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (0.7, 50, 0.9, 0.0), (1.5, 3, 1.0, 0.0)),
    *((1.0, 0, 0.5, 0.0), (2.0, 0, 0.95, 0.02), (1.0, 0, 1.0, 0.3), (0.3, 1, 0.9, 0.5)),
    *((1.0, 2**31 - 1, 0.0, 1.0), (1e-30, 20, 0.9, 0.0), (5.0, 700, 0.999, 0.001)),
]


def parameters(rows: list[tuple], uniform: float | list[float], device: str = "cpu") -> tuple:
    """The operator's parameters of rows of `SETTINGS`, with a number for all or each."""
    temperature, top_k, top_p, min_p = zip(*rows, strict=True)
    numbers = uniform if isinstance(uniform, list) else [uniform] * len(rows)
    make = partial(torch.tensor, device=device)
    return (
        make(temperature),
        make(top_k, dtype=torch.int32),
        make(top_p),
        make(min_p),
        make(numbers, dtype=torch.float64),
    )


def normal(rows: int, size: int, dtype: torch.dtype, scale: float = 3.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, size, generator=generator) * scale).to(dtype)


def sorted_masses(logits: torch.Tensor, setting: tuple) -> tuple[list[int], list[float]]:
    """What is kept of a row, best first, with probabilities: one by one, in float64."""
    temperature, top_k, top_p, min_p = setting
    top_p, min_p = (torch.tensor(x).double().item() for x in (top_p, min_p))  # as float32 has them
    row = logits.double().tolist()
    ids = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if temperature == 0:
        return ids[:1], [1.0]
    if 0 < top_k < len(ids):
        ids = [i for i in ids if row[i] >= row[ids[top_k - 1]]]
    mass = [math.exp((row[i] - row[ids[0]]) / temperature) for i in ids]
    kept, total = 0.0, math.fsum(mass)
    for count, one in enumerate(mass):
        if count > 0 and top_p < 1 and kept >= top_p * total:
            ids, mass = ids[:count], mass[:count]
            break
        kept += one
    count = sum(one >= min_p for one in mass)
    count = sum(one >= DRAWN for one in mass[:count])
    total = math.fsum(mass[:count])
    return ids[:count], [one / total for one in mass[:count]]


def away_from_edges(logits: torch.Tensor, setting: tuple, slack: float = 1e-5) -> bool:
    """Whether the same is kept with every threshold a little higher and a little lower."""
    temperature, top_k, top_p, min_p = setting
    kept = {
        len(sorted_masses(logits, (temperature, top_k, p, m))[0])
        for p, m in ((top_p + d if top_p < 1 else 1, min_p * (1 + d)) for d in (-slack, 0, slack))
    }
    return len(kept) == 1


# ------------------------------------------------------------------------------------- which token


@pytest.mark.parametrize("backend", ["cuda", "reference"])
@each_device
@each_dtype()
@pytest.mark.parametrize("size", VOCABULARIES)
def test_a_number_is_in_the_share_of_its_token(size, dtype, device, backend) -> None:
    """0 draws the first token that is kept, the largest number the last."""
    logits = normal(len(SETTINGS), size, dtype, seed=1)
    clear = [away_from_edges(*pair) for pair in zip(logits, SETTINGS, strict=True)]
    assert sum(clear) > len(clear) // 2
    for uniform in (0.0, 0.03, 0.5, 0.77, LAST):
        given = parameters(SETTINGS, uniform, device)
        tokens = sample(logits.to(device), *given, backend=backend).tolist()
        for row, setting, token, sure in zip(logits, SETTINGS, tokens, clear, strict=True):
            ids, mass = sorted_masses(row, setting)
            place = f"{setting} at {uniform}: {token}"
            if uniform == 0 or (uniform == LAST and sure):
                assert token == ids[0 if uniform == 0 else -1], place
            slack, before = 1e-5 if sure else 0.1, math.fsum(mass[: ids.index(token)])
            share = mass[ids.index(token)]
            assert before - slack <= uniform <= before + share + slack, place


@each_device
@pytest.mark.parametrize("size", [49152, 128256])
def test_large_vocabularies(size: int, device: str) -> None:
    rows = [(1.0, 0, 1.0, 0.0), (0.8, 50, 0.9, 0.0), (1.0, 0, 0.9, 0.01), (0.0, 0, 1.0, 0.0)]
    logits = normal(len(rows), size, torch.float32, scale=1.0)
    for uniform in (0.4, LAST):
        given = parameters(rows, uniform)
        got = sample(logits.to(device), *(t.to(device) for t in given), backend="cuda").cpu()
        wanted = draws.sample(logits, *given)
        chosen = logits.gather(1, torch.stack((got, wanted), dim=1))
        torch.testing.assert_close(chosen[:, 0], chosen[:, 1], rtol=1e-4, atol=1e-4)


@each_device
def test_the_maximum_may_be_anywhere(device: str) -> None:
    """Near the first logits, which the kernel measures by, or so far above that it begins again;
    and the first logits may be masked."""
    logits = normal(1, 5000, torch.float32).repeat(6, 1)
    logits[0, 4500], logits[1, 4500], logits[2, 4500] = 15.0, 33.0, 90.0
    logits[3, :3100], logits[4, :4900] = -INF, -INF
    logits[5, 3100:] -= 50.0
    for setting in (
        (1.0, 0, 1.0, 0.0),
        (2.0, 0, 0.9, 0.0),
        (3.0, 60, 1.0, 0.01),
        (0.3, 0, 1.0, 0.0),
    ):
        for uniform in (0.2, 0.9, LAST):
            given = parameters([setting] * 6, uniform)
            got = sample(logits.to(device), *(t.to(device) for t in given), backend="cuda").cpu()
            for row, token in zip(logits, got.tolist(), strict=True):
                ids, mass = sorted_masses(row, setting)
                before = math.fsum(mass[: ids.index(token)])
                assert before - 1e-5 <= uniform <= before + mass[ids.index(token)] + 1e-5


def test_ties_follow_the_reference() -> None:
    """top-k keeps all that tie with the last, top-p the first of them, a draw knows their ids."""
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0, -0.0]])
    for setting, kept in (
        ((1.0, 2, 1.0, 0.0), [1, 2, 3, 4]),
        ((1.0, 1, 1.0, 0.0), [1]),
        ((1.0, 0, 0.5, 0.0), [1, 2]),
        ((1.0, 5, 1.0, 0.0), [1, 2, 3, 4, 0]),
        ((1.0, 6, 1.0, 0.0), [1, 2, 3, 4, 0, 5, 6]),  # 0 and -0 are equal
        ((1.0, 0, 1.0, 0.3), [1, 2, 3, 4]),
    ):
        ids, mass = sorted_masses(logits[0], setting)
        assert ids == kept
        middles = [math.fsum(mass[:i]) + mass[i] / 2 for i in range(len(ids))]
        given = parameters([setting] * len(ids), middles)
        for backend in ("cuda", "reference"):
            rows = logits.expand(len(ids), -1).contiguous()
            assert sample(rows, *given, backend=backend).tolist() == ids


@pytest.mark.parametrize("size", [5, 3000, 70_000])
def test_equal_logits_are_counted(size: int) -> None:
    """More than fit in the list: it is found which of them by the bits of its id."""
    settings_ = [(1.0, 0, 1.0, 0.0), (0.5, 0, 0.5, 0.0), (1.0, 3, 1.0, 0.0), (0.0, 0, 1.0, 0.0)]
    logits = torch.full((len(settings_), size), -7.25)
    for uniform in (0.0, 0.2999, LAST):
        tokens = sample(logits, *parameters(settings_, uniform), backend="cuda").tolist()
        half = (size + 1) // 2
        assert tokens == [int(uniform * n) for n in (size, half, size, 1)]


def test_the_same_as_the_sampling_kernel_keeps() -> None:
    """`SamplingKernel`'s filters, one after the other, keep as many as the last number finds."""
    kernel = SamplingKernel()
    logits = normal(40, 700, torch.float32, seed=3)
    rows = [
        (0.8, 40, 0.9, 0.0),
        (1.3, 0, 0.7, 0.02),
        (1.0, 5, 1.0, 0.1),
        (2.0, 300, 0.99, 0.0),
    ] * 10
    clear = [away_from_edges(*pair, slack=1e-4) for pair in zip(logits, rows, strict=True)]
    temperature, top_k, top_p, min_p, uniform = parameters(rows, LAST)
    scaled = logits / temperature.unsqueeze(1)
    left = kernel.min_p(kernel.top_p(kernel.top_k(scaled, top_k), top_p), min_p)
    last = left.masked_fill(left.isinf(), INF).flip(1).argmin(dim=1)  # of ties the last id
    tokens = sample(logits, temperature, top_k, top_p, min_p, uniform, backend="cuda")
    sure = torch.tensor(clear)
    assert sure.sum() > 30
    assert torch.equal(tokens[sure], 699 - last[sure])


# ------------------------------------------------------------------------------------- how often


DRAWS = 10_000


def chi_square(tokens: torch.Tensor, weights: list[float]) -> float:
    return chi_square_p(torch.bincount(tokens.cpu(), minlength=len(weights)).tolist(), weights)


def example_logits(rows: int) -> torch.Tensor:
    return torch.tensor(EXAMPLE).log().expand(rows, -1).contiguous()


@pytest.mark.parametrize("name", FILTERED)
def test_tokens_come_as_often_as_they_should(name: str) -> None:
    """To one draw, by numbers that lie evenly between 0 and 1."""
    (setting, weights), rows = FILTERED[name], 250
    given = parameters([setting] * rows, [(i + 0.5) / rows for i in range(rows)])
    counts = sample(example_logits(rows), *given, backend="cuda").bincount(minlength=len(weights))
    wanted = torch.tensor(weights) / sum(weights) * rows
    assert (counts - wanted).abs().max() <= 1, counts


@each_device
@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_gumbel_is_a_draw(backend: str, device: str) -> None:
    for temperature in (1.0, 2.0):
        rows = DRAWS if backend == "reference" else 1500
        weights = [p ** (1 / temperature) for p in EXAMPLE]
        seeds = torch.arange(rows)
        temperatures = torch.full((rows,), temperature)
        by_seed = (example_logits(rows), temperatures, seeds, torch.zeros_like(seeds))
        by_step = (example_logits(rows), temperatures, torch.full_like(seeds, -5), seeds)
        for given in (by_seed, by_step):
            given = [t.to(device) for t in given]
            tokens = gumbel_sample(*given, backend=backend)
            assert chi_square(tokens, weights) > 1e-3
            assert chi_square(tokens, [p**1.5 for p in weights]) < 1e-4


# ------------------------------------------------------------------------------------- streams


def test_philox_is_that_of_the_paper() -> None:
    """The known answers of the authors' own library: Philox4x32, 10 rounds."""
    zero = torch.zeros(4, dtype=torch.int64)
    words = seeded.philox(zero, zero, torch.arange(4))
    assert [f"{word:08x}" for word in words] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_no_uniform_number_is_0_or_1() -> None:
    """Not even of the least and the largest bits there are; their noise would be infinite."""
    seeds = torch.tensor([12_513_068, 25_875_730])
    step, token = torch.zeros(2, dtype=torch.int64), torch.full((2,), 7)
    assert seeded.philox(seeds, step, token).tolist() == [0x17, 0xFFFFFFEC]
    low, high = seeded.uniforms(seeds, step, token).tolist()
    assert 0 < low < 1e-7 and 1 - 1e-7 < high < 1


def test_uniform_numbers_are_uniform() -> None:
    u = seeded.uniforms(torch.tensor([3]), torch.tensor([9]), torch.arange(100_000))
    assert u.min() > 0 and u.max() < 1 and len(u.unique()) > 99_000
    assert chi_square((u * 50).long(), [1.0] * 50) > 1e-3
    pairs = (u[::2] * 8).long() * 8 + (u[1::2] * 8).long()
    assert chi_square(pairs, [1.0] * 64) > 1e-3


@each_device
@each_dtype()
def test_gumbel_equals_the_reference(dtype: torch.dtype, device: str) -> None:
    seeds = torch.tensor([0, -1, 2**40 + 7, 5, 5, 6, 2**63 - 1])
    steps = torch.tensor([0, 3, 2**33, 1, 2, 1, -1])
    temperature = torch.tensor([1.0, 0.0, 0.5, 2.0, 1e-30, 1e30, 1.0])
    for size in VOCABULARIES:
        logits = normal(7, size, dtype)
        given = [t.to(device) for t in (logits, temperature, seeds, steps)]
        assert torch.equal(gumbel_sample(*given, backend="cuda").cpu(),
                           seeded.gumbel_sample(logits, temperature, seeds, steps))  # fmt: skip


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_a_row_does_not_depend_on_the_batch(backend: str) -> None:
    logits = normal(9, 700, torch.float32)
    rows = (SETTINGS * 2)[:9]
    numbers = [(i + 0.5) / 9 for i in range(9)]
    seeds, steps = torch.arange(9), torch.arange(9) * 5
    together = sample(logits, *parameters(rows, numbers), backend=backend)
    temperature = parameters(rows, 0.0)[0]
    drawn = gumbel_sample(logits, temperature, seeds, steps, backend=backend)
    for i in (0, 4, 8):
        one = slice(i, i + 1)
        alone = sample(logits[one], *parameters(rows[one], numbers[one]), backend=backend)
        assert alone == together[i]
        alone = gumbel_sample(
            logits[one], temperature[one], seeds[one], steps[one], backend=backend
        )
        assert alone == drawn[i]


# ------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_rows_that_cannot_be_sampled(backend: str) -> None:
    logits = normal(6, 40, torch.float32)
    logits[0, 3], logits[1, 39], logits[2], logits[3, 1:] = math.nan, INF, -INF, -INF
    logits[5, :] = math.nan
    for temperature in (0.0, 1.0):
        rows = [(temperature, 5, 0.9, 0.1)] * 6
        tokens = sample(logits, *parameters(rows, LAST), backend=backend).tolist()
        assert tokens[:4] == [-1, -1, -1, 0] and tokens[4] >= 0 and tokens[5] == -1
    zeros = torch.zeros(6, dtype=torch.int64)
    tokens = gumbel_sample(logits, torch.ones(6), zeros, zeros, backend=backend).tolist()
    assert (
        tokens[1] == 39 and tokens[2:4] == [-1, 0] and tokens[5] == -1 and tokens[0] not in (-1, 3)
    )


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_logits_of_any_size(backend: str) -> None:
    logits = torch.tensor([[3e38, -3e38, 0.0, 3.4e38], [-3e38, -3.1e38, -3.2e38, -INF]])
    for temperature in (1e-40, 1.0, 1e30):
        given = parameters([(temperature, 0, 1.0, 0.0)] * 2, 0.0)
        assert sample(logits, *given, backend=backend).tolist() == [3, 0]
    huge = parameters([(1e38, 0, 1.0, 0.0)] * 3, [0.1, 0.5, 0.9])
    logits = torch.tensor([[1.0, 2.0, 30.0, -INF]]).expand(3, -1).contiguous()
    assert sample(logits, *huge, backend=backend).tolist() == [2, 1, 0]


def test_an_empty_batch() -> None:
    given = [t[:0] for t in parameters(SETTINGS[:1], 0.0)]
    for backend in ("cuda", "reference"):
        assert sample(torch.zeros(0, 5), *given, backend=backend).shape == (0,)


# ------------------------------------------------------------------------------------- the kernels


def run_sample(module, logits, rows, uniform) -> torch.Tensor:
    tokens = torch.full((len(rows),), -9)
    launch = getattr(module, f"sample_{SUFFIXES[logits.dtype]}")
    launch(logits, *parameters(rows, uniform), tokens, *logits.shape)
    return tokens


@each_dtype()
@pytest.mark.parametrize("size", [33, 400, 2500])
def test_same_tokens_in_any_order_and_clean(size: int, dtype: torch.dtype) -> None:
    logits = normal(len(SETTINGS), size, dtype)
    logits[0] = 1.0  # ties, more than the list holds at 2500
    checked = jit.load("sampling/sample.cu", checked=True)
    tokens = run_sample(checked, logits, SETTINGS, 0.6)
    assert checked.report.clean, checked.report
    plain = jit.load("sampling/sample.cu")
    for order, seed in (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2)):
        with settings(order=order, seed=seed):
            assert torch.equal(run_sample(plain, logits, SETTINGS, 0.6), tokens)


@each_dtype()
def test_any_alignment(dtype: torch.dtype) -> None:
    module = jit.load("sampling/sample.cu", checked=True)
    for size in (3, 64, 101):
        logits = normal(len(SETTINGS), size, dtype)
        moved, there = (
            run_sample(module, given, SETTINGS, 0.3) for given in (shifted(logits), logits)
        )
        assert torch.equal(moved, there)
        assert module.report.clean, module.report


@each_dtype()
def test_gumbel_clean_in_checked_mode(dtype: torch.dtype) -> None:
    """Any number of threads draws the same tokens."""
    module = jit.load("sampling/gumbel.cu", checked=True)
    for size, blocks, threads in ((1, 1, 32), (33, 2, 64), (100, 3, 96), (300, 2, 1024)):
        logits, seeds = normal(4, size, dtype), torch.arange(4)
        tokens = torch.full((4,), -9)
        launch = getattr(module, f"gumbel_sample_{SUFFIXES[dtype]}")
        launch(logits, torch.ones(4), seeds, seeds, tokens, 4, size, blocks, threads)
        assert module.report.clean, module.report
        assert torch.equal(tokens, seeded.gumbel_sample(logits, torch.ones(4), seeds, seeds))


@each_dtype()
@pytest.mark.parametrize("size", [1, 31, 33, 96, 500])
def test_softmax_stats(size: int, dtype: torch.dtype) -> None:
    """Maximum and sum of rows far from zero, and of rows with nothing in them."""
    x = normal(5, size, dtype)
    x[1], x[2] = x[1] - 1000, -INF
    x[3, : size // 2] = -INF
    found = []
    for checked, order in ((True, "forward"), (False, "reverse"), (False, "random")):
        module = jit.load("sampling/softmax_stats.cu", checked)
        best, total = torch.full((5,), math.nan), torch.full((5,), math.nan)
        with settings(order=order):
            getattr(module, f"softmax_stats_{SUFFIXES[dtype]}")(x, best, total, 5, size, 2, 96)
        assert not checked or module.report.clean, module.report
        found.append((best, total))
    assert all(
        torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True)
    )
    best, total = found[0]
    assert torch.equal(best, x.float().amax(dim=1))
    assert total[2] == 0
    some = [0, 1, 3, 4]
    wanted = (x[some].double() - x[some].double().amax(1, keepdim=True)).exp().sum(1)
    torch.testing.assert_close(total[some].double(), wanted, rtol=1e-5, atol=0)


@each_dtype()
@pytest.mark.parametrize("size", [1, 31, 257, 3000])
def test_threshold_of_top_p(size: int, dtype: torch.dtype) -> None:
    x = normal(6, size, dtype)
    x[1] = 0.0
    best = x.float().amax(dim=1)
    # Of the kernel's own masses, which no rounding of exp may change: they are asked of it.
    mass = ((x.float() - best.unsqueeze(1)).exp() * 2**24 + 0.5).long()
    ordered, order = x.float().sort(dim=1, descending=True, stable=True)
    enough = (torch.tensor([0.9, 0.5, 1e-9, 0.99, 0.3, 1.0]).double() * mass.sum(1)).ceil().long()
    enough = enough.clamp(min=1)
    cumulative = mass.gather(1, order).cumsum(dim=1)
    place = (cumulative < enough.unsqueeze(1) - 2 * size).sum(dim=1)  # exp may differ by a unit
    other = (cumulative < enough.unsqueeze(1) + 2 * size).sum(dim=1).clamp(max=size - 1)
    for checked, order in ((size < 300, "forward"), (False, "reverse"), (False, "random")):
        module = jit.load("sampling/top_p.cu", checked)
        threshold, above = torch.full((6,), math.nan), torch.full((6,), -9)
        with settings(order=order):
            getattr(module, f"top_p_threshold_{SUFFIXES[dtype]}")(
                x, best, enough, threshold, above, 6, size, 4
            )
        assert not checked or module.report.clean, module.report
        for r in range(6):
            assert ordered[r, other[r]] <= threshold[r] <= ordered[r, place[r]]
            wanted = mass[r][x[r].float() > threshold[r]].sum()
            assert abs(above[r] - wanted) <= 2 * size


@each_dtype()
@pytest.mark.parametrize("size", [0, 1, 127, 1000, 5000])
def test_privatised_histogram(size: int, dtype: torch.dtype) -> None:
    """The bins that a sort of the distinct values by their keys gives."""
    x = normal(1, size, dtype)[0]
    x[::5], x[1::5] = 0.0, -0.0

    def bin_of(value: float) -> int:
        bits = int.from_bytes(struct.pack(">f", value + 0.0), "big")
        return (bits if bits >> 31 else 0x7FFFFFFF - bits) >> 24

    found = collections.Counter(map(bin_of, x.tolist()))
    wanted = torch.tensor([found[number] for number in range(256)], dtype=torch.int32)
    for checked, order in ((True, "forward"), (False, "reverse"), (False, "random")):
        module = jit.load("sampling/histogram.cu", checked)
        counts = torch.full((256,), -9, dtype=torch.int32)
        with settings(order=order):
            getattr(module, f"histogram_{SUFFIXES[dtype]}")(x, counts, size, 3)
        assert not checked or module.report.clean, module.report
        assert torch.equal(counts, wanted)


# ------------------------------------------------------------------------------------- operators


def operator_arguments(device: str = "cpu") -> tuple[tuple, tuple]:
    logits = normal(5, 60, torch.float32).to(device)
    seeds = torch.arange(5, device=device)
    rows = parameters(SETTINGS[:5], [0.1, 0.3, 0.5, 0.7, 0.9], device)
    return (logits, *rows), (logits, rows[0], seeds, seeds)


@each_device
def test_opcheck(device: str) -> None:
    first, second = operator_arguments(device)
    torch.library.opcheck(torch.ops.yaie.sample.default, first, {"backend": "cuda"})
    torch.library.opcheck(torch.ops.yaie.gumbel_sample.default, second, {"backend": "cuda"})


def test_bad_arguments() -> None:
    first, _ = operator_arguments()
    logits, temperature, top_k, top_p, min_p, uniform = first
    with pytest.raises(ValueError, match="logits must have at least one column"):
        sample(logits[:, :0].contiguous(), *first[1:])
    with pytest.raises(ValueError, match=r"temperature must have shape \[5\], got \[4\]"):
        sample(logits, temperature[:4], *first[2:])
    with pytest.raises(TypeError, match="top_k must be int32, got int64"):
        sample(logits, temperature, top_k.long(), *first[3:])
    off = sample(logits, temperature, torch.full_like(top_k, -1), *first[3:], backend="cuda")
    assert off.equal(sample(logits, temperature, torch.zeros_like(top_k), *first[3:]))
    with pytest.raises(ValueError, match=r"top_p must be from 0\.0 to 1\.0, got 1\.5"):
        sample(logits, temperature, top_k, top_p + 0.5, min_p, uniform)
    for number in (math.nan, 1.0):
        message = rf"uniform must be 0\.0 or more, below 1\.0, got {number}"
        with pytest.raises(ValueError, match=message):
            sample(logits, temperature, top_k, top_p, min_p, uniform * 0 + number)
    for number in (-1.0, math.inf):
        message = rf"temperature must be 0\.0 or more, below inf, got {number}"
        with pytest.raises(ValueError, match=message):
            gumbel_sample(logits, 0 * temperature + number, top_k.long(), top_k.long())
    with pytest.raises(ValueError, match="cannot: the kernels take float32"):
        sample(logits.double(), *first[1:], backend="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_captured_in_a_cuda_graph() -> None:
    """Nothing waits for the GPU: a graph holds the operators, and runs them on new numbers."""
    operators = zip((sample, gumbel_sample), operator_arguments("cuda"), strict=True)
    for operator, arguments in operators:
        tokens, replay = captured(lambda o=operator, a=arguments: o(*a, backend="cuda"))
        arguments[0].copy_(normal(5, 60, torch.float32, seed=9))
        tokens.fill_(-9)
        replay()
        wanted = operator(*(t.cpu() for t in arguments), backend="reference")
        assert torch.equal(tokens.cpu(), wanted)
