"""The offline workload, by which the engine is compared with others."""

from yaie.course.author.gpu.offline import LEAST, MOST, REQUESTS, WORDS, workload


def test_the_workload_is_that_of_nano_vllm():
    prompts, outputs = workload(0)
    assert sum(outputs) == 133_966  # as its readme prints
    assert len(prompts) == len(outputs) == REQUESTS
    assert all(LEAST <= n <= MOST for n in (*map(len, prompts), *outputs))
    assert all(0 <= token <= WORDS for prompt in prompts for token in prompt)
    assert workload(1) != workload(0) == workload(0)
