"""Figures that docs/ and the texts of notebooks name (11, 12, 16, 18, 19, 21 to 23, 25, 26, 29)
are of their data."""

import inspect
import re

import nbformat
import pytest

from yaie.bench.drawn import LLAMA_8B
from yaie.course.author.notebooks import find
from yaie.course.core import manifest, render
from yaie.course.core.paths import ROOT, kept
from yaie.course.lessons import data_nb23, timeline
from yaie.course.lessons.data_nb18 import rescales
from yaie.course.lessons.speculative import prompt_lookup
from yaie.course.viz.tensor_core import pipeline
from yaie.engine.libraries import GAIN

BLOCKS, FLASH, NAIVE, PAGED, SPARSE, BUILT, PROFILED = (
    kept(f"{name}_h200")
    for name in (
        *("11_blocks", "18_flash", "18_naive", "19_paged", "19_selected"),
        *("22_tools", "23_tools"),
    )
)
HOPPER = {
    name: problem["rows"] for name, problem in kept("18_flash_hopper_h100")["problems"].items()
}
HOPPER_128 = [rows for name, rows in HOPPER.items() if "d128" in name]
FA2, CUDNN, FA3 = "SDPA, FlashAttention-2", "SDPA, cuDNN", "FlashAttention-3"


def column(problem: dict, name: str = "ms") -> dict[str, float]:
    return {who: row[name] for who, row in problem["rows"].items() if name in row}


FULL, MASKED, SMALL, SMALL_MASKED = (column(p, "tflop_s") for p in FLASH["problems"].values())
RUNGS = {name: column(problem) for name, problem in PAGED["decode"].items()}
LADDER = RUNGS["B16 ctx4096"]


def over_naive(peer: str, head_dim: int | None = None, causal: bool = False) -> list[float]:
    """How many times as fast as naive attention, by the shapes that were measured."""
    problems = [p for p in NAIVE["problems"].values() if head_dim in (None, p["head_dim"])]
    rows = [column(p) for p in problems if p["causal"] == causal]
    return [row["naive"] / row[peer] for row in rows]


def of_11() -> list[tuple]:
    graph = column(BLOCKS["blocks"]["1823 × 781"], "graph_ms")
    flat = [graph[f"BLOCK = {block}"] for block in (512, 1024, 2048, 4096)]
    return [("at most {:.0f} %", 100 * (max(flat) / min(flat) - 1))]


