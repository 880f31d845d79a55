"""Every kernel of csrc/ at small awkward shapes, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/sanitize.py [NAME ...]
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/sanitize.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/sanitize.py --unwritten

Each case is launched once and compared with its oracle. Each tensor has memory of its own from
cudaMalloc, so that an access outside it is noticed. Results hold NaN before, so that what a kernel
leaves out shows; with `--unwritten` they hold nothing, so that initcheck sees what is read before
it is written. It does not see what TMA stores, so the results of such kernels hold NaN there, too.
Without a GPU the same runs on the emulator.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import test_attention_gradient as gradient  # noqa: E402
import test_attention_variants as variants  # noqa: E402
import test_draft_metadata as metadata  # noqa: E402
import test_flash_kernels as flash  # noqa: E402
import test_flat_tree as tree  # noqa: E402
import test_kv_kernels as kv  # noqa: E402
import test_paged_rungs as paged  # noqa: E402
import test_reading as reading  # noqa: E402
import test_scan as scan  # noqa: E402
import torch  # noqa: E402
from attention_cases import Shape, devices_of, dtypes_of, takes  # noqa: E402
from kernel_cases import CASES, Case  # noqa: E402
from launches import GPU, HALVES  # noqa: E402
from tiny import make_tiny_model  # noqa: E402

from yaie.bench.protocol import new_memory_is_nan  # noqa: E402
from yaie.build.cache import CSRC  # noqa: E402
from yaie.engine.llm import LLM  # noqa: E402
from yaie.engine.params import SamplingParams  # noqa: E402
from yaie.ops.cuda.launching import SUFFIXES, call  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"
F32 = torch.float32
HALF, BF16 = HALVES
Work = tuple[Callable, tuple]


def launch(case: Case, dtype: torch.dtype) -> None:
    """A kernel of the table at each of its small shapes."""
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator).to(DEVICE, dtype)

    for shape in case.small_shapes:
        inputs = case.inputs(shape, draw)
        blank = torch.empty(0, dtype=case.output_dtype or dtype, device=DEVICE)
        outputs = tuple(blank.new_empty(sizes) for sizes in case.outputs(*inputs))
        if "tma_store(" in (CSRC / case.file).read_text():
            outputs = tuple(output.fill_(torch.nan) for output in outputs)
        name = f"{case.name}_{SUFFIXES[dtype]}"
        call(case.file, name, *case.arguments(inputs, outputs))
        case.check(outputs, inputs)


def engine(dtype: str, sizes: tuple[int, int, int]) -> None:
    """Steps as the engine lays them out: padding, and layers that share work space. No graphs: they
    could not be captured, where each tensor takes memory from cudaMalloc."""
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    prompts = [[5 + i * n % 90 for i in range(n)] for n in (70, 33, 9, 1)]
    greedy = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    with tempfile.TemporaryDirectory() as folder:
        make_tiny_model(folder, **dict(zip(names, sizes, strict=True)))
        options = {"dtype": dtype, "device": DEVICE, "num_blocks": 64, "exercises": False}
        options["enforce_eager"] = True
        by_kernels, wanted = (
            [x.token_ids for x in LLM(folder, backend=b, **options).generate(prompts, greedy)]
            for b in ("cuda", "reference")
        )
    assert by_kernels == wanted or dtype != "float32"  # in half precision two may be equally likely


def of_table() -> Iterator[Work]:
    for case in CASES:
        for dtype in case.dtypes:
            yield launch, (case, dtype)


def each_rung(rungs: Sequence[str], cases: Sequence, test: Callable) -> Iterator[Work]:
    """Each rung at each case that it takes, in its last dtype."""
    for rung in rungs:
        for case in cases:
            if takes(rung, case.head_dim, case.heads // case.kv_heads) and DEVICE in devices_of(
                rung
            ):
                yield test, (rung, case, dtypes_of(rung)[-1], DEVICE)


def of_flash() -> Iterator[Work]:
    yield from each_rung(flash.FLASH, flash.CASES, flash.test_equals_the_oracle)
    cached = Shape((3, 200), 3, 1, 128, queries=(5, 70))
    both = [cached, replace(cached, in_order=True)]
    yield from each_rung(paged.FLASH_PAGED, both, paged.test_equals_the_oracle)


def of_paged() -> Iterator[Work]:
    yield from each_rung(paged.DECODE, paged.SHAPES[:16], paged.test_equals_the_oracle)
    for workers in (1, 5, 50):
        yield paged.test_wherever_the_shares_end, (workers, DEVICE)
    for shape, shared in paged.PREFIXES:
        yield paged.test_cascade, (shape, shared, BF16, DEVICE)
    for shape, most in variants.SELECTIONS:
        yield variants.test_selected_tokens, (shape, most, BF16, DEVICE)
    for shape in variants.EIGHT:
        yield variants.test_a_cache_of_8_bits, (shape, BF16, DEVICE)
    for version in (1, 2):
        yield reading.test_equals_the_oracle, (version, reading.LENGTHS[2], HALF, DEVICE)


def of_kv() -> Iterator[Work]:
    yield kv.test_reshape_and_cache, ("cuda", HALF, DEVICE)
    yield kv.test_tokens_may_lie_apart, (DEVICE,)
    yield kv.test_rotating_and_writing_together, ((5, 3, 2, 64), BF16, DEVICE)
    for pairs in kv.MAPPINGS.values():
        yield kv.test_copies_read_before_they_write, (pairs, "cuda", DEVICE)
    yield kv.test_blocks_of_any_size, ((17, 2, 33), BF16, "cuda", DEVICE)
    for lengths in kv.LENGTHS:
        yield kv.test_gather, (lengths, BF16, "cuda", DEVICE)
    yield kv.test_fp8_is_the_nearest_and_saturates, ((7, 2, 33, 3), HALF, "cuda", DEVICE)
    yield kv.test_fp8_comes_back_times_its_scale, (HALF, "cuda", DEVICE)


def of_integers() -> Iterator[Work]:
    yield scan.test_blelloch, (64, DEVICE)
    yield scan.test_prefix_sum_of_any_length, (DEVICE,)
    for backend in ("cuda", "cuda_linear", "cuda_binary"):
        yield metadata.test_every_back_end_at_any_batch, (backend, DEVICE)
    yield metadata.test_from_ends, (DEVICE,)
    for name in ("match", "match_simple"):
        yield tree.test_launchers, (name, DEVICE)


def of_engine() -> Iterator[Work]:
    for dtype, sizes in (("float32", (4, 2, 64)), ("bfloat16", (9, 3, 64))):
        yield engine, (dtype, sizes)


def of_gradient() -> Iterator[Work]:
    for dtype in (F32, BF16):
        for shape in gradient.SHAPES:
            yield gradient.test_gradients_of_both_results, (shape, "cuda", dtype, DEVICE)


GROUPS = {
    "table": of_table, "flash": of_flash, "paged": of_paged, "kv": of_kv,
    "integers": of_integers, "gradient": of_gradient, "engine": of_engine,
}  # fmt: skip


def main(*names: str) -> int:
    """Run the groups, all if none is named; the exit status."""
    unwritten = "--unwritten" in names
    names = tuple(name for name in names if not name.startswith("-")) or tuple(GROUPS)
    if unknown := set(names) - set(GROUPS):
        sys.exit(f"groups are {', '.join(GROUPS)}, got {', '.join(sorted(unknown))}")
    for name in names:
        count = 0
        for work, given in GROUPS[name]():
            torch.manual_seed(0)
            with nullcontext() if unwritten else new_memory_is_nan():
                work(*given)
            count += 1
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        print(f"{name}: {count} cases as they should be, on {DEVICE}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
