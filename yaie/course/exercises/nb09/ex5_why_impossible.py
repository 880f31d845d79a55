"""09.5: what `why_impossible` says of rows that were made impossible in a known way."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.data_nb09 import kept
from yaie.course.lessons.impossible import H200, REASONS, Claim, Gpu

SMALLER = Gpu(900.0, {"bfloat16": 60.0, "float32": 15.0}, 6 << 20)
MEGA = 10**6
COPY = Claim(800 * MEGA, 0.2, 4000.0)  # at 4,000 GB/s
PRODUCT = Claim(100 * MEGA, 0.2, 500.0, 140 * 10**9, 700.0)
PLANNED = {  # in words: the claim, what is wrong with it, and why
    "a copy near the limit": (COPY, None, "800 MB in 0.2 ms are 4,000 GB/s."),
    "a matrix product": (PRODUCT, None, "140 · 10⁹ operations in 0.2 ms are 700 TFLOP/s."),
    "exactly the limit of memory": (Claim(960 * MEGA, 0.2, 4800.0), None, "A limit can be met."),
    "a rate in GiB/s": (replace(COPY, gb_s=3725.3), "units", "GB/s are 10⁹ bytes per second."),
    "microseconds taken for ms": (replace(COPY, ms=200.0), "units", "800 MB in 200 ms: 4 GB/s."),
    "GFLOP/s in a column of TFLOP/s": (
        replace(PRODUCT, tflop_s=700_000.0), "units", "140 · 10⁹ operations in 0.2 ms: 700.",
    ),
    "a rate of operations, of which none are counted": (
        replace(COPY, tflop_s=10.0), "units", "0 operations are 0 TFLOP/s, and the row says 10.",
    ),
    "a rate rounded to two digits": (replace(COPY, gb_s=3980.0), None, "It is off by 0.5 %."),
    "twice as fast": (replace(COPY, peer_ms=0.4, times_as_fast=2.0), None, "0.4 over 0.2 is 2."),
    "a ratio upside down": (
        replace(COPY, peer_ms=0.4, times_as_fast=0.5), "units", "0.4 ms over 0.2 ms is 2.",
    ),
    "a ratio of ms to µs": (
        replace(COPY, peer_ms=0.4, times_as_fast=2000.0), "units", "0.4 ms over 0.2 ms is 2.",
    ),
    "the host's clock, not synchronized": (
        replace(COPY, timer="host", synchronized=False), "not waited for",
        "The call returned before the GPU was done.",
    ),
    "a rate in GiB/s, by the host's clock, not synchronized": (
        replace(COPY, gb_s=3725.3, timer="host", synchronized=False), "units",
        "The units are checked first.",
    ),
    "the host's clock, synchronized": (replace(COPY, timer="host"), None, "The GPU was done."),
    "events, no other waiting": (
        replace(COPY, synchronized=False), None, "The GPU itself takes their times.",
    ),
    "0.6 µs": (Claim(10**3, 0.0006, 1.6667), "launch", "Even an empty kernel takes 1 µs."),
    "0.6 µs of the host's clock, not synchronized": (
        Claim(10**3, 0.0006, 1.6667, timer="host", synchronized=False), "not waited for",
        "The GPU may have taken longer.",
    ),
    "1 µs": (Claim(10**3, 0.001, 1.0), None, "The shortest kernel takes 1 µs."),
    "40 MB in a loop": (Claim(40 * MEGA, 0.005, 8000.0), "cache", "40 MB fit in an L2 of 63 MB."),
    "as many bytes as L2 has": (
        Claim(60 << 20, 0.01, 6291.456), "cache", "They fit, to the last byte.",
    ),
    "exactly the limit of arithmetic": (
        Claim(100 * MEGA, 1.0, 100.0, 67 * 10**9, 67.0, "float32"), None, "A limit can be met.",
    ),
    "a rate rounded down to the limit": (
        Claim(965 * MEGA, 0.2, 4800.0), "bytes", "965 MB in 0.2 ms are 4,825 GB/s.",
    ),
    "a rate of operations rounded down to the limit": (
        Claim(100 * MEGA, 1.0, 100.0, 995 * 10**9, 989.0), "operations",
        "995 · 10⁹ operations in 1 ms are 995 TFLOP/s.",
    ),
    "keys counted for each query head": (
        Claim(4295 * MEGA, 0.262, 16393.0), "bytes", "4,295 MB do not fit in L2.",
    ),
    "a float32 product at 400 TFLOP/s": (
        Claim(100 * MEGA, 0.2, 500.0, 80 * 10**9, 400.0, "float32"), "operations",
        "float32 arithmetic ends at 67 TFLOP/s.",
    ),
    "causal attention, the whole square counted": (
        Claim(270 * MEGA, 0.9, 300.0, 1100 * 10**9, 1222.2), "operations",
        "bfloat16 arithmetic ends at 989 TFLOP/s.",
    ),
    "too fast, and the rate is from elsewhere": (
        Claim(4000 * MEGA, 0.2, 4000.0), "units", "4,000 MB in 0.2 ms would be 20,000 GB/s.",
    ),
    "too fast in both": (
        Claim(40 * MEGA, 0.005, 8000.0, 10 * 10**9, 2000.0), "cache", "Memory comes first.",
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, (claim, want, why) in PLANNED.items():
        yield Case(name, claim=claim, gpu=H200, want=want, why=why)
    for row in kept().results[::7]:
        tflop_s = row["tflop_s"] or 0.0
        claim = Claim(row["num_bytes"], row["ms"], row["gb_s"], row["flops"], tflop_s)
        name = f"{row['who']}, {row['operator']} {row['shape']}, as measured"
        yield Case(name, claim=claim, gpu=H200, want=None, why="It was measured on an H200.")
    generator = random.Random(0)
    for number in range(300):
        gpu = generator.choice([H200, SMALLER])
        want = generator.choice([None, *REASONS])
        claim = make(generator, gpu, want)
        yield Case(f"random row {number}", claim=claim, gpu=gpu, want=want, why="")


def make(generator: random.Random, gpu: Gpu, want: str | None) -> Claim:
    """A claim that is possible, made impossible in one way."""
    dtype, ms = generator.choice(["bfloat16", "float32"]), 10 ** generator.uniform(-1.5, 1)
    rate, speed = (generator.uniform(0.1, 0.95) for _ in "ab")
    if want == "launch":
        ms = generator.uniform(0.1, 0.9) * gpu.shortest_ms
    if want == "cache":
        rate, ms = generator.uniform(1.1, 1.5), 0.6 * gpu.l2_bytes / (gpu.gb_s * 1e6)
    if want == "bytes":
        rate, ms = generator.uniform(1.1, 9.0), 1.2 * gpu.l2_bytes / (gpu.gb_s * 1e6)
    if want == "operations":
        speed = generator.uniform(1.1, 3.0)
    num_bytes = round(rate * gpu.gb_s * ms * 1e6)
    flops = round(speed * gpu.tflop_s[dtype] * ms * 1e9)
    peer = generator.uniform(0.5, 3.0)
    claim = Claim(
        num_bytes, ms, num_bytes / ms / 1e6, flops, flops / ms / 1e9, dtype,
        *generator.choice([(None, None), (peer * ms, peer)]),
        generator.choice(["events", "host"]),
    )  # fmt: skip
    if want == "not waited for":
        return replace(claim, timer="host", synchronized=False)
    if want == "units":
        slip = generator.choice([0.5, 1e-3, 1.05, 1024**3 / 1e9])
        return replace(claim, **{name: slip * getattr(claim, name) for name in ("gb_s",)})
    return claim


def observe(why_impossible: Callable[[Claim, Gpu], str | None], case: Case, see: Observer) -> None:
    with see.call("why_impossible"):
        got = why_impossible(case.claim, case.gpu)
    see.equal("the reason", got, case.want, f"{case.why} The row: {in_words(case.claim)}.".strip())


def in_words(claim: Claim) -> str:
    words = f"{claim.num_bytes / 1e6:,.4g} MB, {claim.ms:.3g} ms, {claim.gb_s:,.4g} GB/s"
    if claim.flops:
        words += f", {claim.flops / 1e9:,.3g} · 10⁹ {claim.dtype} operations, "
        words += f"{claim.tflop_s:,.3g} TFLOP/s"
    if claim.peer_ms is not None:
        words += f", {claim.times_as_fast:.3g} times as fast as {claim.peer_ms:.3g} ms"
    return f"{words}, {claim.timer}{'' if claim.synchronized else ', not synchronized'}"