def of_16() -> list[tuple]:
    record = kept("16_hopper_h100")
    assert not record["faults"] and record["machine"]["multiprocessors"] == 132
    speed = column(record["products"]["4096 × 4096 × 4096"], "tflop_s")
    few = [
        column(product, "of_library")["store"]
        for shape, product in record["products"].items()
        if shape.startswith("512 ×")
    ]
    assert len(few) == 4 and speed["producer"] < speed["stages"]
    wide, low, lowest = (
        column(record["products"][f"{shape} × 4096"], "of_library")
        for shape in ("512 × 6144", "64 × 6144", "64 × 4096")
    )
    return [
        ("{:.1f} times", speed["store"] / speed["mma"]),
        ("{:.0f} against {:.0f} TFLOP/s", speed["store"], speed["cuBLAS"]),
        ("{:.2f} of cuBLAS", speed["wgmma"] / speed["cuBLAS"]),
        ("{:.2f} to {:.2f} of cuBLAS", min(few), max(few)),
        ("{:.0f} of the 132 SMs", 132 - 512 // 128 * 4096 // 256),
        ("{:.2f} of cuBLAS at 512 × 6144", wide["shares, 128 × 192"]),
        ("128 × 256 reach {:.2f}", wide["shares, 128 × 256"]),
        ("{:.2f} instead of {:.2f}", low["shares, 64 × 128"], low["shares, 128 × 256"]),
        ("{:.2f} instead of {:.2f}", lowest["shares, 64 × 64"], lowest["shares, 64 × 128"]),
    ]


def of_18() -> list[tuple]:
    ours = [rung["mma"] / rung[FA2] for rung in (FULL, MASKED, SMALL, SMALL_MASKED)]
    late = column(NAIVE["problems"]["B1 H32 S16384 d128 full"])["naive"]
    late /= column(NAIVE["problems"]["B2 H32 S8192 d128 full"])["naive"]
    errors = [100 * column(p, "row_error")["naive"] for p in NAIVE["problems"].values()]
    memory = NAIVE["problems"]["B1 H32 S16384 d128 full"]["peak_bytes"]
    one_head = [rung["mma"] / rung["mma, 1 head after the other"] for rung in (FULL, MASKED)]
    assert 0.7 < 1 - FULL["mma, no swizzle"] / FULL["mma"] < 0.8  # "three quarters"
    assert 1.15 < late < 1.25  # "by a fifth"
    assert one_head[1] > 1.04
    worst = [max(v for who, v in column(p, "row_error").items() if who != "naive")
             for p in NAIVE["problems"].values()]  # fmt: skip
    return [
        ("{:.1f} TFLOP/s", FULL["row"]),
        ("{:.2f} of cuDNN", HOPPER["B4 H32 S4096 d128 full"]["Triton"]["of_cudnn"]),
        ("{:.2f} times as fast as cuDNN", HOPPER["B4 H32 S4096 d128 full"][FA3]["of_cudnn"]),
        ("{:.1f}", FULL["shared_tile"] / FULL["row"]),
        ("{:.0f}", FULL["mma"] / FULL["shared_tile"]),
        *[("{:.2f}", ratio) for ratio in ours],
        ("{:.1f} to {:.1f}", MASKED[CUDNN] / MASKED["mma"], FULL[CUDNN] / FULL["mma"]),
        ("{:.1f} to {:.1f}", min(over_naive(FA2, 128)), max(over_naive(FA2, 128))),
        ("{:.1f} to {:.1f}", min(over_naive(FA2, 64)), max(over_naive(FA2, 64))),
        ("{:.0f} to {:.0f}", min(over_naive(FA2, None, True)), max(over_naive(FA2, None, True))),
        ("{:.1f} to {:.1f}", min(over_naive(CUDNN, 128)), max(over_naive(CUDNN, 128))),
        ("{:.0f}", max(over_naive(CUDNN, None, True))),
        ("{:.0f} GB", memory["naive"] / 1e9),
        ("{:.2f} GB", memory[FA2] / 1e9),
        ("{:.1f} to {:.1f} %", min(errors), max(errors)),
        ("{} %", 0.5 if 0.4 < 100 * max(worst) < 0.5 else 100 * max(worst)),
    ]


def of_19() -> list[tuple]:
    flashinfer = {
        name: column(p, "of_flashinfer").get("mma") for name, p in PAGED["decode"].items()
    }
    prefixes = kept("19_prefixes_h100")
    shared, few = (
        column(prefixes["prefixes"][name], "graph_ms")
        for name in ("B64 shared 8192 own 256", "B8 shared 256 own 256")
    )
    loaded = 64 * (8192 + 256) * 2 * 8 * 128 * 2 / shared["paged_attention"] / 1e6
    assert not prefixes["faults"] and loaded > prefixes["copy_gb_s"]
    assert few["cascade"] > few["paged_attention"] > 0.98 * few["shared_prefix_attention"]
    selected = {name: column(p, "graph_ms") for name, p in SPARSE["selected"].items()}
    whole = {name: column(p, "graph_ms")["mma"] for name, p in SPARSE["full"].items()}
    times = [whole[name] / rows["slots, then mma"] for name, rows in selected.items()]
    tables = [
        1e3 * (rows["slots, then mma"] - rows["mma, slots kept"]) for rows in selected.values()
    ]
    record = kept("19_fp8_h100")
    eight = [column(p, "graph_ms") for p in record["decode"].values()]
    all_warps, best, theirs = (
        [row[slow] / row[fast] for row in eight]
        for slow, fast in (
            ("mma, bfloat16", "mma, e4m3"),
            ("mma, bfloat16", "mma, e4m3, 3/4 as many warps"),
            ("FlashInfer, e4m3", "mma, e4m3, 3/4 as many warps"),
        )
    )
    assert not record["faults"] and min(best) > 1.6 and 1.15 < min(theirs) < max(theirs) < 1.25
    quality = kept("19_fp8_quality_cpu")["caches"]
    assert quality["float32, scales folded"]["kl_mean"] == 0
    assert 4 < selected["B16 ctx8192"]["selected"] / whole["B16 ctx8192"] < 4.5  # "four times"
    assert 8.5 < times[2] < 9.5
    return [
        ("{:.1f} times", LADDER["one_block"] / LADDER["grouped"]),
        ("{:.1f} times", LADDER["grouped"] / LADDER["split"]),
        ("{:.1f}", LADDER["split"] / LADDER["mma"]),
        ("{:.0f} µs", 1e3 * LADDER["split"]),
        ("{:.2f}", flashinfer["B64 ctx4096"]),
        ("{:.2f}", flashinfer["B128 ctx1024"]),
        ("{:.1f}", flashinfer["B32 skewed"]),
        ("{:.1f} times", shared["paged_attention"] / shared["cascade"]),
        ("{:.0f} µs or {:,.0f} GB/s", 1e3 * shared["paged_attention"], round(loaded, -2)),
        ("{:.1f} times", times[0]),
        ("{:.0f} times", int(times[3])),
        ("{:.0f} µs", 1e3 * selected["B1 ctx131072"]["mma, slots kept"]),
        ("{:.0f} to {:.0f} µs", min(tables), max(tables)),
        ("{:.1f} to {:.1f} times as fast as bfloat16", min(best), max(best)),
        ("{:.1f} to {:.1f}", min(all_warps), max(all_warps)),
        ("{:.1f} times as fast as FlashInfer", sum(theirs) / len(theirs)),
        ("{:.3f} nats on average", quality["e4m3"]["kl_mean"]),
        ("at {:.0f} % of the positions", 100 * quality["e4m3"]["same_likeliest"]),
    ]


def recorded() -> list[timeline.Kernel]:
    """The eager step of one sequence, as the profiler recorded it."""
    return timeline.recorded(BUILT["graph"]["batches"]["1"]["eager"]["events"])


def of_05() -> list[tuple]:
    """What 05 and 21 say of a sort, FlashInfer and one read."""
    record = kept("21_sampling_h200")
    us = {
        row["who"]: 1e3 * row["ms"]
        for row in record["results"]
        if row["shape"].endswith("top-k 50, top-p 0.9")
    }
    read = 4e-3 * 256 * 128_256 / record["ceilings"]["read"]
    assert us["a sort in torch"] > 100 * read
    assert us["cuda"] < us["FlashInfer, from probabilities"] / 4
    assert us["cuda"] < us["a sort in torch"] / 20
    return [
        ("{:,.0f} µs", us["a sort in torch"]),
        ("{:.0f} µs", us["FlashInfer, from logits"]),
        ("{:.0f} µs", read),
    ]


def of_15() -> list[tuple]:
    record = kept("15_fast_math_h200")
    rows = {(row["kernel"], row["rows"], row["dtype"]): row for row in record["kernels"]}
    less = {
        dtype: 100 - 100 * rows["softmax", 512, dtype]["ratio"]["--use_fast_math"]
        for dtype in ("bf16", "f32")
    }
    own = rows["softmax", 512, "f32"]["ulps"]["wide"]["as the course builds"]["worst"]
    instructions = [len(lines) for lines in record["instructions"]["exponential"].values()]
    assert all(
        row["ratio"]["--use_fast_math"] > 0.99 for key, row in rows.items() if key[0] == "rms_norm"
    )
    return [
        ("{:.0f} % of the time; in float32 they save {:.0f} %", less["bf16"], less["f32"]),
        ("own error there, {:.0f} ulps", own),
        ("{1} instructions instead of {0}", *instructions),
    ]


def of_21() -> list[tuple]:
    record = kept("21_reads_h100")
    one = record["bytes"] / record["read_gb_s"] / 1e3
    three, two = record["us"].values()
    assert all(two[what] < three[what] and two[what] < 3 * one for what in two)
    rest = {what: 100 * x["the rest"] / sum(x.values()) for what, x in record["clocks"].items()}
    assert all(x["first read"] < 1.2 * x["second read"] for x in record["clocks"].values())
    assert 9 < rest["no filter"] < 11  # "a tenth"
    return [
        *of_05(),
        ("{:.0f} % of the clocks", rest["top-p 0.9"]),
        *(("takes {:.2f} reads instead of {:.2f}", two[what] / one, three[what] / one)
          for what in ("no filter", "top-p 0.9")),
        ("A greedy row takes {:.2f} reads", two["greedy"] / one),
    ]  # fmt: skip


def of_22() -> list[tuple]:
    seconds = {row["way"]: row["seconds"] for row in BUILT["builds"]["rows"]}
    one_card, three_cards = (s for way, s in seconds.items() if way.startswith("ahead of time"))
    one = BUILT["graph"]["batches"]["1"]
    assert 2.5 < one["eager"]["busy_us"] / one["eager"]["kernels"] < 3.5  # "take 3 µs each"
    slower = timeline.faster(recorded(), 1) / 1000
    host = kept("22_host_h100")["us"]
    empty, fast = host["torch.empty"], host["_empty_strided_cuda"]
    assert 1.7 < (empty - fast) / fast < 2.3  # "twice as long as it allocates"
    return [
        ("it took {:.1f} µs where", empty),
        ("programs takes {:.1f}.", fast),
        ("{:.2f} s", seconds["NVRTC, in the process: torch.cuda._compile_kernel"]),
        ("{:.0f} ms", 1e3 * seconds["yaie.jit.load, kept from before"]),
        ("{:.0f} % longer", 100 * (three_cards / one_card - 1)),
        ("launches all {}", one["graph"]["kernels"]),
        ("eager step took {:.0f} ms, not {:.0f}", slower, one["eager"]["ms"]),
    ]


def of_23() -> list[tuple]:
    metrics = {row["name"]: row["metrics"] for row in PROFILED["kernels"]["rows"]}
    naive, tile = metrics["transpose, naive"], metrics["transpose, tile"]
    scan, memory = metrics["scan, one thread block"], PROFILED["memory"]
    step, in_no_time = (timeline.faster(recorded(), factor) for factor in (1, 0))
    faults = memory["kernel_ms"]["managed, pages fault"] / memory["kernel_ms"]["cudaMalloc"]
    assert 155 < faults < 165  # "a hundred and sixty times"
    # The emulator counts 8 of 36 sectors with whole ones, and 2 of 33 wavefronts with padding.
    whole = max(8 / 36 * naive["l2"], 8 / 36 * naive["l1"], naive["dram"], naive["issue"])
    padded = max(tile["l2"], 2 / 33 * tile["l1"], tile["dram"], tile["issue"])
    return [
        ("instead of {:.1f} ms", step / 1000),
        ("{:.0f} µs shorter", step - in_no_time),
        ("shows as {:.2f} % is {:.0f} %", scan["l1"], 132 * scan["l1"]),
        ("from {:,.0f} µs", naive["nanoseconds"] / 1000),
        ("to at least {:.0f} µs", whole / 100 * naive["nanoseconds"] / 1000),
        ("takes {:.0f} µs", tile["nanoseconds"] / 1000),
        ("leaves at least {:.0f} µs", padded / 100 * tile["nanoseconds"] / 1000),
        ("busy for {:.0f} %", tile["l1"]),
        ("are at {:.0f} %", metrics["matmul, mma"]["tensor"]),
        ("{:.0f} GB/s", memory["MiB"] * 2**20 / memory["sending_ms"] / 1e6),
    ]


def of_25() -> list[tuple]:
    record = kept("16_hopper_h100")
    square, large = (
        column(record["products"][f"{n} × {n} × {n}"], "of_library") for n in (4096, 8192)
    )
    speeds = [column(record["products"][f"{n} × {n} × {n}"], "tflop_s") for n in (4096, 8192)]
    deep, flat = (
        column(record["products"][f"512 × 4096 × {k}"], "of_library") for k in (14336, 4096)
    )
    fast = ("persistent", "store", "Triton", "cuBLAS")
    assert not record["faults"] and all(speeds[1][who] < speeds[0][who] for who in fast)
    assert record["machine"]["multiprocessors"] == 132
    source = (ROOT / "csrc/matmul/hopper/shares.cu").read_text()
    adding = int(re.search(r"ADDING = (\d+);", source)[1]) + 128 * 256 // 2  # clocks
    causes = [
        (f"`{rung}` | {{:.2f}}", square[rung])
        for rung in ("wgmma", "tma", "stages", "producer", "consumers", "persistent", "store")
    ]
    return [
        *causes,
        ("only {:.2f} of cuBLAS", square["mma"]),
        ("counts {:,} clocks", round(adding, -3)),
        ("as much as {:.0f} steps", adding / (128 * 256 / 32)),
        ("reaches {:.2f} of cuBLAS", large["store"]),
        ("nothing, and reaches {:.2f}", square["shares"]),
        ("once for both, and reaches {:.2f}", square["cluster"]),
        (
            "{:.2f} of cuBLAS instead of {:.2f}",
            deep["shares, 128 × 256, split"],
            deep["shares, 128 × 256"],
        ),
        ("{:.2f} against {:.2f}", flat["shares, 128 × 128"], flat["shares, 128 × 256, split"]),
    ]


def of_26() -> list[tuple]:
    ours = [rows["pingpong"]["of_cudnn"] for rows in HOPPER_128]
    beside = [rows["pingpong"]["of_fa3"] for rows in HOPPER.values()]
    large = [rows["pingpong"]["of_cudnn"] for name, rows in HOPPER.items() if "d256" in name]
    loses = {
        change: [
            100 - 100 * rows[f"pingpong, {change}"]["tflop_s"] / rows["pingpong"]["tflop_s"]
            for rows in HOPPER_128
        ]
        for change in ("a thread block for each tile", "weights after the products",
                       "values given back after the weights")
    }  # fmt: skip
    assert all(rows[FA3]["of_cudnn"] > 1.05 for rows in HOPPER.values())
    small = [rows["pingpong"]["of_cudnn"] for name, rows in HOPPER.items() if "d64" in name]
    most = 0.0  # that turns gain
    for name, timed in kept("26_rounds_h100")["problems"].items():
        ms = {who: sorted(times)[len(times) // 2] for who, times in timed.items()}
        assert len(timed["cuDNN"]) == (10 if "S16384" in name else 20)
        keys = "128 keys" if "d64" in name else "160 keys"
        skipped = f"{keys}, skipped"
        most = max(most, ms[f"{skipped}, no turns"] / ms[skipped] - 1)
        assert (ms[skipped] < ms[keys]) == ("d64" in name)  # "Two gain nothing by it"
        assert ms[keys] <= ms.get("176 keys", ms[keys])
    rounds = ("{:,.0f} tiles of 128 queries: {:.0f} rounds", 4096, 4096 // 132)
    products = kept("16_hopper_h100")["products"].values()
    fastest = max(max(column(product, "tflop_s").values()) for product in products)
    copied = kept("18_flash_hopper_h100")["copy_gb_s"]
    balance = 1e3 * fastest / copied  # operations per byte
    return [
        ("{:.2f} of cuDNN with four full", ours[0]), ("{:.2f} with a causal mask", ours[1]),
        ("it is {:.2f} and {:.2f}", *ours[2:]),
        ("rung 3 is {:.2f} and {:.2f} of cuDNN", *large),
        ("{:.2f} of cuDNN without a mask, and {:.2f} with a causal one", *small),
        ("reaches {:.2f} to {:.2f} of it", min(beside), max(beside)),
        *[("lose{} {:.0f} to {:.0f} %", "s" if "block" in change else "", min(share), max(share))
          for change, share in loses.items()],
        ("at most {:.0f} %", 100 * most), rounds, *limits(), *boxes(), *first_token(),
        ("with {:.0f} to {:.0f} times as many operations per byte", balance / 8, balance),
    ]  # fmt: skip


def limits() -> list[tuple]:
    """What the counters of 26 say."""
    record = kept("26_counters_h100")
    (full, masked), ms = record["problems"].values(), record["ms"].values()
    ours, theirs, pairs = full["pingpong"], full[FA3], full["pingpong, clusters of two"]
    without = [timed["pingpong, no loads after the first"] for timed in ms]
    gains = [timed["pingpong"] / less - 1 for timed, less in zip(ms, without, strict=True)]
    assert all(round(100 * gain) == 9 for gain in gains)
    active, sectors, issue = "tensor cores active, %", "L2 sectors read", "issue slots, %"
    assert all(ours[issue] < full[who][issue] for who in (CUDNN, FA3))
    shares = theirs[active] / ours[active], ours["cycles"] / theirs["cycles"]
    assert max(shares) / min(shares) < 1.01  # "the whole difference"
    slower = masked["pingpong, clusters of two"]["cycles"] / masked["pingpong"]["cycles"] - 1
    return [
        ("active for {:.0f} %", theirs[active]), ("this build for {:.0f} %", ours[active]),
        ("issues in {:.0f} % of the slots", ours[issue]),
        ("busy for {:.0f} % of the time", ours["exponentials, %"]),
        ("{:.0f} % fewer bytes", 100 - 100 * pairs[sectors] / ours[sectors]),
        ("{:.0f} % fewer cycles", 100 - 100 * pairs["cycles"] / ours["cycles"]),
        ("it needs {:.0f} % more", 100 * slower),
        *late(),
    ]  # fmt: skip


def late() -> list[tuple]:
    """What late loads cost, in 26."""
    problems = kept("26_loads_h100")["problems"].values()
    little, early = "little per tile", "and values given back early"
    without = [timed[little] / timed[f"{little}, no loads after the first"] for timed in problems]
    gains = [timed[little] / timed[early] for timed in problems]
    beside, ours = ([timed[who] / timed[early] for timed in problems] for who in (FA3, "cuDNN"))
    return [
        ("at most {:.0f} % faster than the one with them", 100 * max(without) - 100),
        ("early add {:.0f} to {:.0f} %", 100 * min(gains) - 100, 100 * max(gains) - 100),
        ("reaches {:.2f} to {:.2f} of FlashAttention-3's rate", min(beside), max(beside)),
        ("and {:.2f} to {:.2f} of cuDNN's in this run", min(ours), max(ours)),
    ]


def boxes() -> list[tuple]:
    """What the boxes of TMA cost, in 26."""
    record = kept("26_boxes_h100")
    ways, apart, times = ("per block and part", "per block", "per tile if possible"), [], {}
    for problem in record["problems"]:
        contiguous, *rows = problem["rows"]
        same = [contiguous["ms"].values()]
        for row in rows:
            scattered = row["layout"] == "scattered blocks"
            same += [[row["ms"][way] for way in ways[1:]]] if scattered else []
            for way in ways if row["block_size"] == 16 else ():
                kind = "scattered" if scattered and way == ways[2] else way
                times.setdefault(kind, []).append(row["ms"][way] / contiguous["ms"][way])
        apart += [max(ms) / min(ms) - 1 for ms in same]
    engine, layers = record["engine"], record["engine"]["attention ms"].values()
    return [
        *[(said, min(times[way]), max(times[way])) for way, said in (
            (ways[0], "takes {:.2f} to {:.2f} times as long as over contiguous"),
            (ways[1], "per block it takes {:.2f} to {:.2f} times"),
            (ways[2], "it takes {:.2f} and {:.2f} times as long"),
            ("scattered", "take {:.2f} to {:.2f} times as long"))],
        ("differ by up to {:.0f} %", 100 * max(apart)),
        ("in the {} layers of a prompt of {:,} tokens", engine["layers"], engine["prompt"]),
        ("took {} ms with a box per block and part, and {} ms with", *layers),
    ]  # fmt: skip


def first_token() -> list[tuple]:
    record = kept("26_first_token_h100")
    ms = {name: way["ms"] for name, way in record["ways"].items()}
    products, attention = record["products ms"], record["attention ms"]
    assert attention == record["libraries"][FA3]
    return [
        ("a prompt of {:,} tokens comes after {:.0f} ms", record["prompt"], ms["Hopper"]),
        ("after {:.0f} ms with the kernel of notebook 18", ms["mma"]),
        ("takes {:.2f} times as long", record["ways"]["Hopper"]["over its parts"]),
        ("take {:.0f} ms by cuBLAS", products),
        ("takes {:.0f} ms by FlashAttention-3", attention),
        ("remaining {:.0f} ms", ms["Hopper"] - products - attention),
    ]  # fmt: skip


def of_12() -> list[tuple]:
    record = kept("12_groups_h100")
    small, large = (record["groups"][f"{n} × {n} × {n}"] for n in (4096, 8192))
    less, far_less, least = (
        100 - 100 * times[f"groups of {most}"]["ms"] / times["groups of 1"]["ms"]
        for times, most in ((small, 16), (large, 16), (large, 64))
    )
    assert not record["faults"] and min(small, key=lambda way: small[way]["ms"]) == "groups of 16"
    return [
        ("{:.0f} % less time than none at 4,096³", less),
        ("{:.0f} % less at 8,192³", far_less),
        ("take {:.0f} % less time, too", least),
    ]


def of_docs() -> list[tuple]:
    record = kept("16_hopper_h100")
    square = column(record["products"]["4096 × 4096 × 4096"], "of_library")
    rows = HOPPER["B4 H32 S4096 d128 causal"]["pingpong"]
    two = kept("29_tensor_parallel_h200")["steps"]
    decode = [row["times as fast as one GPU"] for row in two
              if row["way"] == "peers" and row["step"].startswith("decode")]  # fmt: skip
    eight = kept("19_fp8_quality_cpu")["caches"]["e4m3"]
    gated = kept("27_gated_h200")["shapes"]["llama-8b"]["tokens"]
    times = [torch_us / own for torch_us, own in (gated[n]["alone"] for n in ("256", "16384"))]
    return [
        ("for the activation | {:.2f} and {:.2f} times", *times),
        ("{:.2f} to {:.2f} times as fast", min(decode), max(decode)),
        ("by {:.3f} nats on average", eight["kl_mean"]),
        ("the same at {:.0f} % of", 100 * eight["same_likeliest"]),
        ("FlashAttention-3 | {:.2f} and {:.2f} times", rows["of_cudnn"], rows["of_fa3"]),
        ("cuBLAS | {:.2f} times", square["store"]),
    ]


def of_29() -> list[tuple]:
    record = kept("29_tensor_parallel_h200")
    small = record["all_reduce"][0]
    two = {(row["step"], row["way"]): row["times as fast as one GPU"] for row in record["steps"]}
    assert not record["faults"] and record["correctness"]["wrong all-reduces"] == [0, 0]
    return [
        ("{:.1f} µs instead of {:.1f}", *(small[f"{w}, us in a graph"] for w in ("peers", "NCCL"))),
        ("one kernel of {:.1f} µs", small["peers, with add_rms_norm, us in a graph"]),
        ("{:.2f} times as fast as on one GPU", two["decode 1", "peers"]),
        ("32 sequences {:.2f} times", two["decode 32", "peers"]),
        ("{:.2f} and {:.2f} times", *(two[f"decode {n}", "NCCL"] for n in (1, 32))),
        ("it is {:.2f} times as fast", two["prompt", "NCCL"]),
    ]


def of_17() -> list[tuple]:
    record = kept("17_kv_memory_h200")
    ours = [row for row in record["results"] if row["who"] == "cuda"]
    written, _, *more = (row["fraction"] for row in ours)
    small = ours[0]["fraction"] * 1e3 * ours[0]["ms"]  # µs at the rate of a copy
    assert len(ours) == 4 and 2 / small < 0.065  # "2 µs are 6 %"
    return [
        ("{:.2f} and {:.2f} of a copy with the larger inputs", *more),
        ("{:.2f} and {:.2f} with the smaller ones", written, ours[1]["fraction"]),
        ("take {:.0f} µs at the rate of a copy", small),
    ]


def of_20() -> list[tuple]:
    search = kept("20_search_h200")["search"].values()
    steps = {(s["requests"], s["tokens"]): column(s, "graph_ms") for s in search}
    less = {step: 1 - row["cuda_linear"] / row["cuda_binary"] for step, row in steps.items()}
    assert all(less[step] < 0 for step in steps if step[0] >= 16)  # "At 16 it takes more"
    assert all(row["triton_binary"] <= row["triton_linear"] for row in steps.values())
    assert all(row["cuda_linear"] > 5 * row["cuda_binary"]
               for step, row in steps.items() if step[0] == 1024)  # fmt: skip
    largest = steps[1024, 524_032]
    assert largest["triton_binary"] > 5 * largest["triton"]
    calls = kept("20_metadata_calls_h200")["microseconds"]
    apart = max(abs(who["cuda"]["kernel"] - who["triton"]["kernel"]) for who in calls.values())
    large = [who for requests, who in calls.items() if int(requests) >= 16]
    ours, theirs = ([who[name]["call"] for who in large] for name in ("cuda", "triton"))
    assert all(0.6 < a / b < 0.72 for a, b in zip(ours, theirs, strict=True))  # "two thirds"
    return [
        ("up to {:.1f} % less", 100 * max(less.values())),
        ("{:.0f} to {:.0f} µs beside", min(ours), max(ours)),
        ("{:.0f} to {:.0f};", min(theirs), max(theirs)),
        ("differ by at most {:.1f} µs", apart),
    ]


def of_27() -> list[tuple]:
    record = kept("27_engine_h200")
    none, part, whole, _ = record["first token, earlier"]
    _, small, eager, graphs = record["first token"]
    rows = {
        (row["model"].partition("-")[0], row["own"]): row
        for row in record["few queries"]["rows"]
        if row.get("length") == 4000
    }
    at_64, at_128 = rows["Llama", 64], rows["Llama", 128]
    per_query = (at_128["decode us"] - at_64["decode us"]) / 64
    ahead, behind = (row["prefill us"] - row["decode us"] for row in (at_64, at_128))
    assert 65 < 64 + 64 * ahead / (ahead - behind) < 75  # "cross at about 70"
    assert rows["SmolLM2", 128]["decode us"] < rows["SmolLM2", 128]["prefill us"]
    launched = min(row["decode us"] for row in record["few queries"]["rows"] if "length" in row)
    off = record["bfloat16 logits"]
    errors = off["root mean square from the reference in float32"].values()
    assert all(0.015 < error / off["standard deviation of the logits"] < 0.025 for error in errors)
    assert round(eager["cold ms"]) == round(graphs["cold ms"]) and none["cold ms"] > 30
    request = kept("27_one_request_h200")
    one, layers = request["steps"][0], LLAMA_8B["num_hidden_layers"]
    ways = one["torch's products"], one["operator by operator"], one
    numbers = [sum(number for _, number, _ in way["kernels"]) for way in ways]
    times = [way["gpu ms"] for way in ways]
    fewer, less = numbers[1] - numbers[2], times[1] - times[2]
    sms = request["machine"]["multiprocessors"]
    per_layer = sum(number // layers for _, number, _ in one["kernels"])
    return [
        ("falls from {:.1f} to {:.1f}", part["cold over cached"], whole["cold over cached"]),
        ("take {:.1f} ms instead of {:.0f},", whole["cold ms"], part["cold ms"]),
        ("take {:.1f} ms instead of {:.1f},", small["cached ms"], whole["cached ms"]),
        ("the ratio rises to {:.1f}", small["cold over cached"]),
        ("takes {:.0f} ms with graphs and without", graphs["cold ms"]),
        ("a ratio of {:.0f}", graphs["cold over cached"]),
        ("by {:.1f} µs per query", per_query),
        ("below {:.0f} µs", launched),
        ("reads {:.0f} GB of weights", one["GB"]),
        ("{} thread blocks, 4 on each of {} SMs", 4 * sms, sms),
        ("own products save {:.2f} ms", times[0] - times[1]),
        ("{} kernels less another {:.2f} ms, {:.1f} µs each", fewer, less, 1e3 * less / fewer),
        ("{} kernels remain", per_layer * layers),
    ]


FIGURES = {"05": of_05, "11": of_11, "12": of_12, "15": of_15, "16": of_16, "17": of_17,
           "18": of_18, "19": of_19, "20": of_20, "21": of_21, "22": of_22, "23": of_23,
           "25": of_25, "26": of_26, "27": of_27, "29": of_29}  # fmt: skip


@pytest.mark.parametrize("number, figures", FIGURES.items())
def test_the_text_names_the_figures_of_its_data(number, figures):
    cells = nbformat.read(find(number), as_version=4).cells
    text = " ".join(" ".join(c.source for c in cells if c.cell_type == "markdown").split())
    said = [template.format(*values) for template, *values in figures()]
    missing = [
        figure for figure in said if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", text)
    ]
    assert not missing, f"notebook {number} does not name {missing}, which its data give"


def test_the_changelog_names_the_figures_of_its_data():
    text = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    calls = kept("22_host_h100")["operators"]
    names = "rms_norm", "silu_and_mul", "add_rms_norm", "paged_attention"
    cuda, triton = ([calls[x]["after"][way]["us"] for x in names] for way in ("cuda", "triton"))
    record = kept("28_served_h200")
    rows, spread = record["rows"][2:], record["spread rows"]
    rates = [round(rows[0][f"{who} tokens_per_second"], -2) for who in ("server", "engine")]
    parts = [row["tokens_per_second ratio"] for row in (rows[0], spread[0], rows[1], spread[1])]
    host = kept("22_host_h200")

    def of_host(when: str, operator: str, value: str, *ways: str) -> list[float]:
        runs = [run["results"] for run in host[when] if run["backend"] in ways]
        found = [row[value] for rows in runs for row in rows if row["operator"] == operator]
        return [min(found), max(found)]

    def times(operator: str, when: str = "now") -> str:
        return "{:.2f} to {:.2f}".format(*of_host(when, operator, "ratio", "cuda", "triton"))

    attention = [f"paged_attention, {keys} keys" for keys in ("128", "2,048")]
    waits = [us for name in attention for us in of_host("now", name, "us", "cuda", "triton")]
    gated = kept("27_gated_h200")["shapes"]["llama-8b"]["tokens"]
    few, many = (gated[n]["layer"] for n in ("256", "16384"))
    longest = kept("28_longest_h200")["ratios"]["llama-8b"]
    products = kept("27_libraries_h200")["models"]["llama-8b"]
    both = {n: [p["tokens"][n] for p in products.values()] for n in ("64", "384")}
    faster = {n: sum(b if b < (1 - GAIN) * a else a for a, b in of) for n, of in both.items()}
    taken = [t for n, of in both.items() for t in (faster[n], sum(a for a, _ in of))]
    said = [
        "{:.0f} instead of {:.0f} µs with 64 tokens, and {:.0f} instead of {:.0f} with 384".format(
            *taken
        ),
        f"`rms_norm` now takes {times('rms_norm')} of the time of torch's own instead of "
        f"{times('rms_norm', 'before')}, `add_rms_norm` {times('add_rms_norm')} instead of "
        f"{times('add_rms_norm', 'before')}, and paged attention {times(attention[0])} with 128 "
        f"keys and {times(attention[1])} with 2,048",
        "{:.1f} to {:.0f} µs and {:.0f} to {:.0f}".format(*waits),
        f"{few[0] - few[1]:.0f} of {few[0]:.0f} µs with 256 tokens",
        f"{many[0] - many[1]:.0f} of {many[0]:,.0f} with 16,384",
        f"with {longest:.2f} times as many tokens per second as mini-sglang",
        f"takes {cuda[0]:.1f} µs (torch's own {calls['rms_norm']['after']['cuda']['torch_us']})",
        "`silu_and_mul` {:.1f}, `add_rms_norm` {:.1f} and paged attention {:.1f}".format(*cuda[1:]),
        "through Triton they take {:.1f}, {:.1f}, {:.1f} and {:.1f}".format(*triton),
        "64 clients get {:,.0f} tokens/s from the server and {:,.0f} from the engine".format(
            *rates
        ),
        "{:.2f} of its rate, and {:.2f} where answers have 32 to 96 tokens".format(*parts[:2]),
        "256 clients get {:.2f} and {:.2f} of it".format(*parts[2:]),
        f"at most {max(row['itl_p99 ratio'] for row in rows + spread):.2f} times the engine's",
    ]
    assert not [figure for figure in said if figure not in text]


def test_the_docs_name_the_figures_of_their_data():
    pages = (ROOT / "docs").glob("*.md")
    text = " ".join(" ".join(page.read_text() for page in pages).split())
    for template, *values in of_docs():
        assert template.format(*values) in text


@pytest.mark.parametrize(
    "number, function",
    [("16", pipeline), ("18", rescales), ("29", prompt_lookup)],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_the_text_shows_the_lines_of_the_function(number, function):
    source = [line.strip() for line in inspect.getsource(function).splitlines()]
    shown = [
        [line.strip() for line in block.splitlines()]
        for cell in nbformat.read(find(number), as_version=4).cells
        if cell.cell_type == "markdown"
        for block in re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL)
    ]
    assert any(set(block) <= set(source) for block in shown), f"{number}: {function.__name__}"


def test_the_kept_reports_name_lines_of_the_draft():
    """What compute-sanitizer said of exercise 23.3 is read beside the learner's file."""
    exercise = manifest.find("23.3")
    draft = render.stub(exercise).splitlines()
    for report in data_nb23.reports():
        named = re.findall(re.escape(exercise.file.name) + r":(\d+)", report["text"])
        assert set(named) == set(report["lines"])
        for number, text in report["lines"].items():
            assert draft[int(number) - 1].strip() == text
