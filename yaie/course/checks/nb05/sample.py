"""The check of SamplingKernel.sample: what it draws how often, for whom, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yaie.course.checks.nb05.common import NO_RETURN, distributed, logits_of, seeded, shares
from yaie.course.core.expect import equal, fail, given, is_tensor, raises, short, true

EXAMPLE = [0.4, 0.3, 0.15, 0.1, 0.05]
DRAWS = 2000
ZERO = (
    "A row with temperature 0 takes its most likely token. Nothing is divided by 0: choose with "
    "argmax, and draw only the rows whose temperature is above 0."
)
FINITE = (
    "An infinite or NaN logit gives no distribution. `check_logits(logits)` refuses such rows, "
    "before anything is computed from them."
)


def check_sample(SamplingKernel: type) -> None:
    sampler = SamplingKernel()
    _greedy(sampler)
    _frequencies(sampler)
    _small_temperatures(sampler)
    _parameters_by_row(sampler)
    _greedy_beside_drawn(sampler)
    _streams(sampler)
    _neighbors(sampler)
    _other_dtypes(sampler)
    _refusals(sampler)


def called(call: str, sampler: Any, logits: Any, *args: Any, **options: Any) -> list[int]:
    """Call `sample`, look at the form of what it returns, and that the logits were left alone."""
    import torch

    before = logits.clone()
    with given(call):
        tokens = sampler.sample(logits, *args, **options)
    if tokens is None:
        fail(f"{call} is None, expected token ids. {NO_RETURN}")
    true(is_tensor(tokens), f"{call} is {short(tokens)}, expected a tensor of token ids.")
    true(
        list(tokens.shape) == [len(logits)] and tokens.dtype == torch.int64,
        f"{call} is {short(tokens)}, expected int64 of shape [{len(logits)}], one token a row.",
    )
    same = torch.equal(logits, before)
    true(same, f"{call} changed the logits that it was given. They are the model's, and the next "
         "reader finds them scaled: write `logits / t`, not `logits /= t`.")  # fmt: skip
    return tokens.tolist()


# ---------------------------------------------------------------------------------- greedy


def _greedy(sampler: Any) -> None:
    import torch

    logits = torch.tensor([[1.0, 3.0, 2.0], [0.5, -1.0, 0.4], [-7.0, -6.0, -5.0]])
    for text, zero in (("0.0", 0.0), ("[0.0, 0.0, 0.0]", [0.0] * 3)):
        call = f"sample({logits.tolist()}, temperature={text})"
        errors = dict.fromkeys((RuntimeError, ZeroDivisionError, ValueError), ZERO)
        with given(call, errors=errors):
            sampler.sample(logits, zero)
        for _ in range(8):
            equal(called(call, sampler, logits, zero), [1, 0, 2], call, ZERO)
    tied = torch.tensor([[1.0, 3.0, 3.0], [3.0, 3.0, 1.0]])
    call = f"sample({tied.tolist()}, temperature=0.0)"
    equal(called(call, sampler, tied, 0.0), [1, 0], call, "Of equals the first is taken.")
    plain = torch.tensor([[0.0, 1.0]])
    options = {"top_p": 0.5, "top_k": 2, "min_p": 0.1}
    call = f"sample({plain.tolist()}, 0.0, **{options})"
    equal(called(call, sampler, plain, 0.0, **options), [1], call, ZERO)


# ---------------------------------------------------------------------------------- counts


def powered(temperature: float, kept: Sequence[int] = (0, 1, 2, 3, 4)) -> list[float]:
    """EXAMPLE at a temperature, with only some tokens left."""
    return shares([p ** (1 / temperature) if t in kept else 0.0 for t, p in enumerate(EXAMPLE)])


GREEDY = ([1.0, 0, 0, 0, 0], "Only the most likely token ever came: above temperature 0, draw.")
UNFILTERED = "The tail was drawn as well: this filter was not applied."


def cases() -> list[tuple[dict, list[float], str, list]]:
    """Options of `sample`, what comes of EXAMPLE, why, and what known mistakes give."""
    uniform = [0.2] * 5
    return [
        ({}, powered(1), "That is the softmax of the logits.",
         [GREEDY, (uniform, "Every token came equally often: were the probabilities used?")]),
        ({"temperature": 0.5}, powered(0.5),
         "Divide the logits by the temperature: at 0.5 the probabilities are squared.",
         [(powered(1), "The temperature changed nothing."), GREEDY,
          (powered(2), "The logits were multiplied by the temperature: divide them by it.")]),
        ({"temperature": 2.0}, powered(2), "At temperature 2 the square roots are drawn.",
         [(powered(1), "The temperature changed nothing.")]),
        ({"top_k": 2}, powered(1, [0, 1]), "Two tokens are left, and share all of it.",
         [(powered(1), UNFILTERED),
          ([0.4, 0.6, 0, 0, 0], "The filtered probabilities were not renormalized: they sum to "
           "0.7, and what the random number found above that went to one token. Take the softmax "
           "after the filters."),
          ([0.4, 0.3, 0, 0, 0.3], "The filtered probabilities were not renormalized: they sum to "
           "0.7, and what the random number found above that went to the last token of the "
           "vocabulary. Take the softmax after the filters.")]),
        ({"top_p": 0.8}, powered(1, [0, 1, 2]), "Tokens 0, 1 and 2 are needed to reach 0.8.",
         [(powered(1), UNFILTERED),
          (powered(1, [0, 1]), "The token that crosses the threshold was dropped."),
          ([0.4, 0.3, 0.3, 0, 0], "The filtered probabilities were not renormalized: they sum to "
           "0.85. Take the softmax after the filters.")]),
        ({"min_p": 0.3}, powered(1, [0, 1, 2]), "Tokens below 0.3 of 0.4 are out.",
         [(powered(1), "min_p was not applied.")]),
        ({"temperature": 0.5, "top_p": 0.8}, powered(0.5, [0, 1]),
         "Squared, the first two have 0.87 of the whole: they reach 0.8.",
         [(powered(0.5, [0, 1, 2]), "top_p was applied before the temperature: it must see the "
           "distribution that is drawn from, so scale first.")]),
        ({"temperature": 2.0, "top_p": 0.8}, powered(2, [0, 1, 2, 3]),
         "Flattened, the first three have 0.77 of the whole, and the fourth is needed.",
         [(powered(2, [0, 1, 2]), "top_p was applied before the temperature: it must see the "
           "distribution that is drawn from, so scale first.")]),
        ({"top_k": 3, "top_p": 0.8}, powered(1, [0, 1]),
         "Of the three that top-k leaves, the first two have 0.82.",
         [(powered(1, [0, 1, 2]), "top_p was applied before top_k: after top-k the rest is "
           "renormalized, and 0.8 is reached sooner.")]),
        ({"temperature": 2.0, "min_p": 0.55}, powered(2, [0, 1, 2]),
         "Flattened, token 2 is 0.61 times as likely as token 0.",
         [(powered(2, [0, 1]), "min_p was applied before the temperature: scale first.")]),
        ({"top_p": 0.8, "min_p": 0.4, "top_k": 5}, powered(1, [0, 1]),
         "Top-p leaves three, and min-p drops the one below 0.4 of the largest.",
         [(powered(1, [0, 1, 2]), "min_p was not applied after top_p.")]),
    ]  # fmt: skip


def _frequencies(sampler: Any) -> None:
    logits = logits_of(EXAMPLE).repeat(DRAWS, 1)
    for options, want, because, mistakes in cases():
        call = f"sample of the probabilities {EXAMPLE}{named(options)}"
        tokens = called(call, sampler, logits, **options, generators=seeded(*range(DRAWS)))
        distributed(tokens, want, call, because, mistakes)


def named(options: dict) -> str:
    return "".join(f", {name}={value}" for name, value in options.items())


def _small_temperatures(sampler: Any) -> None:
    import torch

    for temperature in (0.2, 0.05, 1e-3):
        logits = torch.tensor([[0.0, -temperature, -3 * temperature]])
        want = torch.tensor([0.0, -1.0, -3.0]).softmax(-1).tolist()
        call = f"sample({logits.tolist()}, temperature={temperature})"
        tokens = called(
            call, sampler, logits.repeat(DRAWS, 1), temperature, generators=seeded(*range(DRAWS))
        )
        small = "A small temperature is not 0: tokens close to the largest are still drawn."
        distributed(tokens, want, call, small)
    logits = torch.tensor([[99.0, 100.0, -100.0], [-100.0, -99.0, -98.0]])
    call = f"sample({logits.tolist()}, temperature=1e-38)"
    overflow = (
        "100 / 1e-38 is infinite in float32, and the softmax of that is NaN. Subtract each row's "
        "maximum before the division: the largest is then 0, whatever the temperature."
    )
    with given(call, errors={RuntimeError: overflow, ValueError: overflow}):
        tokens = sampler.sample(logits, 1e-38).tolist()
    equal(tokens, [1, 2], call, because=overflow)


# ---------------------------------------------------------------------------------- batches


def _parameters_by_row(sampler: Any) -> None:
    rows = [
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}, powered(1)),
        ({"temperature": 0.5, "top_p": 0.8, "top_k": 0, "min_p": 0.0}, powered(0.5, [0, 1])),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 3, "min_p": 0.5}, powered(1, [0, 1])),
    ]
    logits = logits_of(EXAMPLE).repeat(DRAWS * len(rows), 1)
    options = {name: [own[name] for own, _ in rows] * DRAWS for name in rows[0][0]}
    call = f"sample of a batch whose rows take turns with {len(rows)} sets of parameters"
    seeds = range(len(logits))
    tokens = called(call, sampler, logits, **options, generators=seeded(*seeds))
    for i, (own, want) in enumerate(rows):
        because = "Each row is sampled with its own parameters."
        where = f"{call}: rows {i}, {i + 3}, {i + 6}, …{named(own)}"
        first = "These rows were sampled with the parameters of row 0: each has its own."
        distributed(tokens[i :: len(rows)], want, where, because, [(powered(1), first)])


def _greedy_beside_drawn(sampler: Any) -> None:
    logits = logits_of([0.2, 0.5, 0.3], [0.6, 0.4, 0.0], [0.3, 0.3, 0.4], [0.0, 0.4, 0.6])
    temperature = [0.0, 1.0, 0.0, 1.0]
    drawn = {1: set(), 3: set()}
    call = f"sample of four rows with temperature={temperature}"
    for step in range(40):
        seeds = [1000 * step + row for row in range(4)]
        tokens = called(call, sampler, logits, temperature, generators=seeded(*seeds))
        equal([tokens[0], tokens[2]], [1, 2], f"rows 0 and 2 of {call}", ZERO)
        for row in drawn:
            drawn[row].add(tokens[row])
    for row, want in ((1, [0, 1]), (3, [1, 2])):
        equal(
            sorted(drawn[row]),
            want,
            f"the tokens that row {row} of {call} drew in 40 tries",
            because="Rows with a temperature above 0 are drawn, each into its own place, also "
            "where others are greedy.",
        )


def _streams(sampler: Any) -> None:
    import torch

    logits = logits_of([0.1] * 10)
    call = "20 calls of sample, one row of ten equal logits"
    found = []
    for world in (1, 2):
        torch.manual_seed(world)
        (generator,) = seeded(7)
        found.append([called(call, sampler, logits, generators=[generator])[0] for _ in range(20)])
    equal(
        found[1],
        found[0],
        f"{call}, with a generator of the same seed as before",
        because="The same seed must give the same tokens: draw from the generator of the row, not "
        "from torch's global stream.",
    )
    true(
        len(set(found[0])) > 3,
        f"{call}, with one generator, gave {found[0]}. The stream of a generator goes on from "
        "draw to draw: use it as it comes, and do not set its seed.",
    )
    call = "20 calls of sample without generators"
    found = []
    for world in (3, 3, 4):
        torch.manual_seed(world)
        found.append([called(call, sampler, logits)[0] for _ in range(20)])
    true(
        found[0] == found[1] != found[2],
        f"{call} should follow torch's global stream: the same tokens after the same "
        "torch.manual_seed, others after another.",
    )


def _neighbors(sampler: Any) -> None:
    """The same requests alone, together, and in another order, five tokens each."""
    import torch

    torch.manual_seed(0)
    logits = torch.randn(6, 50, generator=seeded(1)[0])
    columns = {
        "temperature": [1.0, 0.0, 0.7, 1.0, 2.0, 0.0],
        "top_p": [1.0, 1.0, 0.9, 0.95, 1.0, 0.5],
        "top_k": [0, 0, 0, 20, 0, 3],
        "min_p": [0.0, 0.0, 0.02, 0.0, 0.1, 0.0],
    }

    def run(rows: Sequence[int], what: str) -> dict[int, list[int]]:
        generators = seeded(*rows)
        options = {name: [column[row] for row in rows] for name, column in columns.items()}
        batch = logits[list(rows)]
        steps = [called(what, sampler, batch, **options, generators=generators) for _ in range(5)]
        return {row: [step[i] for step in steps] for i, row in enumerate(rows)}

    alone = {row: run([row], "sample of one row with its generator")[row] for row in range(6)}
    for rows in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0], [1, 4]):
        what = f"sample of a batch of requests {rows}"
        together = run(rows, what)
        for row in rows:
            equal(
                together[row],
                alone[row],
                f"five tokens of request {row} in a batch of requests {rows}",
                because=f"Alone, with the same seed, it drew {alone[row]}. A request's output must "
                "not depend on its neighbors: every row draws from its own generator, and "
                "generator i belongs to row i of the whole batch, greedy rows counted.",
            )


# ---------------------------------------------------------------------------------- input


def _other_dtypes(sampler: Any) -> None:
    import torch

    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        logits = torch.randn(200, 60, generator=seeded(2)[0]).to(dtype)
        options = {"temperature": 0.6, "top_p": 0.9, "top_k": 30}
        call = f"sample of {short(logits)} logits{named(options)}"
        got = called(call, sampler, logits, **options, generators=seeded(*range(200)))
        want = called(call, sampler, logits.float(), **options, generators=seeded(*range(200)))
        wrong = sum(a != b for a, b in zip(got, want, strict=True))
        true(
            wrong == 0,
            f"{call} differs in {wrong} of 200 rows from the same logits in float32. Half "
            "precision has two or three digits: begin with `.float()`.",
        )


def _refusals(sampler: Any) -> None:
    import torch

    inf, nan = torch.inf, torch.nan
    good = [0.0, 1.0, 2.0]
    for bad in ([nan, 0.0, 1.0], [0.0, 1.0, nan], [-inf, -inf, -inf], [0.0, inf, 1.0]):
        for temperature in (1.0, 0.0):
            logits = torch.tensor([good, bad])
            call = f"sample({logits.tolist()}, temperature={temperature})"
            raises(ValueError, lambda: sampler.sample(logits, temperature), call, FINITE)  # noqa: B023
    logits = torch.tensor([good, good])
    for name, bad in (("temperature", -1.0), ("top_p", 1.5), ("top_k", -1), ("min_p", 2.0),
                      ("temperature", nan), ("top_p", [0.5, 0.5, 0.5])):  # fmt: skip
        raises(
            ValueError,
            lambda: sampler.sample(logits, **{name: bad}),  # noqa: B023
            f"sample of two rows, {name}={bad}",
            because="A wrong parameter must not become a wrong text. `_column` looks at it.",
        )
    raises(
        ValueError,
        lambda: sampler.sample(logits, generators=seeded(1)),
        "sample of two rows with one generator",
        because="One generator a row, or two requests would share a stream.",
    )
