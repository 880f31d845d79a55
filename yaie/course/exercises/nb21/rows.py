"""What the exercises of notebook 21 share: what to tell of faults in a merge of a thread block."""

from yaie.emulator.checks import Finding


def _race(found: Finding) -> str:
    if found.memory == "global":
        return "One thread writes the result, once all have merged."
    if found.access == found.other_access == "store":
        return "One lane of each warp writes, into its warp's own element."
    return "per_warp may be read when every warp has written its own element."


MERGE = {
    "race": _race,
    "shuffle": (
        "All 32 lanes have to reach a shuffle, with a column or without one: keep it out of every "
        "`if`."
    ),
    "deadlock": "A shuffle waits for all lanes in its mask: keep it out of every `if`.",
    "divergent_barrier": "Every thread has to reach every __syncthreads(), with a column or not.",
    "uninitialized": "Only as many elements of per_warp are written as there are warps.",
    "out_of_bounds": "A row's last element is at its size - 1.",
}
