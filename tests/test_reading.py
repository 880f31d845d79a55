"""What notebook 29 reads: a kernel, of which the answers are true, and the rules for a change."""

import pytest
import torch
from launches import HALVES, each_device, near, same_in_each_order

from yaie.build import jit
from yaie.course.lessons import reading, rules
from yaie.course.lessons.reading import BLOCK_SIZE, HEAD_SIZE, NUM_THREADS, PARTITION_SIZE

FILE = jit.CSRC / "vllm_style" / "paged_attention.cu"
SIZES = {torch.float32: "f32", HALVES[0]: "f16"}
LENGTHS = ((1, 0, 17, 33), (16, 500, 100), (512, 513, 1100, 3))


def operands(lengths: tuple, dtype: torch.dtype, device: str, heads: int = 4, kv_heads: int = 2):
    """q, the caches of [tokens, KV heads, 64] as the kernel has them, tables, lengths; and k, v."""
    generator = torch.Generator().manual_seed(0)
    blocks = [-(-n // BLOCK_SIZE) for n in lengths]
    pool = (sum(blocks) + 3, BLOCK_SIZE, kv_heads, HEAD_SIZE)
    q, k, v = (
        torch.randn(*shape, generator=generator).to(device, dtype)
        for shape in ((len(lengths), heads, HEAD_SIZE), pool, pool)
    )
    order = torch.randperm(pool[0], generator=generator).tolist()
    tables = torch.full((len(lengths), max(blocks)), 10**6, dtype=torch.int32)
    for row, count in zip(tables, blocks, strict=True):
        row[:count] = torch.tensor([order.pop() for _ in range(count)])
    x = 16 // q.element_size()
    k_cache = k.unflatten(3, (-1, x)).permute(0, 2, 3, 1, 4).contiguous()
    v_cache = v.permute(0, 2, 3, 1).contiguous()
    counts = torch.tensor(lengths, dtype=torch.int32)
    return [q, k_cache, v_cache, tables.to(device), counts.to(device)], k, v


def attend(version: int, given: list, checked: bool = False):
    """The result, the report, and version 2's maxima."""
    q, k_cache, v_cache, tables, lengths = given
    most = int(lengths.max())
    out = torch.full_like(q, torch.nan)
    parts = (*q.shape[:2], -(-most // PARTITION_SIZE))
    sums, largest = (q.new_full(parts, torch.nan, dtype=torch.float32) for _ in "ab")
    work = (sums, largest, q.new_full((*parts, HEAD_SIZE), torch.nan)) if version == 2 else ()
    kernels = jit.load(FILE, checked=checked)
    getattr(kernels, f"paged_attention_v{version}_{SIZES[q.dtype]}")(
        out, *work, q, k_cache, v_cache, len(q), q.shape[1], k_cache.shape[1], 0.125,
        tables, lengths, tables.shape[1], most,
    )  # fmt: skip
    return out, kernels.report, largest


@each_device
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("version", (1, 2))
def test_equals_the_oracle(version, lengths, dtype, device):
    given, k, v = operands(lengths, dtype, device)
    if device == "cpu" and sum(lengths) < 100:
        (out,) = same_in_each_order(lambda: attend(version, given, checked=True)[0])
        assert jit.load(FILE, checked=True).report.clean
    else:
        out = attend(version, given)[0]
    for s, length in enumerate(lengths):
        keys, values = (
            pool[given[3][s, : -(-length // BLOCK_SIZE)].long()].flatten(0, 1)[:length].double()
            for pool in (k, v)
        )
        q = given[0][s].double().view(2, 2, HEAD_SIZE)  # KV heads, their query heads
        weights = torch.einsum("hgd,thd->hgt", q, keys).mul(0.125).softmax(-1)
        near(out[s], torch.einsum("hgt,thd->hgd", weights, values).flatten(0, 1).cpu())


def test_the_answers_are_true_of_the_kernel():
    """What the kernel's lines ask of memory follows from the answers."""
    lengths, heads = (700, 3, 513), 2
    given, _, _ = operands(lengths, torch.float32, "cpu", heads)
    _, report, largest = attend(2, given, checked=True)
    text = FILE.read_text()

    def line(part: str):
        return report.line(text[: text.index(part)].count("\n") + 1).accesses[-1]

    assert line("max_logits[row * max_num_partitions").lanes == int((~largest.isnan()).sum())
    busy, launched, numbers = reading.version_two(lengths, heads, max(lengths))
    assert line("max_logits[row * max_num_partitions").lanes == busy
    assert launched == largest.numel() and numbers == launched * (2 + HEAD_SIZE)
    for token, head, element in ((0, 0, 0), (17, 1, 5), (699, 1, 63)):
        place = reading.key_place(given[3][0].tolist(), token, head, element, heads)
        before = given[1].flatten()[place].clone()
        given[1].flatten()[place] = given[0][0, head, element].sign() * 1e4  # the largest score
        now = attend(2, given)[2]
        differ = (now != largest) & ~largest.isnan()
        assert differ.nonzero().tolist() == [[0, head, token // PARTITION_SIZE]]
        given[1].flatten()[place] = before
    assert all(f" {name}" in text or f"*{name}" in text for name in reading.names().values())

    (given, *_), length = operands((700,), torch.float32, "cpu", 1, 1), 700
    _, report, _ = attend(1, given, checked=True)
    tokens = [reading.tokens_of(thread, length) for thread in range(NUM_THREADS)]
    requests = [  # of warps to store scores: the first thread of each group has one
        sum(1 << lane for lane in range(0, 32, 2) if len(tokens[first + lane]) > turn)
        for first in range(0, NUM_THREADS, 32) for turn in range(len(tokens[first]))
    ]  # fmt: skip
    assert sorted(line("logits[token_idx - start_token_idx] =").first_lanes) == sorted(requests)


def test_the_rules_are_those_of_contributing():
    said = (jit.CSRC.parent / "CONTRIBUTING.md").read_text()
    for name in ("kernel_cases.py", "registry.py", "tensor parallelism", *rules.TOOLS):
        assert name in said or name == "memcheck", name  # compute-sanitizer's own choice
    assert all((jit.CSRC.parent / file).is_file() for file in rules.SEVERAL_GPUS)
