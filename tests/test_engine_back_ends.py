"""The engine's own kernels in the whole model, on a CPU: emulated and interpreted."""

import pytest
import torch

from yaie import LLM, SamplingParams
from yaie.ops.interpreter import interpreted

# A long prompt beside short ones, one of which begins like another; chunks, blocks, cached heads.
PROMPTS = [[7 + i % 11 for i in range(25)], [5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11, 1, 2], [40]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, logprobs=0)
TRITON = pytest.mark.skipif(not interpreted(), reason="needs Triton's interpreter")
BACK_ENDS = ["cpp", "cuda", pytest.param("triton", marks=TRITON)]


def make(model, **options):
    return LLM(model, device="cpu", num_blocks=80, exercises=False, **options)


def logprobs(outputs):
    return torch.tensor([[token.logprob for token in output.logprobs] for output in outputs])


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_the_same_greedy_tokens(untied_model, backend):
    options = {"block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 16}
    wanted = make(untied_model, backend="reference", **options).generate(PROMPTS, GREEDY)
    llm = make(untied_model, backend=backend, **options)
    for _ in range(2):  # the second time from the cache
        got = llm.generate(PROMPTS, GREEDY)
        assert [o.token_ids for o in got] == [o.token_ids for o in wanted]
        assert torch.allclose(logprobs(got), logprobs(wanted), atol=1e-4)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_bfloat16_is_as_near_as_the_references(untied_model, backend):
    """Within what bfloat16 does to the reference itself, or half as much again."""
    first = SamplingParams(temperature=0.0, max_tokens=1, logprobs=20)

    def likeliest(**options):
        outputs = make(untied_model, **options).generate(PROMPTS, first)
        return {(n, i): x for n, o in enumerate(outputs) for i, x in o.logprobs[0].top.items()}

    exact, far = likeliest(backend="reference"), {}
    for name in ("reference", backend):
        half = likeliest(backend=name, dtype="bfloat16")
        gaps = [half[key] - exact[key] for key in exact.keys() & half.keys()]
        assert len(gaps) > 40
        far[name] = torch.tensor(gaps).square().mean().sqrt().item()
    assert 0 < far[backend] < 1.5 * far["reference"]


def test_the_real_model_with_emulated_kernels(real_model):
    prompts = ["The capital of France is", "def add(a, b):\n    return"]
    wanted = make(real_model).generate(prompts, GREEDY)
    got = make(real_model, backend="cuda").generate(prompts, GREEDY)
    assert [o.token_ids for o in got] == [o.token_ids for o in wanted]
    assert torch.allclose(logprobs(got), logprobs(wanted), atol=1e-3)
