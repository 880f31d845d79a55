"""Helpers for tests of the engine: an oracle without a cache, and a model that follows a script."""

import math
from collections.abc import Callable, Sequence

import torch
from tiny import make_batch, make_pools

from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.engine.request import RequestOutput
from yaie.engine.sampling import SamplingKernel
from yaie.model.llama import Llama
from yaie.ops.reference import sampling as draws


def recompute(
    model: Llama, prompt: Sequence[int], params: SamplingParams, on_device: bool = False
) -> list[int]:
    """The tokens of a request by the most wasteful way: all of it computed anew for each token.

    No scheduler, no cache, no neighbors, no chunks; one block that holds everything. Tokens are
    chosen by the sampler, or as a GPU does it, from the request's own stream of random numbers.
    """
    sampler, generator = SamplingKernel(), torch.Generator()
    if params.seed is not None:
        generator.manual_seed(params.seed)
    size = len(prompt) + params.max_tokens
    tokens = list(prompt)
    while len(tokens) < size:
        pools = make_pools(model.config, 1, size)
        with torch.inference_mode():
            logits = model(make_batch([(tokens, 0, [0])], size), *pools)
            logits[0] = edited(logits[0], prompt, tokens[len(prompt) :], params, model.config)
            if on_device:
                token = sample_on_device(logits, params, generator)
            else:
                token = sampler.sample(
                    logits,
                    temperature=params.temperature,
                    top_p=params.top_p,
                    top_k=params.top_k,
                    min_p=params.min_p,
                    generators=[generator],
                ).item()
        tokens.append(token)
        if token in params.stop_token_ids:
            break
        if token in model.config.eos_token_ids and not params.ignore_eos:
            break
    return tokens[len(prompt) :]


def edited(logits, prompt, generated, params: SamplingParams, config) -> torch.Tensor:
    """Penalties, bias and forbidden end tokens, one number at a time."""
    numbers = logits.tolist()
    for token in {*prompt, *generated}:
        penalty = params.repetition_penalty
        numbers[token] *= 1 / penalty if numbers[token] > 0 else penalty
    for token in generated:
        numbers[token] -= params.frequency_penalty
    for token in set(generated):
        numbers[token] -= params.presence_penalty
    for token, bias in dict(params.logit_bias).items():
        numbers[token] += bias
    if len(generated) < params.min_tokens:
        for token in {*params.stop_token_ids, *(config.eos_token_ids, ())[params.ignore_eos]}:
            numbers[token] = -math.inf
    return torch.tensor(numbers)


def sample_on_device(
    logits: torch.Tensor, params: SamplingParams, generator: torch.Generator
) -> int:
    """The token of one row, by the reference of the operator `sample`."""
    uniform = torch.zeros(1, dtype=torch.float64)
    if params.temperature > 0:
        uniform = torch.rand(1, dtype=torch.float64, generator=generator)
    return draws.sample(
        logits,
        torch.tensor([params.temperature]),
        torch.tensor([params.top_k], dtype=torch.int32),
        torch.tensor([params.top_p]),
        torch.tensor([params.min_p]),
        uniform,
    ).item()


def run(engine: Engine, limit: int = 5000) -> dict[str, RequestOutput]:
    """Take steps until nothing is left to do; the finished outputs by request id."""
    outputs = {}
    for _ in range(limit):
        if not engine.has_work:
            return outputs
        outputs |= {o.request_id: o.request.output() for o in engine.step() if o.finish_reason}
    raise AssertionError("the workload does not come to an end")


def check_whole(engine: Engine) -> None:
    """Nothing runs, nothing is lost: each block is free, or the cache's and can be evicted."""
    pool, cache = engine.kv.pool, engine.cache
    assert not engine.has_work
    assert not engine.requests
    assert not engine.kv.block_tables
    assert pool.num_free + cache.num_cached == pool.num_blocks
    assert cache.num_available == pool.num_blocks
    assert all(pool.ref_count(block) <= 1 for block in range(pool.num_blocks))


class ScriptedModel:
    """A model that says what it is told to.

    A request whose prompt is the one token `t` gets the tokens of `scripts[t]`, one after the
    other. It finds `t` in the paged memory, as attention would.
    """

    def __init__(self, engine: Engine, scripts: dict[int, Sequence[int]]) -> None:
        self.config, self.backends = engine.config, {"sample": "auto"}
        self.scripts = {first: list(script) for first, script in scripts.items()}
        self.block_size = engine.kv.block_size
        self.memory: dict[int, int] = {}

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden  # the logits already

    def hidden(self, batch, key_pools, value_pools) -> torch.Tensor:
        new = zip(batch.slot_mapping.tolist(), batch.token_ids.tolist(), strict=True)
        self.memory.update(new)
        ends = (batch.cu_seqlens[1:] - 1).tolist()
        logits = torch.zeros(len(batch.logit_rows), self.config.vocab_size)
        for row, flat in enumerate(batch.logit_rows.tolist()):
            sequence = ends.index(flat)
            first = self.memory[batch.block_tables[sequence, 0].item() * self.block_size]
            length = batch.context_lens[sequence].item()
            logits[row, self.scripts[first][length - 1]] = 100.0
        return logits


def follow(engine: Engine, scripts: dict[int, Sequence[int]]) -> None:
    """Put a `ScriptedModel` in the place of the engine's model."""
    engine.runner.model = ScriptedModel(engine, scripts)


def interfere(
    engine: Engine, before: Callable | None = None, after: Callable | None = None
) -> None:
    """Call `before(step)` before every forward pass, or `after(step, logits)` after it."""
    inner = engine.runner.run

    def run_step(step, *about):
        if before is not None:
            before(step)
        logits = inner(step, *about)
        if after is not None:
            with torch.inference_mode():
                after(step, logits)
        return logits

    engine.runner.run = run_step


def leave_alone(engine: Engine) -> None:
    """End `interfere`."""
    del engine.runner.run
