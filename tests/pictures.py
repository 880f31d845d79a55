"""Every kind of picture: how to draw one from a small state, and words that it must then show."""

import math
from random import Random
from types import SimpleNamespace

import torch

from yaie.bench.load import Trace
from yaie.course import viz
from yaie.course.core.paths import kept
from yaie.course.lessons import asynchrony, data_nb18
from yaie.course.lessons.data_nb16 import Asked
from yaie.course.lessons.data_nb16 import owners as fragments
from yaie.course.lessons.data_nb25 import Event, budgets, replay
from yaie.course.lessons.data_nb25 import Trace as Events
from yaie.course.lessons.flat_tree import flatten
from yaie.course.lessons.trie import TokenTrie
from yaie.course.viz import tile_order
from yaie.course.viz.attention import OnlineStep, draw_online
from yaie.course.viz.attention_programs import (
    Occupied,
    ProgramTiles,
    draw_occupied,
    draw_program_tiles,
)
from yaie.course.viz.charts import draw_lengths, draw_tile_bytes
from yaie.course.viz.draws import draw_bits, draw_rounds, draw_shares, rounds
from yaie.course.viz.lanes import Timeline, draw_timeline
from yaie.course.viz.matmul import draw_asked
from yaie.course.viz.memory import draw_access
from yaie.course.viz.paged import Prefix, Readers, draw_prefix, draw_readers, draw_slots
from yaie.course.viz.splits import Part, draw_splits
from yaie.course.viz.steps import MergeNode, draw_merge
from yaie.course.viz.tensor_core import draw_overlap, draw_pipeline, overlap, pipeline
from yaie.course.viz.tiles import TileStep, draw_key_tiles, draw_tile_owners, draw_tiles
from yaie.course.viz.turns import Span, draw_accumulator, draw_order, draw_turns
from yaie.course.viz.waves import Waves
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree
from yaie.model.shards import heads_of

AWKWARD = ["naïve 你好", "$x_1$ and $", "😀🫠", "a\nb\tc", "", " ", "\x00", "x" * 400]


