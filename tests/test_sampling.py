"""Sampling: what is kept, what is drawn how often, and what is refused."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import EXAMPLE, FILTERED, check_frequencies, chi_square_p, examples

from yaie.engine.params import SamplingParams
from yaie.engine.parts import Parts
from yaie.engine.sampling import FastSampler, SamplingKernel, check_logits

INF = math.inf
kernel = SamplingKernel()


def seeded(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def kept(logits: torch.Tensor) -> list[list[int]]:
    """The tokens of each row that are left."""
    return [row.isfinite().nonzero().flatten().tolist() for row in logits]


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def draw_logits(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3


# ------------------------------------------------------------------------------------- distribution

DRAWS = 20_000


@pytest.mark.parametrize("name", FILTERED)
def test_tokens_come_as_often_as_they_should(name):
    temperature, top_k, top_p, min_p = FILTERED[name][0]
    logits = logits_of(*EXAMPLE).expand(DRAWS, -1)
    check_frequencies(
        kernel.sample(logits, temperature, top_p, top_k, min_p, seeded(*range(DRAWS))), name
    )


class CoarseSampler(SamplingKernel):
    """Rounds its random numbers to a twentieth."""

    def draw(self, probabilities, generators):
        uniform = torch.cat([torch.rand(1, generator=g) for g in generators])
        target = ((uniform * 20).floor() / 20).unsqueeze(1)
        return torch.searchsorted(probabilities.cumsum(-1), target).squeeze(1).clamp(max=4)


class NeighborSampler(SamplingKernel):
    """Takes a token for its neighbor once in eight times."""

    def draw(self, probabilities, generators):
        tokens = super().draw(probabilities, generators)
        slip = torch.arange(len(tokens)) % 8 == 0
        return torch.where(slip, (tokens + 1) % probabilities.shape[-1], tokens)


@pytest.mark.parametrize("sampler", [CoarseSampler, NeighborSampler])
def test_the_same_test_refuses_wrong_samplers(sampler):
    logits = logits_of(*EXAMPLE).expand(DRAWS, -1)
    tokens = sampler().sample(logits, generators=seeded(*range(DRAWS)))
    assert chi_square_p(torch.bincount(tokens, minlength=len(EXAMPLE)).tolist(), EXAMPLE) < 1e-6


def test_a_large_vocabulary_is_drawn_from_evenly():
    logits = torch.zeros(1, 1000).expand(DRAWS, -1)
    tokens = kernel.sample(logits, generators=seeded(*range(DRAWS)))
    counts = torch.bincount(tokens, minlength=1000).tolist()
    assert chi_square_p(counts, [1 / 1000] * 1000) > 1e-3


# ------------------------------------------------------------------------------------- filters


def away_from_the_edge(logits: torch.Tensor, p: float, min_p: float) -> bool:
    """Whether rounding cannot change what the filters keep."""
    ordered = logits.double().softmax(-1).sort(descending=True).values
    reached = ordered.cumsum(-1)
    return bool(
        ((reached - p).abs() > 1e-4).all()
        and ((ordered / ordered[..., :1] - min_p).abs() > 1e-4).all()
    )


@given(
    st.integers(0, 10**6),
    st.integers(1, 70),
    st.integers(1, 80),
    st.floats(0.01, 0.99),
    st.floats(0.01, 1.0),
    st.floats(0.1, 3.0),
    st.floats(0.5, 2.0),
)
@examples(60)
def test_kept_sets_are_those_of_transformers(seed, vocabulary, k, p, min_p, temperature, penalty):
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = draw_logits(3, vocabulary, seed)
    ids = torch.randint(vocabulary, (3, 10), generator=torch.Generator().manual_seed(seed))

    theirs = process.RepetitionPenaltyLogitsProcessor(penalty)(ids, logits)
    ours = torch.stack(
        [
            kernel.repetition_penalty(row, penalty, seen)
            for row, seen in zip(logits, ids, strict=True)
        ]
    )
    torch.testing.assert_close(ours, theirs)

    theirs = process.TopKLogitsWarper(k)(None, logits)
    assert torch.equal(kernel.top_k(logits, k), theirs)

    warm = process.TemperatureLogitsWarper(temperature)(None, logits)
    if away_from_the_edge(warm, p, min_p):
        theirs = process.TopPLogitsWarper(p)(None, warm)
        assert torch.equal(kernel.top_p(warm, p), theirs)
        theirs = process.MinPLogitsWarper(min_p)(None, warm)
        assert torch.equal(kernel.min_p(warm, min_p), theirs)


@pytest.mark.parametrize(
    ("probabilities", "p", "wanted"),
    [
        ((0.5, 0.4, 0.1), 0.8, [0, 1]),  # the token that crosses the threshold stays
        ((0.1, 0.4, 0.5), 0.8, [1, 2]),
        ((0.5, 0.4, 0.1), 1e-9, [0]),
        ((0.5, 0.4, 0.1), 0.91, [0, 1, 2]),
        ((0.5, 0.25, 0.25), 0.5, [0]),  # reached exactly
        ((0.5, 0.25, 0.25), 0.75, [0, 1]),
        ((0.25, 0.25, 0.25, 0.25), 0.5, [0, 1]),  # of equals, the first
        ((0.25, 0.25, 0.25, 0.25), 1.0, [0, 1, 2, 3]),
        ((1.0, 0.0, 0.0), 0.99, [0]),
        ((0.5, 0.5, 0.0), 1.0, [0, 1]),
        ((1.0,), 0.5, [0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_top_p_at_its_edges(probabilities, p, wanted, dtype):
    assert kept(kernel.top_p(logits_of(*probabilities).to(dtype), p)) == [wanted]


def test_top_p_of_half_precision_sums_in_float32():
    """In bfloat16, 20,000 equal probabilities are each wrong by a thousandth part."""
    logits = torch.zeros(1, 20_000, dtype=torch.bfloat16)
    (tokens,) = kept(kernel.top_p(logits, 0.9))
    assert len(tokens) == pytest.approx(18_000, abs=2)


def test_top_k_at_its_edges():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0]])
    for k, wanted in (
        (0, [0, 1, 2, 3, 4]),
        (1, [1]),
        (2, [1, 2, 3]),  # ties with the last stay
        (3, [1, 2, 3]),
        (4, [0, 1, 2, 3]),
        (5, [0, 1, 2, 3, 4]),
        (6, [0, 1, 2, 3, 4]),
        (2**31 - 1, [0, 1, 2, 3, 4]),
    ):
        assert kept(kernel.top_k(logits, k)) == [wanted]
    masked = torch.tensor([[1.0, -INF, -INF]])
    assert torch.equal(kernel.top_k(masked, 2), masked)
    assert kept(kernel.top_k(logits.expand(3, -1), torch.tensor([0, 1, 3]))) == [
        [0, 1, 2, 3, 4],
        [1],
        [1, 2, 3],
    ]


def test_min_p_at_its_edges():
    logits = logits_of(0.5, 0.25, 0.125, 0.125)
    for p, wanted in ((0.0, [0, 1, 2, 3]), (0.3, [0, 1]), (0.6, [0]), (1.0, [0])):
        assert kept(kernel.min_p(logits, p)) == [wanted]
    assert kept(kernel.min_p(torch.zeros(1, 3), 1.0)) == [[0, 1, 2]]


def test_filters_change_nothing_that_they_are_given():
    logits = draw_logits(2, 20)
    before = logits.clone()
    kernel.top_k(logits, 3), kernel.top_p(logits, 0.5), kernel.min_p(logits, 0.5)
    kernel.repetition_penalty(logits[0], 2.0, torch.tensor([1, 1, 2]))
    kernel.sample(logits, [0.0, 1.0], 0.5, 3, 0.1, seeded(1, 2))
    assert torch.equal(logits, before)


def test_repetition_counts_once():
    penalized = kernel.repetition_penalty(
        torch.tensor([2.0, -2.0, 0.0, 5.0]), 2.0, torch.tensor([0, 0, 1, 2])
    )
    assert penalized.tolist() == [1.0, -4.0, 0.0, 5.0]


# ------------------------------------------------------------------------------------- batches


def test_a_seeded_row_does_not_depend_on_the_batch():
    """Bit for bit, at every place of the batch and with whatever parameters beside it."""
    logits = draw_logits(9, 3000)
    options = [(0.7, 0.9, 50, 0.0), (1.0, 1.0, 0, 0.05), (1.5, 0.5, 0, 0.0)] * 3
    temperature, top_p, top_k, min_p = map(list, zip(*options, strict=True))
    together = kernel.sample(logits, temperature, top_p, top_k, min_p, seeded(*range(9)))
    for i in range(9):
        alone = kernel.sample(logits[i : i + 1], *options[i], seeded(i))
        assert alone.item() == together[i].item()
    order = [4, 0, 8, 2, 6, 1, 3, 7, 5]
    pick = [[column[i] for i in order] for column in (temperature, top_p, top_k, min_p)]
    shuffled = kernel.sample(logits[order], *pick, seeded(*order))
    assert shuffled.tolist() == together[order].tolist()


def test_filters_keep_a_rows_tokens_whatever_the_batch():
    logits = (draw_logits(8, 500) * 2).round()  # many ties
    for keep in (
        partial(kernel.top_p, p=0.7),
        partial(kernel.top_k, k=20),
        partial(kernel.min_p, p=0.1),
    ):
        together = keep(logits)
        for i in range(8):
            assert torch.equal(keep(logits[i : i + 1])[0], together[i])


def test_a_seed_repeats_and_its_stream_goes_on():
    logits = draw_logits(1, 1000)
    (first,), (second,) = seeded(7), seeded(7)
    one = [kernel.sample(logits, generators=[first]).item() for _ in range(20)]
    two = [kernel.sample(logits, generators=[second]).item() for _ in range(20)]
    assert one == two and len(set(one)) > 5


def test_greedy_rows_take_the_first_of_equals_and_draw_nothing():
    logits = torch.tensor([[1.0, 3.0, 3.0], [3.0, 3.0, 1.0], [0.0, 0.0, 0.0]])
    generators = seeded(1, 2, 3)
    states = [g.get_state() for g in generators]
    assert kernel.sample(logits, 0.0, generators=generators).tolist() == [1, 0, 0]
    tokens = kernel.sample(logits, [0.0, 1.0, 0.0], generators=generators)
    assert tokens[[0, 2]].tolist() == [1, 0]
    moved = [not torch.equal(a, g.get_state()) for a, g in zip(states, generators, strict=True)]
    assert moved == [False, True, False]


def test_without_generators_the_global_stream_is_used():
    logits = draw_logits(4, 100)
    torch.manual_seed(3)
    one = kernel.sample(logits)
    torch.manual_seed(3)
    assert torch.equal(kernel.sample(logits), one)
    assert one.dtype == torch.int64


# ------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_float_types(dtype):
    logits = draw_logits(5, 50).to(dtype)
    tokens = kernel.sample(logits, 0.8, 0.9, 20, 0.01, seeded(*range(5)))
    wanted = kernel.sample(logits.float(), 0.8, 0.9, 20, 0.01, seeded(*range(5)))
    assert torch.equal(tokens, wanted)


def test_a_vocabulary_of_one():
    for options in ({}, {"top_k": 1}, {"top_p": 0.1}, {"min_p": 1.0}, {"temperature": 0.0}):
        assert kernel.sample(torch.tensor([[-5.0]]), **options).tolist() == [0]


def test_an_empty_batch():
    assert kernel.sample(torch.zeros(0, 5), generators=[]).shape == (0,)


def test_a_tiny_temperature_is_greedy():
    logits = torch.tensor([[1.0, 2.0, 1.9999, -INF]]).expand(50, -1)
    for temperature in (1e-6, 1e-30, 1e-40, 1e-60):
        assert kernel.sample(
            logits, temperature, generators=seeded(*range(50))
        ).unique().tolist() == [1]


def test_a_huge_temperature_is_even_but_never_takes_what_was_ruled_out():
    logits = torch.tensor([[1.0, 2.0, 30.0, -INF]]).expand(3000, -1)
    for temperature in (1e6, 9e37):
        tokens = kernel.sample(logits, temperature, generators=seeded(*range(3000)))
        counts = torch.bincount(tokens, minlength=4).tolist()
        assert chi_square_p(counts, [1 / 3, 1 / 3, 1 / 3, 0]) > 1e-3


def test_logits_of_any_size():
    logits = torch.tensor([[3e38, -3e38, 0.0], [-3e38, -3.1e38, -3.2e38]])
    assert kernel.sample(logits, generators=seeded(1, 2)).tolist() == [0, 0]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_without_probability_is_never_drawn(monkeypatch, uniform):
    monkeypatch.setattr(
        torch, "rand", lambda *_, **__: torch.tensor([uniform], dtype=torch.float64)
    )
    probabilities = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    tokens = kernel.draw(probabilities, [None, None])
    assert tokens.tolist() == [1 if uniform == 0.0 else 3, 5]
    for total in torch.linspace(0.5, 2.0, 500):  # wherever rounding might lift it to the total
        uneven = torch.full((1, 100), total / 90)
        uneven[0, 90:] = 0.0
        assert kernel.draw(uneven, [None]).item() <= 89


@pytest.mark.parametrize("bad", [math.nan, INF])
def test_rows_that_cannot_be_sampled(bad):
    logits = draw_logits(3, 5)
    logits[1, 2] = bad
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="logits of row 1"):
            kernel.sample(logits, temperature)
    logits[1] = -INF
    with pytest.raises(ValueError, match="logits of row 1"):
        kernel.sample(logits)
    for shape in ((5,), (2, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match="logits must have shape"):
            check_logits(torch.zeros(shape))


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "min_p"])
@pytest.mark.parametrize(
    "value", [-0.5, math.nan, [0.5, 0.5], [0.5, -1.0, 0.5], [0.1, 0.1, math.nan]]
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        kernel.sample(draw_logits(3, 5), **{name: value})


def test_parameters_above_their_range():
    logits = draw_logits(3, 5)
    for options in ({"top_p": 1.5}, {"min_p": 2.0}, {"temperature": INF}):
        with pytest.raises(ValueError, match=next(iter(options))):
            kernel.sample(logits, **options)
    with pytest.raises(ValueError, match="generators must be 3"):
        kernel.sample(logits, generators=seeded(1, 2))
    for ids in ([5], [-1]):
        with pytest.raises(ValueError, match="token_ids must be from 0 to 4"):
            kernel.repetition_penalty(logits[0], 1.1, torch.tensor(ids))
    for penalty in (0.0, -1.0, 1e-40, INF, math.nan):
        with pytest.raises(ValueError, match="repetition_penalty must be from"):
            kernel.repetition_penalty(logits[0], penalty, torch.tensor([1]))
    for k in (2.5, [1, 2, 0.5]):
        with pytest.raises(ValueError, match="top_k must be a whole number"):
            kernel.top_k(logits, k)


NAN = math.nan
OUT_OF_RANGE = {
    "temperature": [-0.1, NAN, INF, 1e300],
    "top_p": [0.0, 1.1],
    "top_k": [-2, 2**31],
    "min_p": [-0.1, 1.1],
    "repetition_penalty": [0.0, -1.0, 1e-40, INF],
    "max_tokens": [0],
    "seed": [2**64],
    "stop": ["", ["fine", ""]],
}
WRONG_TYPES = {
    "temperature": ["hot", None],
    "top_p": ["1"],
    "top_k": [1.5],
    "max_tokens": [2.5, True, None],
    "seed": ["x", 1.5],
    "ignore_eos": ["no", None],
    "stop": [[1], 5],
    "stop_token_ids": [5, "ab"],
}


@pytest.mark.parametrize("values, error", [(OUT_OF_RANGE, ValueError), (WRONG_TYPES, TypeError)])
def test_bad_params_are_named(values, error):
    for name, bad in values.items():
        for value in bad:
            with pytest.raises(error, match=name):
                SamplingParams(**{name: value})


def test_params_are_plain_values():
    params = SamplingParams(stop=None, stop_token_ids=None, seed=np.int64(5))
    assert (params.stop, params.stop_token_ids) == ((), ())
    assert type(params.seed) is int and params.seed == 5
    assert SamplingParams(stop="a", stop_token_ids={3}).stop_token_ids == (3,)


@pytest.mark.parametrize("penalty", [1e-3, 1e3])
@pytest.mark.parametrize("temperature", [1e-300, 9e37])
def test_params_at_the_edge_of_their_range_can_be_sampled(penalty, temperature):
    """One request's parameters must not make the step of a whole batch fail."""
    params = SamplingParams(temperature, 1e-300, 2**31 - 1, 1.0, penalty)
    logits = draw_logits(1, 50) * 100
    row = kernel.repetition_penalty(logits[0], params.repetition_penalty, torch.arange(50))
    token = kernel.sample(
        row.unsqueeze(0), params.temperature, params.top_p, params.top_k, params.min_p
    )
    assert 0 <= token.item() < 50


