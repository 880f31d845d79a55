"""`yaie bench engine --peer spinning`: what it costs that OpenMP's threads soon sleep.

Engines whose threads wait as those of the `yaie` command do, beside engines with GNU OpenMP's own
habit, in which a waiting thread spins for milliseconds: one engine alone, and two that compute
at the same time on the same cores. Both with the back end `cpp` and with torch's operators.
"""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

from yaie.bench import peer
from yaie.bench.protocol import running_order
from yaie.engine.threads import share_processors

PROMPT, ANSWER = [5 + 7 * i % 400 for i in range(16)], 48


def run(model: str, rounds: int = 5, output: str | Path | None = None) -> dict[str, Any]:
    """Measure, print a line per case, and keep tokens per second as `peer.run` does.

    Args:
        model: a name or folder.
        rounds: of each case; the median counts.
    """
    peer.kept(output)
    own = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    sleeping = dict(own)
    share_processors(sleeping)
    results = []
    for backend in ("cpp", "reference"):
        command = (sys.executable, "-m", peer.__name__, "yaie", model, "float32", backend)
        pairs = {
            name: [peer.Engine(*command, environment=environment) for _ in range(2)]
            for name, environment in {"sleeping": sleeping, "spinning": own}.items()
        }
        try:
            for count in (1, 2):
                taken: dict[str, list[float]] = {name: [] for name in pairs}
                for name in running_order([*pairs], rounds + 1):  # the first warms up
                    taken[name].append(_together(pairs[name][:count]))
                row = {name: statistics.median(rates[1:]) for name, rates in taken.items()}
                results.append({"backend": backend, "engines": count, "rates": taken, **row})
                print(f"{backend:9} {count} engines  {row}", flush=True)
        finally:
            for engines in pairs.values():
                for engine in engines:
                    engine.close()
    return peer.keep("spinning", {"rounds": rounds, "results": results}, output)


def _together(engines: list[peer.Engine]) -> float:
    """Tokens per second of all engines, each with one prompt, at the same time."""
    for engine in engines:
        engine.tell([PROMPT], ANSWER)
    return sum(told["tokens"] / told["rest"] for told in [engine.hear() for engine in engines])
