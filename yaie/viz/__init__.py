"""Pictures of what the engine does: trees, block tables, schedules, distributions, attention.

Each picture is a pure function from recorded state to a matplotlib figure. `film_strip` puts
several states on one figure, `slider` lets a reader move through them.
"""

from __future__ import annotations

from importlib import import_module

_HOME = {
    "film_strip": "film",
    "slider": "slides",
    "snapshot_tree": "tree_state",
    "draw_tree": "tree",
    "snapshot_pool": "blocks",
    "cached_blocks": "blocks",
    "draw_blocks": "blocks",
    "snapshot_cache": "cache",
    "draw_cache": "cache",
    "Extent": "fragmentation",
    "pool_extents": "fragmentation",
    "draw_fragmentation": "fragmentation",
    "Step": "schedule",
    "draw_schedule": "schedule",
    "draw_schedules": "schedule",
    "Filter": "sampling",
    "snapshot_sampling": "sampling",
    "draw_sampling": "sampling",
    "draw_bits": "draws",
    "rounds": "draws",
    "draw_rounds": "draws",
    "draw_shares": "draws",
    "Tally": "counts",
    "draw_counts": "counts",
    "draw_chance": "counts",
    "draw_attention": "attention",
    "draw_rotary": "rotary",
    "draw_growth": "growth",
    "draw_head_groups": "heads",
    "Roof": "roofline",
    "Point": "roofline",
    "draw_roofline": "roofline",
    "Level": "hierarchy",
    "draw_hierarchy": "hierarchy",
    "Span": "latency",
    "draw_latency": "latency",
    "draw_occupancy": "occupancy",
    "TraceRecord": "trace",
    "draw_trace": "trace",
    "Launch": "grid",
    "draw_grid": "grid",
    "draw_written": "grid",
    "Programs": "programs",
    "programs_of": "programs",
    "draw_programs": "programs",
    "draw_traffic": "programs",
    "draw_bench": "bench",
    "draw_backends": "backends",
    "FlatView": "flat_tree",
    "draw_flat_tree": "flat_tree",
    "ScanStep": "scan",
    "draw_scan": "scan",
    "Search": "search",
    "draw_search": "search",
    "draw_batch_times": "batch_times",
    "Call": "launches",
    "draw_launches": "launches",
    "draw_access": "access",
    "draw_costs": "costs",
    "TileAccess": "banks",
    "draw_tile_banks": "banks",
    "Stage": "reduction",
    "draw_reduction": "reduction",
    "ProductStep": "matmul",
    "draw_product": "matmul",
    "Part": "matmul",
    "draw_owners": "matmul",
    "draw_places": "matmul",
    "draw_fragments": "tensor_core",
    "pipeline": "tensor_core",
    "draw_pipeline": "tensor_core",
    "Rung": "ladder",
    "draw_ladder": "ladder",
    "Build": "builds",
    "draw_builds": "builds",
    "Piece": "binary",
    "draw_binary": "binary",
    "Work": "timeline",
    "draw_timeline": "timeline",
    "draw_autograd": "autograd",
    "draw_profile": "profile",
    "Tray": "trays",
    "draw_tray": "trays",
    "Chart": "charts",
    "draw_charts": "charts",
    "draw_requests": "requests",
    "draw_arrivals": "requests",
    "draw_course_map": "course_map",
    "draw_readme_strip": "readme",
}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