# ------------------------------------------------------------------------------------- fast top-p


class SortCounter(SamplingKernel):
    """Counts the rows that the reference is asked for; `FastSampler` stands in front of it."""

    rows = 0

    def top_p(self, logits, p):
        self.rows += len(logits)
        return super().top_p(logits, p)


class CountedSampler(FastSampler, SortCounter):
    pass


@pytest.mark.parametrize("vocabulary", [1, 511, 512, 513, 5000])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_top_p_keeps_what_the_sort_keeps(vocabulary, scale, dtype):
    logits = (draw_logits(12, vocabulary) * scale).to(dtype)
    before = logits.clone()
    p = torch.tensor([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0, 1.0, 0.3, 0.7, 0.9, 0.9])
    for some in (p, 0.9, 1.0, 0.0):
        assert torch.equal(FastSampler().top_p(logits, some), kernel.top_p(logits, some))
    assert torch.equal(logits, before)


def test_fast_top_p_sorts_only_where_it_has_to():
    logits = draw_logits(5, 5000) * 5
    logits[1] = 0.0  # flat: the first 512 hold a tenth
    logits[2, :3] = 100.0  # three equal tokens, of which 0.5 keeps two
    sampler = CountedSampler()
    p = torch.tensor([0.9, 0.9, 0.5, 1.0, 0.5])
    assert torch.equal(sampler.top_p(logits, p), kernel.top_p(logits, p))
    assert sampler.rows == 2
    assert sampler.top_p(logits, p)[2].isfinite().sum() == 2


def test_the_engine_uses_the_fast_sampler():
    assert Parts().sampler is FastSampler
