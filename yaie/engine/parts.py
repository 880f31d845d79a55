"""The classes and functions that an engine is built from.

Each can be replaced: that is how a learner's exercises run inside the real engine.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from yaie.engine.kv_cache import BlockPool, KVCacheManager
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree
from yaie.engine.sampling import FastSampler, SamplingKernel
from yaie.engine.scheduler import Scheduler

Exercises = bool | str | Sequence[str] | None  # see `LLM`


@dataclass(frozen=True)
class Parts:
    """What the engine is built from: the reference implementation unless something else is given.

    Attributes:
        operators: functions that compute operators of the model, by the operators' names; the
            engine's `backend` computes the others.
        report: a line per part that says whose code it is; empty if all are the reference.
    """

    radix_tree: type[RadixTree] = RadixTree
    block_pool: type[BlockPool] = BlockPool
    kv_cache: type[KVCacheManager] = KVCacheManager
    radix_cache: type[RadixCache] = RadixCache
    scheduler: type[Scheduler] = Scheduler
    sampler: type[SamplingKernel] = FastSampler
    operators: Mapping[str, Callable] = field(default_factory=dict)
    report: tuple[str, ...] = ()


def chosen_parts(exercises: Exercises) -> Parts:
    """The parts that `LLM(exercises=...)` asks for, or YAIE_USE_EXERCISES if it is None: the
    learner's exercises where they pass their checks, the reference elsewhere."""
    if exercises is None:
        exercises = switch("YAIE_USE_EXERCISES")
    elif isinstance(exercises, str):
        exercises = [exercises]
    elif not isinstance(exercises, bool | Sequence):
        raise TypeError(f"exercises must be True, False or a list of ids, got {exercises!r}")
    if not exercises:
        return Parts()
    # The engine stands below the course: this is its only import of it.
    from yaie.course.core.plug import learner_parts

    return learner_parts(None if exercises is True else exercises)


def switch(name: str) -> bool:
    """What an environment variable says, yes or no; unset is no. Raises ValueError for others."""
    word = os.environ.get(name, "").lower()
    if word not in ("1", "true", "yes", "0", "false", "no", ""):
        raise ValueError(f"{name} must be 1, true, yes, 0, false or no, got {word!r}")
    return word in ("1", "true", "yes")
