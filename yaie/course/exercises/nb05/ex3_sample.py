"""05.3: what `SamplingKernel.sample` draws how often, for which row, and what it refuses."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.compare import short
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb05.ex1_top_k import largest
from yaie.course.exercises.nb05.ex2_top_p import smallest_set
from yaie.course.exercises.nb05.rows import NOT_RANGE, PROBABILITIES, WORDS, logits_of, seeded
from yaie.course.exercises.oracles import chi_square

EXAMPLE = [0.4, 0.3, 0.15, 0.1, 0.05]
DRAWS = 2000
GREEDY = "A row with temperature 0 takes its most likely token, the first of equals."
SURE = "At so small a temperature, logits that differ by 1 leave one token to draw."
REQUESTS = {
    "temperature": [1.0, 0.0, 0.7, 1.0, 2.0, 0.0],
    "top_p": [1.0, 1.0, 0.9, 0.95, 1.0, 0.5],
    "top_k": [0, 0, 0, 20, 0, 3],
    "min_p": [0.0, 0.0, 0.02, 0.0, 0.1, 0.0],
}


def cases() -> Iterator[Case]:
    rows = [[1.0, 3.0, 2.0], [0.5, -1.0, 0.4], [-7.0, -6.0, -5.0]]
    filters = {"top_p": 0.5, "top_k": 2, "min_p": 0.1}
    yield greedy(rows, [1, 0, 2], temperature=0.0)
    yield greedy(rows, [1, 0, 2], temperature=[0.0, 0.0, 0.0])
    yield greedy([[1.0, 3.0, 3.0], [3.0, 3.0, 1.0]], [1, 0], temperature=0.0)
    yield greedy([[0.0, 1.0]], [1], temperature=0.0, **filters)
    for options, why in DISTRIBUTIONS:
        name = f"the probabilities {EXAMPLE}{named(options)}"
        yield Case(name, look=see_counts, settings=[(options, expected(**options))], why=why)
    for temperature in (0.2, 0.05, 1e-3, 1e-6, 1e-30):
        why = "However small a temperature above 0 is, tokens close to the largest are drawn."
        row = [0.0, -temperature, float(f"{-3 * temperature:g}")]
        settings = [({"temperature": temperature}, shares([1.0, math.exp(-1), math.exp(-3)]))]
        name = f"the logits {row}, temperature={temperature:g}"
        yield Case(name, look=see_counts, settings=settings, why=why, logits=row)
    tiny = [[99.0, 100.0, -100.0], [-100.0, -99.0, -98.0]]
    yield greedy(tiny, [1, 2], SURE, temperature=1e-38)
    for batch in BATCHES:
        name = f"a batch whose rows take turns with {len(batch)} sets of parameters"
        why = "Each row is sampled with its own parameters."
        settings = [(OFF | options, expected(**options)) for options in batch]
        yield Case(name, look=see_counts, settings=settings, why=why)
    yield Case("four rows, temperature=[0.0, 1.0, 0.0, 1.0]", look=see_mixed)
    yield Case("one row of ten equal logits", look=see_streams)
    for rows in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0], [1, 4]):
        yield Case(f"a batch of requests {rows}", look=see_neighbors, rows=rows)
    for dtype in ("float16", "bfloat16", "float64"):
        yield Case(f"200 rows of 60 {dtype} logits", look=see_dtype, dtype=dtype)
    yield Case("", look=see_refusals)


def observe(SamplingKernel: type, case: Case, see: Observer) -> None:
    case.look(SamplingKernel(), case, see)


def sampled(see: Observer, sampler: Any, logits: Any, **options: Any) -> list[int]:
    """Call `sample`, and note the form of what it returns and whether the logits were changed."""
    before = logits.clone()
    with see.call("sample"):
        tokens = sampler.sample(logits, **options)
    form = f"an int64 tensor {[len(logits)]}, one token per row"
    problem = f"is {short(tokens)}, expected {form}"
    right = isinstance(tokens, torch.Tensor) and tokens.shape == (len(logits),)
    if not right or tokens.dtype != torch.int64:
        see.note("what sample returns", tokens, problem)
        see.stop()
    alone = "They are the model's: `/` makes a new tensor, `/=` writes into the old one."
    see.equal("the tensor that was passed in", logits, before, alone)
    return tokens.tolist()


# ---------------------------------------------------------------------------------- greedy


def greedy(rows: list[list[float]], want: list[int], why: str = GREEDY, **options: Any) -> Case:
    name = f"the logits {rows}{named(options)}"
    return Case(name, look=see_greedy, rows=rows, want=want, why=why, options=options)


def see_greedy(sampler: Any, case: Case, see: Observer) -> None:
    logits = torch.tensor(case.rows)
    see.equal(
        "the list of tokens", sampled(see, sampler, logits, **case.options), case.want, case.why
    )
    tokens = [sampled(see, sampler, logits, **case.options) for _ in range(7)]
    see.equal("the list of tokens of seven more calls", tokens, [case.want] * 7, case.why)


# ---------------------------------------------------------------------------------- counts


def shares(weights: Sequence[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def expected(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    probabilities: Sequence[float] = EXAMPLE,
) -> list[float]:
    """How often each token comes: temperature, top-k, top-p and min-p, one after the other."""
    if temperature == 0:
        return [float(p == max(probabilities)) for p in probabilities]
    weights = shares([p ** (1 / temperature) for p in probabilities])
    weights = only(largest(weights, top_k), weights)
    weights = only(smallest_set(weights, top_p), weights)
    return only([t for t, w in enumerate(weights) if w >= min_p * max(weights)], weights)


def only(tokens: list[int], weights: Sequence[float]) -> list[float]:
    return shares([w if token in tokens else 0.0 for token, w in enumerate(weights)])


DISTRIBUTIONS = [
    ({}, "That is the softmax of the logits."),
    ({"temperature": 0.5}, "At 0.5 the probabilities are squared."),
    ({"temperature": 2.0}, "At temperature 2 the square roots are drawn."),
    ({"top_k": 2}, "Two tokens are left, and share the whole."),
    ({"top_p": 0.8}, "Tokens 0, 1 and 2 are needed to reach 0.8."),
    ({"min_p": 0.3}, "Tokens below 0.3 of 0.4 are dropped."),
    (
        {"temperature": 0.5, "top_p": 0.8},
        "Squared, the first two have 0.87 of the whole: they reach 0.8.",
    ),
    (
        {"temperature": 2.0, "top_p": 0.8},
        "Flattened, the first three have 0.77 of the whole, and the fourth is needed.",
    ),
    ({"top_k": 3, "top_p": 0.8}, "Of the three that top-k leaves, two have 0.82."),
    (
        {"temperature": 2.0, "min_p": 0.55},
        "Flattened, token 2 is 0.61 times as likely as token 0.",
    ),
    (
        {"top_p": 0.8, "min_p": 0.4, "top_k": 5},
        "Top-p leaves three, and min-p drops the one below 0.4 of the largest.",
    ),
    (
        {"top_p": 0.8, "min_p": 0.3},
        "Top-p needs three tokens to reach 0.8, and each has 0.3 of the largest.",
    ),
]
OFF = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
BATCHES = [
    [{}, {"temperature": 0.5, "top_p": 0.8}, {"top_k": 3, "min_p": 0.5}],
    [
        {"temperature": 0.0},
        {"top_k": 2},
        {"temperature": 2.0, "top_p": 0.8},
        {"temperature": 0.5, "min_p": 0.3},
    ],
]


def see_counts(sampler: Any, case: Case, see: Observer) -> None:
    """Note how often each token comes; the settings take turns in a batch of `DRAWS` rows each."""
    settings = case.settings
    rows = DRAWS * len(settings)
    logits = torch.tensor([case.logits]) if hasattr(case, "logits") else logits_of(EXAMPLE)
    options = {name: [own[name] for own, _ in settings] * DRAWS for name in settings[0][0]}
    if len(settings) == 1:
        options = settings[0][0]
    generators = seeded(*range(40)) * (rows // 40)  # one per row would take most of the time
    tokens = sampled(see, sampler, logits.repeat(rows, 1), **options, generators=generators)
    vocabulary = logits.shape[1]
    outside = sum(token >= vocabulary or token < 0 for token in tokens)
    beyond = f"are {outside} of {rows:,}"
    see.note("tokens outside the vocabulary", outside, beyond if outside else "", case.why)
    see.stop_if_wrong()
    for i, (own, want) in enumerate(settings):
        mine = tokens[i :: len(settings)]
        counts = [mine.count(token) for token in range(vocabulary)]
        what = f"{DRAWS:,} draws"
        if len(settings) > 1:
            what = f"rows {i}, {i + len(settings)}, …{named(own)}: {what}"
        about = [round(DRAWS * share) for share in want]
        problem = f"gave each token {counts} times, expected about {about}"
        likely = chi_square(counts, want) > 1e-6
        drawn = torch.tensor(counts) / DRAWS
        see.note(what, drawn, "" if likely else problem, case.why, atol=0.05)


def named(options: dict[str, Any]) -> str:
    return "".join(f", {name}={value:g}" if isinstance(value, float) else f", {name}={value}"
                   for name, value in options.items())  # fmt: skip


# ---------------------------------------------------------------------------------- batches


def see_mixed(sampler: Any, case: Case, see: Observer) -> None:
    """Two greedy rows and two drawn ones, 40 times."""
    logits = logits_of([0.2, 0.5, 0.3], [0.6, 0.4, 0.0], [0.3, 0.3, 0.4], [0.0, 0.4, 0.6])
    steps = []
    for step in range(40):
        generators = seeded(*range(1000 * step, 1000 * step + 4))
        steps.append(
            sampled(see, sampler, logits, temperature=[0.0, 1.0, 0.0, 1.0], generators=generators)
        )
    own = "Rows above 0 are drawn, each into its own place, also where others are greedy."
    for row, want, why in ((0, [1], GREEDY), (2, [2], GREEDY), (1, [0, 1], own), (3, [1, 2], own)):
        tokens = sorted({tokens[row] for tokens in steps})
        see.equal(f"the set of tokens that row {row} took in 40 calls", tokens, want, why)


def see_streams(sampler: Any, case: Case, see: Observer) -> None:
    """20 tokens of one generator, twice; and without a generator after three `manual_seed`."""
    logits = logits_of([0.1] * 10)

    def twenty(world: int, *seeds: int) -> list[int]:
        torch.manual_seed(world)
        options = {"generators": seeded(*seeds)} if seeds else {}
        return [sampled(see, sampler, logits, **options)[0] for _ in range(20)]

    first, second = twenty(1, 7), twenty(2, 7)
    because = "The same seed gives the same tokens: draw from the row's own generator."
    see.equal(
        "the list of tokens of 20 calls with a generator of the same seed", second, first, because
    )
    goes_on = f"drew {first}: a generator's stream goes on from draw to draw"
    see.note("20 calls with one generator", first, "" if len(set(first)) > 3 else goes_on)
    a, b, other = twenty(3), twenty(3), twenty(4)
    because = "Without generators torch's global stream is drawn from."
    see.equal("the list of tokens of 20 calls after the same torch.manual_seed", b, a, because)
    see.true("20 calls without generators", a != other, "ignore torch.manual_seed", because)


def see_neighbors(sampler: Any, case: Case, see: Observer) -> None:
    """Five tokens of each request, together with others and alone."""
    logits = torch.randn(6, 50, generator=seeded(1)[0])

    def five(rows: list[int]) -> list[list[int]]:
        generators = seeded(*rows)
        options = {name: [column[row] for row in rows] for name, column in REQUESTS.items()}
        steps = [
            sampled(see, sampler, logits[rows], **options, generators=generators) for _ in range(5)
        ]
        return [list(tokens) for tokens in zip(*steps, strict=True)]

    for row, tokens in zip(case.rows, five(case.rows), strict=True):
        alone = five([row])[0]
        because = (
            f"Alone, with the same seed, it drew {alone}. Every row has its own parameters and "
            "generator, and its output does not depend on its neighbors."
        )
        see.equal(f"five tokens of request {row}", tokens, alone, because)


# ---------------------------------------------------------------------------------- input


def see_dtype(sampler: Any, case: Case, see: Observer) -> None:
    logits = torch.randn(200, 60, generator=seeded(2)[0]).to(getattr(torch, case.dtype))
    options = {"temperature": 0.6, "top_p": 0.9, "top_k": 30}
    got = sampled(see, sampler, logits, **options, generators=seeded(*range(200)))
    want = sampled(see, sampler, logits.float(), **options, generators=seeded(*range(200)))
    rows = [row for row in range(200) if got[row] != want[row]]
    what = "the list of rows that draw another token than from the same logits in float32"
    see.equal(what, rows, [], "Everything after the argmax is computed in float32.")


def see_refusals(sampler: Any, case: Case, see: Observer) -> None:
    inf, nan = torch.inf, torch.nan
    good = [0.0, 1.0, 2.0]
    finite = "A NaN, +inf or nothing but -inf gives no distribution. `check_logits` refuses it."
    bad = [[nan, 0.0, 1.0], [0.0, 1.0, nan], [-inf, -inf, -inf], [0.0, inf, 1.0]]
    for rows in [*([good, row] for row in bad), [bad[0], good], [bad[2], good]]:
        for temperature in (1.0, 0.0):
            call = f"sample({rows}, temperature={temperature})"
            run = partial(sampler.sample, torch.tensor(rows), temperature)
            see.raises(call, ValueError, run, finite)
    logits = torch.tensor([good, good])
    for name, value in (
        ("temperature", -1.0), ("top_p", 1.5), ("top_k", -2), ("min_p", 2.0),
        ("temperature", nan), ("top_p", [0.5, 0.5, 0.5]),
    ):  # fmt: skip
        run = partial(sampler.sample, logits, **{name: value})
        see.raises(f"sample of two rows, {name}={value}", ValueError, run, NOT_RANGE)
    shared = "Each row has a generator of its own; otherwise two requests would share a stream."
    for given, words in ((seeded(1), "one generator"), ([], "an empty list of generators")):
        for options in ({}, {"temperature": 0.0}):
            run = partial(sampler.sample, logits, generators=given, **options)
            greedy = ", temperature=0" if options else ""
            see.raises(f"sample of two rows with {words}{greedy}", ValueError, run, shared)


def draw(SamplingKernel: type) -> Any:
    """1,000 draws with each of three settings, beside what they should give."""
    draws, sampler = 1000, SamplingKernel()
    order = sorted(range(len(WORDS)), key=lambda token: -PROBABILITIES[token])
    tallies = []
    for name, options in (
        ("temperature 0.5", {"temperature": 0.5}),
        ("top-k 4", {"top_k": 4}),
        ("top-p 0.6", {"top_p": 0.6}),
    ):
        want = expected(**options, probabilities=PROBABILITIES)
        logits = logits_of(PROBABILITIES).expand(draws, -1)
        tokens = sampler.sample(logits, **options, generators=seeded(*range(draws)))
        counts = torch.bincount(tokens, minlength=len(order)).tolist()
        about = [draws * want[token] for token in order]
        tallies.append(viz.Tally(name, [counts[token] for token in order], about))
    return viz.draw_counts(tallies, [WORDS[token] for token in order])
