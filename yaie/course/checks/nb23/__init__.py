"""Exercises of notebook 23: latencies from traces, arrivals, and the two knees of a server."""

from __future__ import annotations

from yaie.course.checks.nb23.arrivals import check_arrivals, draw_arrivals
from yaie.course.checks.nb23.fit import check_fit, draw_fit
from yaie.course.checks.nb23.knee import check_knee, draw_knee
from yaie.course.checks.nb23.latency import check_latency, draw_latency
from yaie.course.core.manifest import Exercise

NOTEBOOK = "23_serving_and_benchmarks"

EXERCISES = [
    Exercise(
        id="23.1",
        notebook=NOTEBOOK,
        slug="latency",
        title="What the clients of a run saw",
        target="yaie.bench.load:percentile, summarize",
        task=(
            "A trace has the time at which a request was due, and the times of its tokens. From "
            "the traces of a run, compute time to first token and inter-token latency, the 50th "
            "and 99th percentile of each, and the tokens a second. `percentile` comes first; "
            "`summarize` returns a `Latency`."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Three questions, three lists. How long did each person wait for a first word? One "
            "number a request. How long were the pauses afterwards? One number a gap. How much "
            "came out in all, and from when to when? Two numbers for the whole run.",
            "A percentile is one of the values: sorted, the one at which at least that part of "
            "the list is reached, counting itself. Of 4 values the 50th is the 2nd, the 51st is "
            "the 3rd, the 100th the 4th. A pause is never averaged: one of a second between "
            "hundreds of 20 ms is what somebody noticed.",
            "percentile: `sorted(values)[math.ceil(percent * len(values) / 100) - 1]`, behind two "
            "checks that raise ValueError.\n"
            "summarize:\n"
            "    first = [...]   # tokens[0] - due, for every trace\n"
            "    gaps = [...]    # neighbors in tokens, for every trace, in one flat list\n"
            "    seconds = (last token of anybody) - (earliest due)",
        ),
        proves="It agrees with a count of every value for 60 random runs, and refuses losses.",
        check=check_latency,
        picture=draw_latency,
    ),
    Exercise(
        id="23.2",
        notebook=NOTEBOOK,
        slug="arrivals",
        title="People who do not know of each other",
        target="yaie.bench.load:poisson_arrivals",
        task=(
            "Draw the times at which requests come, so many a second in the mean, if everybody "
            "decides alone: a Poisson process. The docstring says how the times between arrivals "
            "are distributed."
        ),
        difficulty=1,
        minutes=6,
        hints=(
            "If nobody knows of anybody, an arrival a moment ago says nothing about the next one. "
            "Only one distribution of waiting times has that property.",
            "The times add up: each arrival is the one before it plus a time drawn anew. With 5 "
            "requests a second, that time is a fifth of a second in the mean.",
            "Two checks, then a loop of `count` rounds:\n"
            "    now += rng.expovariate(...)   # its argument is 1 / mean\n"
            "    times.append(now)",
        ),
        proves="Gaps have the mean, the spread and the independence of a Poisson process.",
        check=check_arrivals,
        picture=draw_arrivals,
    ),
    Exercise(
        id="23.3",
        notebook=NOTEBOOK,
        slug="fit",
        title="How many requests the memory holds",
        target="yaie.bench.load:requests_that_fit",
        task=(
            "Before you start a server, say how many requests of a known size its KV blocks hold "
            "to their ends. Some of the prompt may be the same for all, and is then stored once."
        ),
        difficulty=2,
        minutes=10,
        hints=(
            "Count the keys and values that a request has stored when it ends, and round up to "
            "blocks. Of the shared tokens, count what is stored once and take it off the pool.",
            "The last token that a request generates is shown and never computed with, so it has "
            "no keys and values. A shared block is whole: 20 shared tokens in blocks of 16 are "
            "one block. And the block in which the prompt's last token lies is never shared, "
            "since somebody has to compute that token to get logits.",
            "    common = ...   # whole blocks among the first min(shared, prompt - 1) tokens\n"
            "    own = ...      # blocks_needed(all stored tokens, block_size) less the common\n"
            "and what is left of the pool, divided by `own`, rounded down, never negative.",
        ),
        proves="The real engine runs as many without a preemption, and not one more.",
        check=check_fit,
        picture=draw_fit,
    ),
    Exercise(
        id="23.4",
        notebook=NOTEBOOK,
        slug="knee",
        title="Read the knee off a plot",
        target="yaie.bench.load:knee",
        task=(
            "A server was measured with 1, 2, 4, … clients, each of whom asks again as soon as he "
            "is answered. From the answers a second, say for how many clients the server is made: "
            "where the line of few clients meets the level of many."
        ),
        difficulty=1,
        minutes=8,
        hints=(
            "Two lines bound the curve. With few clients nobody is in anybody's way, and twice as "
            "many get twice as much. With many, the server is at its limit.",
            "The rising line goes through the origin and through the point of the fewest clients, "
            "which need not be 1. The level line goes through the highest rate, wherever that is: "
            "measured curves go down again.",
            "The rising line is `rates[fewest] / fewest` times the number of clients. Set it "
            "equal to `max(rates.values())`, and solve for the number.",
        ),
        proves="It is where the two lines cross, for curves of 50 made-up servers.",
        check=check_knee,
        picture=draw_knee,
    ),
]
