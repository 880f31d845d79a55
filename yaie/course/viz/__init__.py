"""Pictures of what the engine does: trees, block tables, schedules, distributions, attention.

Each picture is a pure function from recorded state to a matplotlib figure. `film_strip` puts
several states on one figure, `slider` lets a reader move through them.
"""

from importlib import import_module

_NAMES = {
    "film": "film_strip",
    "slides": "slider",
    "tree_state": "snapshot_tree",
    "tree": "draw_tree",
    "blocks": "snapshot_pool cached_blocks draw_blocks",
    "paged": "snapshot_cache draw_cache Extent pool_extents draw_fragmentation",
    "schedule": "StepRecord draw_schedule draw_schedules",
    "stalls": "draw_stalls",
    "sampling": "Filter snapshot_sampling draw_sampling",
    "draws": "draw_bits draw_number_line rounds draw_rounds Tally draw_counts draw_chance",
    "attention": "draw_attention draw_rotary draw_head_groups",
    "on_chip": "draw_on_chip",
    "passes": "Pass draw_passes",
    "roofline": "Roof Point draw_roofline",
    "hierarchy": "Level draw_hierarchy",
    "memory": "draw_access draw_costs TileAccess draw_tile_banks draw_lanes_active",
    "lanes": "Span draw_latency Call draw_launches Work draw_work draw_requests draw_arrivals",
    "cache_step": "draw_cache_step",
    "decode": "DecodeStep SplitRead draw_decode",
    "charts": "Chart draw_charts draw_growth draw_batch_times TraceRecord draw_trace",
    "grid": "Launch draw_grid draw_written Programs programs_of draw_programs draw_traffic",
    "results": "draw_bench draw_backends Rung draw_ladder Build draw_builds draw_profile",
    "flat_tree": "FlatView draw_flat_tree",
    "steps": "ScanStep draw_scan Search draw_search Stage draw_reduction Tray draw_tray",
    "matmul": "ProductStep draw_product Part draw_owners draw_outer draw_places",
    "tensor_core": "draw_fragments pipeline replay draw_pipeline",
    "ring": "draw_ring draw_box draw_address_bits",
    "wgmma": "draw_descriptor Reads draw_reads draw_registers draw_roles",
    "waves": "Waves draw_waves",
    "building": "Piece draw_binary draw_autograd",
    "benchmark": "draw_benchmark",
    "parallel": "HeadShares draw_head_shares Cuts draw_cuts Matrix draw_matrices draw_speculation",
    "overview": "draw_course_map draw_readme_strip",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
