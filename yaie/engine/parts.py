"""The classes and functions that an engine is put together from.

Each can be replaced, and that is how a learner's exercises run inside the real engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from yaie.engine.kv_cache import BlockPool, KVCacheManager
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree
from yaie.engine.sampling import FastSampler, SamplingKernel
from yaie.engine.scheduler import Scheduler


@dataclass(frozen=True)
class Parts:
    """What the engine builds on; the reference implementation unless something else is given.

    Attributes:
        operators: back ends of the model's operators, by name; the engine's `backend` computes
            those that are not here.
        report: whose code each part is, a line each; empty if all are the reference.
    """

    radix_tree: type[RadixTree] = RadixTree
    block_pool: type[BlockPool] = BlockPool
    kv_cache: type[KVCacheManager] = KVCacheManager
    radix_cache: type[RadixCache] = RadixCache
    scheduler: type[Scheduler] = Scheduler
    sampler: type[SamplingKernel] = FastSampler
    operators: Mapping[str, Callable] = field(default_factory=dict)
    report: tuple[str, ...] = ()


def learner_parts(ids: Sequence[str] | None = None) -> Parts:
    """The learner's exercises where they pass their checks, the reference elsewhere.

    Args:
        ids: those that may be used; None for all.
    """
    # The engine stands below the course, so this is imported only when somebody asks for it.
    from yaie.course.core.plug import learner_parts as parts

    return parts(ids)
