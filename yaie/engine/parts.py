"""The classes and functions that an engine is put together from.

Each can be replaced, and that is how a learner's exercises run inside the real engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yaie.attention import apply_rotary
from yaie.engine.scheduler import Scheduler
from yaie.kv_cache import BlockPool, KVCacheManager
from yaie.ops.attention import paged_attention_forward
from yaie.prefix_cache import RadixCache
from yaie.radix import RadixTree
from yaie.sampling import FastSampler, SamplingKernel


@dataclass(frozen=True)
class Parts:
    """What the engine builds on; the reference implementation unless something else is given.

    Attributes:
        report: whose code each part is, a line each; empty if all are the reference.
    """

    radix_tree: type[RadixTree] = RadixTree
    block_pool: type[BlockPool] = BlockPool
    kv_cache: type[KVCacheManager] = KVCacheManager
    radix_cache: type[RadixCache] = RadixCache
    scheduler: type[Scheduler] = Scheduler
    sampler: type[SamplingKernel] = FastSampler
    apply_rotary: Callable = apply_rotary
    paged_attention: Callable = paged_attention_forward
    report: tuple[str, ...] = ()


def learner_parts() -> Parts:
    """The learner's exercises where they pass their checks, the reference elsewhere."""
    # The engine stands below the course, so this is imported only when somebody asks for it.
    from yaie.course.plug import learner_parts as parts

    return parts()