def words(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


# ---------------------------------------------------------------------------------- states


def radix_tree(num_prompts: int, block_size: int = 2) -> RadixTree:
    tree, random = RadixTree(block_size), Random(num_prompts)
    for i in range(num_prompts):
        prompt = random.choices(range(3), k=block_size * random.randrange(1, 10))
        tree.insert(prompt, list(range(100, 100 + len(prompt) // block_size)))
        tree.insert_request(f"request-{i}", prompt)
    return tree


def two_branches() -> RadixTree:
    tree = RadixTree(2)
    tree.insert([11, 12, 13, 14], [50, 51])
    tree.insert([11, 12, 31, 32], [50, 52])
    return tree


def awkward_text(ids: list[int]) -> str:
    return " ".join(AWKWARD[token % len(AWKWARD)] for token in ids)


def pool_states() -> list:
    manager = KVCacheManager(num_blocks=12, block_size=4, num_heads=1, head_dim=2)
    states = [viz.snapshot_pool(manager)]
    manager.allocate_blocks("chat A", 10)
    states.append(viz.snapshot_pool(manager, cached=[0, 1]))
    manager.fork("chat A", "chat B")
    states.append(viz.snapshot_pool(manager))
    manager.append_tokens("chat B")
    states.append(viz.snapshot_pool(manager))
    manager.free_blocks("chat A")
    states.append(viz.snapshot_pool(manager))
    return states


def pool_state(num_blocks: int, num_requests: int, name: str = "request"):
    manager = KVCacheManager(num_blocks, block_size=4, num_heads=1, head_dim=1)
    for i in range(num_requests):
        manager.allocate_blocks(f"{name} {i}", 1 + 5 * i % 23)
    return viz.snapshot_pool(manager)


STEPS = [
    viz.StepRecord((("a", "prefill", 8),), free_blocks=4),
    viz.StepRecord((("a", "decode", 1), ("b", "prefill", 7)), free_blocks=0),
    viz.StepRecord((("a", "decode", 1),), preempted=("b",), finished=("a",), free_blocks=3),
    viz.StepRecord((("b", "prefill", 8), ("c", "idle", 0)), free_blocks=1),
]


def ring_moments(expect: int = asynchrony.BYTES) -> list:
    ring = asynchrony.Ring()
    return ring.run(asynchrony.produce(ring, 3, expect), asynchrony.consume(ring, 3))


RING, BROKEN_RING = ring_moments(), ring_moments(expect=0)


def cache_state():
    manager = KVCacheManager(num_blocks=12, block_size=4, num_heads=1, head_dim=1)
    manager.allocate_blocks("a", 10)
    cache = RadixCache(manager.pool, 4)
    cache.insert(list(range(8)), manager.block_tables["a"][:2])
    return viz.snapshot_cache(manager, cache, matched=range(4))


def many_steps(num_requests: int) -> list[viz.StepRecord]:
    ids = [f"request {i}" for i in range(num_requests)]
    kinds = ["decode" if i % 5 else "prefill" for i in range(num_requests)]
    return [
        viz.StepRecord(tuple((ids[i], kinds[i], 1 + i) for i in range(min(n + 1, num_requests))))
        for n in range(2 * num_requests)
    ]


def sampling_state(vocab: int, num_tokens: int = 20):
    logits = [4.0 - 0.3 * i for i in range(vocab)]
    left = [x if i < 3 else -math.inf for i, x in enumerate(logits)]
    filters = [
        viz.Filter("model", logits),
        viz.Filter("top-p 0.6", left, top_p=0.6),
        viz.Filter("min-p 0.1", left, min_p=0.1),
    ]
    return viz.snapshot_sampling(filters, awkward_text, num_tokens)


def causal(queries: int, keys: int) -> list[list[float]]:
    past = keys - queries
    return [[1 / (i + past + 1) * (j <= i + past) for j in range(keys)] for i in range(queries)]


def access(memory: str, worst: dict[int, int]):
    named = {"name": "x", "kind": "load", "line": 7, "size": 4}
    return SimpleNamespace(memory=memory, worst=worst, **named)


def column(pitch: int, size: int = 4) -> viz.TileAccess:
    return viz.TileAccess({lane: (lane * pitch + 3) * size for lane in range(32)}, pitch)


def calls(fails: bool) -> list[viz.Call]:
    two = viz.Call("two<<<>>>", runs=2.0, fails=fails)
    rest = [viz.Call("three<<<>>>", runs=1.0), viz.Call("wait", waits=True)]
    return [viz.Call("one<<<>>>", runs=2.0), two, *rest]


def written(touched: bool = False):
    want = torch.arange(100.0)
    got = want.clone()
    got[40:50] = torch.nan
    got[3] = -1.0
    if touched:
        want[5] = got[5] = torch.nan  # a NaN that is wanted
    return got, want


def report(num_lines: int = 30):
    generator = Random(0)
    units = [8, 64, *(generator.randrange(8, 64) for _ in range(num_lines - 3))]
    accesses = [
        SimpleNamespace(
            line=line, memory="global", kind="load", unit="sectors", units=count, ideal_units=8,
            per_request=count / 2, ideal=4.0,
        )
        for line, count in enumerate(units, 1)
    ]  # fmt: skip
    return SimpleNamespace(accesses=accesses, source="a $load$;\n" + "x" * 500)


def backends():
    rows = (("add", "reference", True, True), ("add", "cuda", False, False))
    rows += (("norm", "reference", True, False), ("norm", "mine", True, True))
    return [
        SimpleNamespace(
            operator=operator, backend=backend, available=available, chosen=chosen,
            how="compiled" if available else "needs sm_90a",
        )
        for operator, backend, available, chosen in rows
    ]  # fmt: skip


def autograd():
    x, weight = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    return viz.draw_autograd((x @ weight + x).sum(), {"x": x, "weight": weight})


def reduction(count: int) -> list[viz.Stage]:
    values = [float(i) for i in range(count)]
    stages, left = [viz.Stage(list(values), {}, "given")], count
    while left > 1:
        half = (left + 1) // 2
        reads = {place: place + half for place in range(left - half)}
        for place, other in reads.items():
            values[place] += values[other]
        stages.append(viz.Stage(list(values), reads, f"half = {half}"))
        left = half
    return stages


def merged() -> MergeNode:
    leaves = [MergeNode(f"keys {i}", float(i), 0.5) for i in range(3)]
    leaves[0] = MergeNode("none", -math.inf, 0.0)
    return MergeNode("all", 2.3, 0.5, (MergeNode("two", 1.0, 0.5, tuple(leaves[:2])), leaves[2]))


def spans(num_cycles: int | None = None):
    load = viz.Span(0, "load", 0, 6)
    work = [viz.Span(0, "compute", 6, 8), viz.Span(1, "compute", 8, 10)]
    return viz.draw_latency([load, *work], num_cycles)


def works() -> dict[str, list[viz.Work]]:
    eager = [viz.Work(10.0 * i, 5.0, (10.0 * i - 4, 3.0)) for i in range(1, 9)]
    together = [viz.Work(0.0, 10.0), viz.Work(5.0, 5.0), viz.Work(15.0, 5.0)]
    return {"eager": eager, "overlapping": together, "nothing": []}


def stalled(chunk: int) -> list[viz.StepRecord]:
    """Steps of a request that decodes beside a prompt of 40 tokens."""
    decode = ("a", "decode", 1)
    steps = [viz.StepRecord((decode, ("b", "prefill", chunk))) for _ in range(40 // chunk)]
    return [viz.StepRecord((decode,)), *steps, viz.StepRecord((decode,))]


def matrices():
    small, large = torch.full((2, 3), 0.5), torch.full((2, 3), 2.0)
    a, b, c = viz.Matrix("a", small, 0), viz.Matrix("b", large, 1), viz.Matrix("c", large)
    return viz.draw_matrices([("sum", [a, "+", b, "=", c])])


ROOF = viz.Roof("a device", 100e12, 1e12)
POINTS = [viz.Point(name, 1.0, group=name) for name in "abc"] + [viz.Point("a", 1.001, group="b")]
LEVELS = [
    viz.Level("near", 100, 4e12, 30),
    viz.Level("far", 10_000, 1e12),
    viz.Level("host", None, 1e9),
]
CHART = viz.Chart(
    "Title", "x", "y", {"one": [(1, 2.0), (2, 3.0), (64, 9.0)]},
    guides={"most": [(1, 9), (64, 9)]}, marks={"knee": 8.0}, log_x=True,
)  # fmt: skip
STAIRS = viz.Chart("t", "x", "y", {"": [(0, 0), (1, 0)]}, steps=True)
TALLIES = [
    viz.Tally("one", [30, 10, 0], [25, 10, 5]),
    viz.Tally("two", [60, 0, 0], [50.0, 5.0, 5.0]),
]
TABLES = ((3, 7, 0), (3, 7, 2, 5), (3, 7))
READERS = Readers(
    ("sequence 0", "sequence 1"), (0, 1), (frozenset({0, 2}), frozenset({2})), num_blocks=4
)
LANES = viz.Part("lanes", 4, 8, [(0, 0, 4, 4, 0), (0, 4, 4, 4, 1)], marked=1)
TILES = ((0, (0, 4), (0, 8)), (1, (4, 8), (0, 8)), (1, (4, 8), (8, 16)))
SPLITS = [Part(0, tuple(range(80, 96)) + tuple(range(16))), Part(32, (48, 49))]
PIECES = [viz.Piece("host", 900, "host"), viz.Piece("sm_80", 500), viz.Piece("PTX", 9, "PTX")]
BUILDS = [viz.Build("slow", 33.7, 212_000), viz.Build("kept", 0.004, None, True)]
ROWS = {"add": {"dram": 93.2, "l2": 40.0}, "scan": {"dram": 0.1, "l2": 0.4}}
TURNS = [Span(0, "scores", 0, 0, 2), Span(0, "weights", 0, 2, 3), Span(1, "scores", 0, 2, 3)]
TURNS += [Span(1, "weights", 1, 3, 4), Span(0, "output", 0, 4, 5)]
TABLE = [[math.cos(p / 10**d) for d in range(4)] for p in range(16)]
ROUNDS = [(["a", "b", "c"], ["a", "x"]), ([], ["y"]), (["d", "e"], ["d", "e", "z"])]


# ---------------------------------------------------------------------------------- pictures

# The name of a picture → how to draw it, and words that it must show.
PICTURES = {
    "empty tree": (lambda: viz.draw_tree(viz.snapshot_tree(RadixTree())), {"root"}),
    "empty trie": (lambda: viz.draw_tree(viz.snapshot_tree(TokenTrie())), {"root"}),
    "one node": (lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(1))), {"root"}),
    "tree": (lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(9), awkward_text)), set()),
    "large tree": (lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(60), awkward_text)), set()),
    "narrow tree": (lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(20)), width=4.0), set()),
    "flat tree": (
        lambda: viz.draw_flat_tree(viz.FlatView(flatten(two_branches()), 1)),
        {"0:  root", "1:  11 12", "2:  13 14", "3:  31 32", "children of 1: 2 nodes, 2 3"},
    ),
    "empty flat tree": (lambda: viz.draw_flat_tree(viz.FlatView(flatten(RadixTree()))), {"starts"}),
    "one block": (lambda: viz.draw_blocks(pool_state(1, 1)), {"request 0"}),
    "no tables": (lambda: viz.draw_blocks(pool_state(5, 0)), {"free"}),
    "copied block": (lambda: viz.draw_blocks(*pool_states()[3:1:-1]), {"chat B: 2 copied to 3"}),
    "200 blocks": (lambda: viz.draw_blocks(pool_state(200, 20)), {"request 19"}),
    "1000 blocks": (lambda: viz.draw_blocks(pool_state(1000, 3, "much too long " * 6)), set()),
    "slots": (lambda: draw_slots(list("abcde"), [4, 5, 6, 7, 0], 3, 4), {"block 2", "a", "11"}),
    "fragmentation": (
        lambda: viz.draw_fragmentation(
            {"contiguous": [viz.Extent(0, 8, 3), viz.Extent(10, 4, 4, 1)], "none": []}, 20
        ),
        {
            "2 requests;  35% holds tokens, 25% reserved and empty, 40% free "
            "(longest hole: 6 tokens)",
            "0 requests;  0% holds tokens, 0% reserved and empty, 100% free",
        },
    ),
    "paged": (
        lambda: viz.draw_fragmentation({"paged": viz.pool_extents(pool_state(20, 4))}, 80),
        {"paged"},
    ),
    "no steps": (lambda: viz.draw_schedule([]), {"step"}),
    "schedules": (
        lambda: viz.draw_schedules({"one": STEPS, "two": STEPS[:1]}, 8, {"b": 1}),
        {"budget 8", "preempted", "4 steps;  1 of 6 places in the batch idle"},
    ),
    "stalls": (
        lambda: viz.draw_stalls({"whole": stalled(40), "chunks": stalled(8)}, "a"),
        {
            "longest pause: 41 tokens are computed between two of a",
            "longest pause: 9 tokens are computed between two of a",
            "longest pause",
        },
    ),
    "30 requests": (lambda: viz.draw_schedule(many_steps(30)), {"465"}),
    "sampling": (lambda: viz.draw_sampling(sampling_state(60)), {"3 of 60 tokens", "all others"}),
    "three tokens": (lambda: viz.draw_sampling(sampling_state(3)), {"3 of 3 tokens"}),
    "attention": (lambda: viz.draw_attention(causal(8, 8), AWKWARD), {".50", ".12"}),
    "cache step": (
        lambda: viz.draw_cache_step([0.25, 0.75], ["The", AWKWARD[0]]),
        {"K cache", "k", "v", "q", ".75"},
    ),
    "with a past": (lambda: viz.draw_attention(causal(1, 5)), {".20"}),
    "large attention": (lambda: viz.draw_attention(causal(10, 64)), {"60"}),
    "not a number": (lambda: viz.draw_attention([[math.nan]]), {"nan"}),
    "rotary": (lambda: viz.draw_rotary(TABLE, TABLE), {"pair 3"}),
    "small rotary": (lambda: viz.draw_rotary([[1.0]], [[0.0]]), {"pair 0"}),
    "growth": (lambda: viz.draw_growth({"FLOPs": {"none": [1, 4], "cache": [1, 1]}}), {"cache"}),
    "log growth": (lambda: viz.draw_growth({"a": {"x": [1]}, "b": {"y": [5]}}, log=True), {"y"}),
    "numbers": (lambda: viz.draw_number_line([0.5, 1, 8], (8, 1), "numbers"), {"numbers"}),
    "heads": (
        lambda: viz.draw_head_groups((9, 3), 46080),
        {"9 query heads, 3 KV heads: 46,080 bytes per token"},
    ),
    "128 heads": (lambda: viz.draw_head_groups((128, 8)), {"128 query heads, 8 KV heads"}),
    "trace": (
        lambda: viz.draw_trace(
            [viz.TraceRecord(name, 5 * i, 9, 3 * i, i % 2) for i, name in enumerate(AWKWARD)], 20
        ),
        {"140 of 212 prompt tokens reused: hit rate 66%", "pool of 20", "4 blocks evicted"},
    ),
    "one request": (lambda: viz.draw_trace([viz.TraceRecord("a", 0, 0)]), {"reused", "computed"}),
    "150 requests": (
        lambda: viz.draw_trace([viz.TraceRecord(f"r{i}", i, 200 - i) for i in range(150)]), set(),
    ),
    "lengths": (lambda: draw_lengths([3, 5], [2, 9], 20), {"reserved (20), empty"}),
    "map": (viz.draw_course_map, {"Scheduler", "29", "KV blocks"}),
    "ring": (
        lambda: viz.draw_ring(RING[9]),
        {"lacks 1 arrival, 0 bytes", "tile 1", "phase 0, parity 0"},
    ),
    "broken ring": (
        lambda: viz.draw_ring(BROKEN_RING[-1]), {"read: half nothing and half tile 0, tile 1"},
    ),
    "box outside": (
        lambda: viz.draw_box((72, 70), (64, 64), (-8, -8)),
        {"x = -8, y = -8: 3,136 elements, 960 zeros", "tensor: 70 rows of 72"},
    ),
    "box of zeros": (
        lambda: viz.draw_box((8, 90), (64, 8), (8, -20)),
        {"x = 8, y = -20: 0 elements, 512 zeros"},
    ),
    "address bits": (
        lambda: viz.draw_address_bits(688, 736, (9, 8, 7), (6, 5, 4)),
        {"688", "736", "xored: bit 9 into 6, 8 into 5, 7 into 4; red below: a bit that differs"},
    ),
    "readme": (viz.draw_readme_strip, {"two chats share blocks of memory"}),
    "descriptor": (
        lambda: viz.draw_descriptor(0x4000004000010040),
        {"address: 1,024", "stride bytes: 1,024", "leading bytes: 16", "mode 1: 128 bytes"},
    ),
    "reads": (
        lambda: viz.draw_reads(viz.Reads(1, 0x4000004000000042, 0x40000040020004C0, 1024, 17_408)),
        {"step 1: k = 16 to 31", "8,192 bytes further on (leading bytes)", "k 28"},
    ),
    "registers": (
        lambda: viz.draw_registers(budgets()),
        {"128 sums", "producer: 168 per thread", "40", "consumer 1: 232 per thread"},
    ),
    "roles": (
        lambda: viz.draw_roles(
            replay(Events(1, ((Event("expect", 0, 0), Event("commit", 0, 0)),)), product=1.5)
        ),
        {"stage 0", "tensor cores", "tensor cores busy 50% of the time"},
    ),
    "waves": (
        lambda: viz.draw_waves(Waves("one", [[(0, 0, 4)], [(1, 0, 4), (2, 0, 2)]], 4)),
        {"one: 6 steps, busy 83%", "SM 1"},
    ),
    "decode step": (
        lambda: viz.draw_decode(
            viz.DecodeStep(
                heads=range(4),
                table=(3, 17, 39, 1 << 30),
                splits=[
                    viz.SplitRead(0, 32, (3, 17), 2.0, 0.5),
                    viz.SplitRead(32, 41, (39,), 1.0, -0.25),
                    viz.SplitRead(64, 41, (), -math.inf, 0.0),
                ],
                num_blocks=40,
                lse=2.313,
                out=0.298,
            )
        ),
        {"split 0: keys 0 to 31", "split 2: no keys", "?", "lse −∞, out 0.000", "73%", "0%", "39"},
    ),
    "every 12th SM": (
        lambda: viz.draw_waves(Waves("$", [[(i, 0, 1)] for i in range(132)], 1, 1, 12, "round")),
        {"SM 120", "120", "$: 1 round, busy 100%"},
    ),
    "132 SMs": (lambda: viz.draw_waves(Waves("$", [[(0, 0, 4)]] * 132, 4, 9)), {"SM 131"}),
    "film strip": (lambda: viz.film_strip(pool_states(), viz.draw_blocks, list("abcde")), {"e"}),
    "program tiles": (
        lambda: draw_program_tiles(ProgramTiles(8, 16, TILES, causal=True)),
        {"program 0: 1 tile", "program 1: 2 tiles"},
    ),
    "no tiles": (lambda: draw_program_tiles(ProgramTiles(8, 16, (), causal=False)), set()),
    "one program": (
        lambda: draw_occupied(Occupied((0,), 132)),
        {"1 program, 1 of 132 SMs", "a color is a KV head"},
    ),
    "a full device": (
        lambda: draw_occupied(Occupied(tuple(range(132)), 132)),
        {"132 programs, 132 of 132 SMs", "a color is a KV head"},
    ),
    "two rounds": (
        lambda: draw_occupied(Occupied(tuple(range(264)), 132)),
        {"a color is a KV head; 2.0 programs for each SM"},
    ),
    "splits": (
        lambda: draw_splits(SPLITS, num_blocks=7, block_size=16),
        {"split 0: keys 0 to 31", "split 1: keys 32 to 33", "block 5", "block 0", "block 3"},
    ),
    "back ends": (lambda: viz.draw_backends(backends()), {"cuda", "mine", "needs sm_90a"}),
    "charts": (lambda: viz.draw_charts([CHART, CHART]), {"Title", "one", "most", " knee"}),
    "stairs": (lambda: viz.draw_charts([STAIRS]), {"t"}),
    "requests": (
        lambda: viz.draw_requests({"a": Trace(10.0, [10.5, 11.0]), "b": Trace(10.2, [12.0])}),
        {"a", "b", "0 s", "2 s"},
    ),
    "arrivals": (lambda: viz.draw_arrivals({"even": [1.0, 2.0], "none": []}), {"even", "none"}),
    "benchmark": (
        lambda: viz.draw_benchmark(kept("28_engine_cpu")),
        {
            "Throughput, prompt → output", "Under way, by requests sent per second",
            "no prefix cache", "Prefix cache: first token",
        },
    ),
    "homework": (
        lambda: viz.draw_benchmark(kept("28_course_cpu")),
        {"Whole requests, p99", "KV memory", "Attention", "this engine", "FlashAttention", "math"},
    ),
    "counts": (
        lambda: viz.draw_counts(TALLIES, [" the", " a", "$x$"]),
        {"one", "two", "30", "60", "␣the", "$x$"},
    ),
    "counts of nothing": (
        lambda: viz.draw_counts([viz.Tally("none", [0, 0], [1.0, 1.0])], ["a", "b"]), {"0"},
    ),
    "chance": (
        lambda: viz.draw_chance([0.5, 1.0, 2.0, 4.0], 16.3, {"near": 3.0, "far": 403.7}),
        {"near: 3.0", "far: 403.7 →", "limit 16.3"},
    ),
    "rounds": (lambda: draw_rounds(rounds([3.0, 2.0, -1.0], [8, 4, 2], 2.0)), {"bits 1 to 8"}),
    "bits": (lambda: draw_bits([1.0, -0.0, math.inf]), {"1,065,353,216"}),
    "shares": (lambda: draw_shares([3, 0], [0.9, 0.1]), {"3 draws"}),
    "launch": (
        lambda: viz.draw_grid(viz.Launch(num_elements=150, threads=64)),
        {
            "thread block 2", "warp 1", "149", "191", "42 threads past the end (gray)",
            "3 thread blocks of 64 threads for 150 elements",
        },
    ),
    "another rule": (
        lambda: viz.draw_grid(viz.Launch(150, 32, 1, element=lambda block, thread: 10 * thread)),
        {"310", "17 threads past the end (gray)"},
    ),
    "written": (
        lambda: viz.draw_written(*written(), "out"),
        {"out", "right: 89", "wrong: 1", "never written: 10"},
    ),
    "a wanted NaN": (lambda: viz.draw_written(*written(touched=True)), {"right: 89"}),
    "launches": (lambda: viz.draw_launches(calls(fails=False)), {"two", "three"}),
    "banks": (
        lambda: viz.draw_tile_banks(column(40)), {"8 words in the fullest bank: 8 wavefronts"},
    ),
    "lanes active": (
        lambda: viz.draw_lanes_active(
            SimpleNamespace(requests=3, lanes=49, first_lanes=[2**32 - 1, 0xFFFF, 1]), "stores"
        ),
        {"3 requests, 16.3 of 32 lanes active"},
    ),
    "reduction": (lambda: viz.draw_reduction(reduction(16), "place"), {"120", "half = 1"}),
    "sectors": (
        lambda: draw_access(access("global", {lane: 8 * lane + 2 for lane in range(20)})),
        {"line 7: global load of x", "5 sectors of 32 bytes for 80 bytes that are used", "31"},
    ),
    "bank conflicts": (
        lambda: draw_access(access("shared", {lane: 64 * lane for lane in range(32)})),
        {"16 words in the fullest of 32 banks", "above: lanes; below: banks"},
    ),
    "two costs": (
        lambda: viz.draw_costs(report(2), most=64),
        {"1 of 2 accesses costs more than its bytes need"},
    ),
    "programs": (
        lambda: viz.draw_programs(
            viz.Programs("x", 5, tuple((p, tuple((4 * p + i, i < 3) for i in range(4)))
                                       for p in range(2)))
        ),
        {"2 programs on x, 5 elements", "2 lanes outside (red)"},
    ),
    "traffic": (
        lambda: viz.draw_traffic({"two": {"read": 30, "written": 20}, "one": dict.fromkeys(
            ("read", "written"), 10)}),
        {"two", "20"},
    ),
    "costs": (lambda: viz.draw_costs(report()), {"4 sectors", "32 sectors", "a $load$;"}),
    "scan": (
        lambda: viz.draw_scan(
            [viz.ScanStep([1, 2], title="given"), viz.ScanStep([1, 3], [(0, 1), (1, 1)], "up")]
        ),
        {"3", "up"},
    ),
    "search": (
        lambda: viz.draw_search([viz.Search([3, 5, 5, 9], 5, [1, 3], 3, "bisection")]),
        {"2 reads", "token 5 is of request 3 (framed): the first whose end is greater"},
    ),
    "batch times": (
        lambda: viz.draw_batch_times("a card", {"a loop": {4: 0.05, 32: 0.158}, "one": {4: 0.004}}),
        {"a loop, 158 µs", "one, 4 µs", "a card"},
    ),
    "timeline": (
        lambda: draw_timeline(Timeline(((0, 400), (1, 100)), 2, 400)),
        {
            "2 thread blocks, done after 400 keys",
            "2 SMs, busy 62% of that time; a color is a sequence",
        },
    ),
    "readers": (lambda: draw_readers(READERS), {"2 thread blocks", "·", "sequence 1"}),
    "prefix alone": (
        lambda: draw_prefix(Prefix(TABLES, 2, 4, False)),
        {"every context on its own: 9 blocks read"},
    ),
    "prefix once": (
        lambda: draw_prefix(Prefix(TABLES, 2, 4, True)),
        {"shared blocks once: 5 blocks read", "12 rows of queries in all"},
    ),
    "heads of ranks": (
        lambda: viz.draw_head_shares(viz.HeadShares(9, 3, [heads_of(0, 1, 9, 3)])), {"rank 0", "8"},
    ),
    "heads without a rank": (
        lambda: viz.draw_head_shares(viz.HeadShares(4, 2, [([0, 1], [0])])), {"3"},
    ),
    "matrices": (matrices, {"sum", "a", "+", "b", "=", "c"}),
    "cuts": (
        lambda: viz.draw_cuts(viz.Cuts(3, 8, 12, 2)), {"rank 1", "down.T", "8 × 12", "all-reduce"},
    ),
    "cuts of four": (lambda: viz.draw_cuts(viz.Cuts(1, 2, 8, 4)), {"rank 3", "1 × 2"}),
    "zeros": (
        lambda: viz.draw_matrices([("zero", [viz.Matrix("zero", torch.zeros(1, 1))])]), {"zero"},
    ),
    "passes": (lambda: viz.draw_speculation(ROUNDS, max_rounds=2), {"pass 2", "y", "and 1 more"}),
    "a long pass": (lambda: viz.draw_speculation([(["$" * 400] * 9, ["\n"])]), {"pass 1"}),
    "roofline": (
        lambda: viz.draw_roofline([ROOF, viz.Roof("slower", 1e12, 1e12)], POINTS),
        {"a, b, c", "ridge: 100 operations per byte"},
    ),
    "crowded roofline": (
        lambda: viz.draw_roofline(
            [ROOF], [viz.Point(f"operation {i}", 1 + i / 5, (1 + i % 3) * 1e11) for i in range(12)]
        ),
        {f"operation {i}" for i in range(12)},
    ),
    "no points": (lambda: viz.draw_roofline([ROOF]), {"ridge: 100 operations per byte"}),
    "memories": (
        lambda: viz.draw_hierarchy(LEVELS, {"the chip": 1, "the GPU": 2}),
        {"near", "100 bytes", "4 TB/s", "30 cycles", "10 kB", "1 GB/s", "the chip", "the GPU"},
    ),
    "latency": (spans, {"the unit works in 4 of 10 cycles, 40%", "warp 0", "warp 1", "the unit"}),
    "short latency": (lambda: spans(9), {"the unit works in 3 of 9 cycles, 33%"}),
    "merge": (lambda: draw_merge(merged()), {"lse -∞", "lse 2.300"}),
    "key tiles": (
        lambda: draw_key_tiles([(0, 1, 2), (4, 2, 3), (8, 3, 3)], 10, 10, 4, 4), {"whole: no mask"},
    ),
    "tile bytes": (
        lambda: draw_tile_bytes({8: 100, 16: 50}, {"formula": {8: 90, 16: 45}}, {"least": 10}),
        {"counted", "formula", "least"},
    ),
    "builds": (lambda: viz.draw_builds(BUILDS), {"33.7 s, 212 kB", "0.004 s"}),
    "binary": (
        lambda: viz.draw_binary(PIECES, {"A100": "sm_80", "B200": "PTX", "V100": None}),
        {"runs sm_80", "compiles the PTX", "runs none of it"},
    ),
    "work": (
        lambda: viz.draw_work(works(), until=50),
        {
            "4 kernels; from the first to the last the GPU works 57%",
            "3 kernels; from the first to the last the GPU works 75%",
        },
    ),
    "on chip": (
        lambda: viz.draw_on_chip(
            {"a": {"shared": {"Q": 2048}, "registers": {"scores": 1024, "sum": 2048}}},
            {"shared": 4096, "registers": 2048},
        ),
        {"4 KiB", "2 KiB", "3 KiB, too much", "Q", "scores"},
    ),
    "ways of passes": (
        lambda: viz.draw_passes(
            {
                "two": [viz.Pass(("scores",), "a sum"), viz.Pass(("scores",), "all", "weights")],
                "one": [viz.Pass(("scores", "values"), "an average")],
            }
        ),
        {"two", "one", "a sum", "an average", "weights, written", "values, read"},
    ),
    "work and gaps": (
        lambda: viz.draw_work(works(), 50, {name: [(12, 20, "CPU")] for name in works()}),
        {"waits for the CPU", "waits for the GPU", "GPU works"},
    ),
    "autograd": (autograd, {"x", "weight", "Mm", "Add", "Sum"}),
    "profile": (
        lambda: viz.draw_profile(ROWS, {"dram": "DRAM", "l2": "L2"}, ["DRAM", "too little work"]),
        {"93 %", "0 %", "too little work"},
    ),
    "tray": (
        lambda: viz.draw_tray(viz.Tray(4, 1, {"slots": [3, 1, 2, 12]}, [1, 2, 3], [3])),
        {"1 row, replay of size 4", "writes [1, 2, 3], [1, 2] for padding"},
    ),
    "product": (
        lambda: viz.draw_product(
            viz.ProductStep(64, 40, 70, 32, 32, 0, 32, torch.ones(32, 32), 10, 20)
        ),
        {"a  64 × 70", "10 elements fetched", "missing in c: 1 at most"},
    ),
    "owners": (lambda: viz.draw_owners([LANES, LANES]), {"lanes", "4 × 8", "0", "1"}),
    "fragments": (lambda: viz.draw_fragments(fragments(), lane=31), {"A: 16 × 16", "B: 16 × 8"}),
    "places": (
        lambda: viz.draw_places(torch.arange(32).view(8, 4), chunk=3),
        {"7.3", "chunk 3 of rows 0 to 7: 4 wavefronts"},
    ),
    "a step along k": (
        lambda: tile_order.draw_product(
            tile_order.ProductStep(40, 56, 40, 1, ((16, 32), (0, 16)), ((0, 16), (0, 16)),
                                   ((16, 32), (0, 16)), (((0, 16), (0, 16)),), 1792)
        ),
        {"program 1, k from 0 to 15", "b  40 × 56"},
    ),
    "waves of programs": (
        lambda: tile_order.draw_waves(
            tile_order.record_waves({"rows": [divmod(i, 6) for i in range(36)]}, 6, 6, 9)[1]
        ),
        {"programs 9 to 17: 2 + 6 = 8 strips"},
    ),
    "outer product": (
        lambda: viz.draw_outer([1, 2, 3, 4], [5, 6]),
        {"a row of b", "24", "6 numbers from shared memory"},
    ),
    "asked": (
        lambda: draw_asked([Asked("a", 8, 1, lane, 0) for lane in (0, 31)], range(8, 16), 4),
        {"1 ldmatrix", "31", "8"},
    ),
    "pipeline": (
        lambda: draw_pipeline(pipeline(2, 4)), {"2 stages: tensor cores busy 44% of the time"},
    ),
    "overlap": (lambda: draw_overlap(overlap(2, 7)), {"copies, thread block 1", "tensor cores"}),
    "turns": (
        lambda: draw_turns(TURNS),
        {"consumer 1: multiplies", "w1", "5 cycles; the tensor cores multiply for 80% of them"},
    ),
    "order": (
        lambda: draw_order([[(9, 0), (0, 1)], [(5, 0)]], 11),
        {"thread block 1", "the last is done after 11 tiles of keys, the first after 6; thread "
         "blocks wait 23% of the time"},
    ),
    "accumulator": (
        lambda: draw_accumulator(5, 16, lambda row, column: column > row), {"warp 3, rows 48 to 63"}
    ),
    "tile": (
        lambda: draw_tiles(
            TileStep(6, 8, True, ((3, 6), (0, 4)), (((0, 3), (0, 4)),), (("q", 96), ("out", 9)), 99)
        ),
        {"Q read", "99", "105"},
    ),
    "owners of a tile": (
        lambda: viz.film_strip(list(data_nb18.owners()), draw_tile_owners), {"q", "of one lane"},
    ),
    "a row by tiles": (
        lambda: draw_online(OnlineStep((1.0, 3.0, -math.inf, 2.0, 5.0), 2, 4, 3.0, 1.5, 3.0)),
        {"4 of 5 scores", "3.000"},
    ),
    "attention's ladder": (
        lambda: viz.draw_ladder([viz.Rung("mma", 1, "y")], "cuDNN", "B4 H32 S4096 d64 full · H200"),
        {"4 sequences, 32 heads, 4,096 tokens, head_dim 64, full · H200"},
    ),
    "bench": (
        lambda: viz.draw_bench(
            kept("bench_kernels_h200"), ["paged_attention"]
        ),
        {
            "the ceiling", "triton",
            "paged_attention, 1 sequence, contexts of 32,768, 32 query and 8 KV heads, "
            "head_dim 128, block 16, bfloat16",
        },
    ),
    "cache": (lambda: viz.draw_cache(cache_state()), {"root", "free"}),
    "ladder": (
        lambda: viz.draw_ladder(
            [viz.Rung("x", 0.004, "3 GB/s"), viz.Rung("lib", 1.2, "y")], "lib", "NVIDIA H200, B1"
        ),
        {"3 GB/s, 0.4%", "y, 120%", "NVIDIA H200, B1"},
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------------- refusals

# What cannot be drawn → words of the message.
REFUSED = (
    (lambda: viz.film_strip([], viz.draw_blocks), "states"),
    (lambda: viz.film_strip(pool_states(), viz.draw_blocks, ["one"]), "titles"),
    (lambda: viz.film_strip(pool_states(), viz.draw_blocks, frames=[9]), "frames"),
    (lambda: viz.slider([], viz.draw_blocks), "states"),
    (lambda: viz.StepRecord((("a", "sleep", 1),)), "sleep"),
    (lambda: viz.StepRecord(free_blocks=-1), "free_blocks"),
    (lambda: viz.draw_schedules({}), "schedules"),
    (lambda: viz.draw_stalls({}, "a"), "schedules must not be empty"),
    (lambda: viz.draw_stalls({"x": stalled(4)}, "b"), "request must have two tokens in 'x', got 0"),
    (lambda: viz.snapshot_sampling([]), "filters"),
    (lambda: viz.snapshot_sampling([viz.Filter("a", [[1.0]])]), "logits"),
    (lambda: viz.snapshot_sampling([viz.Filter("a", [math.nan, 1.0])]), "logits"),
    (lambda: viz.draw_attention([1.0]), "weights"),
    (lambda: viz.draw_attention([[1.0]], ["a", "b"]), "keys"),
    (lambda: viz.draw_attention([[1.0]], queries=["a", "b"]), "queries"),
    (lambda: viz.draw_cache_step([1.0], ["a", "b"]), "weights must have 2 entries"),
    (lambda: viz.draw_on_chip({}, {"a": 1}), "rows must not be empty"),
    (lambda: viz.draw_passes({}), "ways must not be empty"),
    (lambda: viz.draw_cache_step([], []), "tokens must not be empty"),
    (lambda: viz.draw_rotary([[1.0]], [[1.0, 2.0]]), "cos and sin"),
    (lambda: viz.draw_growth({}), "panels must not be empty"),
    (lambda: viz.draw_head_groups((9, 2)), "heads"),
    (lambda: viz.draw_trace([]), "records"),
    (lambda: viz.draw_fragmentation({}, 10), "layouts"),
    (lambda: viz.draw_backends(backends(), ["x"]), r"only must name operators .*, got \['x'\]"),
    (lambda: viz.draw_charts([]), "charts must not be empty"),
    (lambda: viz.draw_requests({}), "traces must not be empty"),
    (lambda: viz.draw_arrivals({"none": []}), "arrivals must not be empty"),
    (lambda: viz.draw_benchmark({"results": {"block_size": []}}), "record must have one of matrix"),
    (lambda: viz.draw_counts([], []), "tallies"),
    *(
        (lambda launch=launch: viz.draw_grid(launch), "threads must be|can be drawn")
        for launch in (
            viz.Launch(10, 0), viz.Launch(10, 2048), viz.Launch(10_000, 256), viz.Launch(0, 32),
        )
    ),
    (lambda: viz.draw_written(torch.ones(50), torch.ones(100)), "got must have 100 elements"),
    (lambda: viz.draw_tile_banks(viz.TileAccess({}, 32)), "at least one lane"),
    (lambda: viz.draw_tile_banks(viz.TileAccess({0: 4096}, 32)), "word 1024 is past 32 rows"),
    (lambda: viz.draw_lanes_active(SimpleNamespace(line=7, first_lanes=[])), "got none for line 7"),
    (lambda: viz.draw_reduction([*reduction(2), viz.Stage([1.0], {}, "")]), "each step must have"),
    (lambda: viz.draw_reduction([]), "steps must not be empty"),
    (lambda: viz.draw_scan([viz.ScanStep([1, 2]), viz.ScanStep([1])]), "each step must have 2"),
    (lambda: viz.draw_search([]), "searches must not be empty"),
    (lambda: viz.draw_costs(SimpleNamespace(accesses=[], source="")), "got none"),
    (lambda: viz.draw_batch_times("nothing", {"one": {}}), "times must not be empty"),
    (lambda: viz.draw_roofline([]), "roofs must not be empty"),
    (lambda: viz.draw_roofline([ROOF], [viz.Point("copy", 0)]), "of 'copy' must be above 0, got 0"),
    (lambda: viz.draw_hierarchy([]), "levels"),
    (lambda: viz.draw_latency([]), "spans"),
    (lambda: draw_tile_bytes({}, {}, {}), "counted must not be empty"),
    (lambda: viz.draw_builds([]), "builds must not be empty"),
    (lambda: viz.draw_binary(PIECES, {"A100": "sm_90"}), "A100 must take one of .*, got 'sm_90'"),
    (lambda: viz.draw_work({}, 0), "until must be above 0"),
    (lambda: viz.draw_autograd(torch.ones(2), {}), "must have a grad_fn"),
    (lambda: viz.draw_profile(ROWS, {"dram": "DRAM"}, ["only one"]), "one text for each of 2 rows"),
    (lambda: viz.draw_ladder([], "lib"), "rungs"),
    (lambda: overlap(0, 8), "thread_blocks and tiles must be at least 1, got 0 and 8"),
)  # fmt: skip
