"""The classes and functions that an engine is put together from.

Each can be replaced, and that is how a learner's exercises run inside the real engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yaie.engine.scheduler import Scheduler
from yaie.kv_cache import BlockPool, KVCacheManager
from yaie.prefix_cache import RadixCache
from yaie.radix import RadixTree
from yaie.sampling import FastSampler, SamplingKernel


@dataclass(frozen=True)
class Parts:
    """What the engine builds on; the reference implementation unless something else is given.

    Attributes:
        apply_rotary, paged_attention: back ends of the operators `rotary` and `paged_attention`;
            None leaves the choice to the engine's `backend`.
        report: whose code each part is, a line each; empty if all are the reference.
    """

    radix_tree: type[RadixTree] = RadixTree
    block_pool: type[BlockPool] = BlockPool
    kv_cache: type[KVCacheManager] = KVCacheManager
    radix_cache: type[RadixCache] = RadixCache
    scheduler: type[Scheduler] = Scheduler
    sampler: type[SamplingKernel] = FastSampler
    apply_rotary: Callable | None = None
    paged_attention: Callable | None = None
    report: tuple[str, ...] = ()

    @property
    def operators(self) -> dict[str, Callable]:
        """The operators that are replaced, by name."""
        given = {"rotary": self.apply_rotary, "paged_attention": self.paged_attention}
        return {name: function for name, function in given.items() if function is not None}


def learner_parts() -> Parts:
    """The learner's exercises where they pass their checks, the reference elsewhere."""
    # The engine stands below the course, so this is imported only when somebody asks for it.
    from yaie.course.plug import learner_parts as parts

    return parts()
