"""The check of 16.1: each row in its slot, none of the padding, 16 bytes where that is allowed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb16.common import pool_of, require_others_kept, rows_of
from yaie.course.core.cuda import launch
from yaie.course.core.expect import equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "reshape_and_cache_simple"
SWAPPED = "These are the values: keys go to key_pool, values to value_pool."
BY_TOKEN = "It is in the slot of its own number. Where token t goes is slots[t]."
STRIDE = (
    "A slot holds a whole row, `size` units: all heads of a token. Slot s begins at s * size, "
    "whatever block it is in, since blocks lie one behind the other."
)
PADDING = "A slot of -1 marks a row of padding: its thread block has nothing to write."
MISALIGNED = (
    "A unit of 16 bytes needs addresses that are multiples of 16: where the tensors begin, and "
    "where each row begins, which row_bytes and both strides decide. The widest unit allowed "
    "divides all seven numbers."
)


def check_write(path: Path) -> None:
    def values(order: str) -> None:
        run(path, "5 tokens, 3 heads of 8", (5, 3, 8, 4), order=order)

    run(path, "3 tokens, 2 heads of 4", (3, 2, 4, 4))
    run(path, "2 tokens, 3 heads of 200, more units than threads", (2, 3, 200, 2))
    run(path, "4 tokens, of which 2 are padding", (4, 2, 8, 3), padding=(1, 3))
    run(path, "4 tokens in a fused product", (4, 2, 8, 3), fused=True)
    on_every_schedule(values)
    wide(path)
    for dim in (1, 5, 6, 33):
        run(path, f"3 tokens, 1 head of {dim}", (3, 1, dim, 4))
    for moved in ("keys", "values", "key_pool", "value_pool"):
        run(path, f"3 tokens, 2 heads of 8, {moved} at a multiple of 4", (3, 2, 8, 4), moved=moved)
    run(path, "rows of 96 bytes in float16", (4, 3, 16, 4), half=True)
    run(path, "rows of 22 bytes in float16", (4, 1, 11, 4), half=True)
    run(path, "odd strides, 3 heads of 16 of 49", (4, 3, 16, 4), odd=True)


def inputs(
    shape: tuple[int, int, int, int], padding: tuple[int, ...] = (), fused: bool = False,
    odd: bool = False, moved: str = "", half: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The tensors of a launch; numbers of new rows are above 0."""
    import torch

    tokens, heads, dim, block_size = shape
    new = 1.0 + torch.arange(2 * tokens * heads * dim).view(tokens, 2 * heads, dim)
    keys, values = new[:, :heads], new[:, heads:] + 0.5
    if odd:  # a row of a token is one element longer than its heads
        room = torch.zeros(tokens, heads * dim + 1)
        room[:, : heads * dim] = keys.flatten(1)
        keys = room[:, : heads * dim].view(tokens, heads, dim)
    elif not fused:
        keys = keys.contiguous()
    if not fused:
        values = values.contiguous()
    blocks = -(-tokens // block_size) + 2
    found = {
        "keys": keys,
        "values": values,
        "key_pool": pool_of(blocks, block_size, heads, dim),
        "value_pool": pool_of(blocks, block_size, heads, dim, seed=1),
    }
    if fused:
        found["values"] = new[:, heads:]
    if half:
        found = {name: (tensor % 1000).half() for name, tensor in found.items()}
    if moved:
        room = torch.zeros(found[moved].numel() + 1)
        found[moved] = room[1:].view(found[moved].shape).copy_(found[moved])
    order = torch.randperm(blocks * block_size, generator=torch.Generator().manual_seed(tokens))
    slots = order[:tokens].clone()
    if padding:
        slots[list(padding)] = -1
    return {**found, "slots": slots}


def arguments(given: dict[str, Any]) -> tuple[Any, ...]:
    from yaie.ops.cuda.launching import memory

    keys, values = given["keys"], given["values"]
    size = keys.element_size()
    return (
        *(memory(keys), memory(values), given["key_pool"], given["value_pool"], given["slots"]),
        *(len(keys), keys[0].numel() * size, keys.stride(0) * size, values.stride(0) * size),
    )


def run(
    path: Path, words: str, shape: tuple[int, int, int, int], order: str = "forward", **options: Any
) -> None:
    case = inputs(shape, **options)
    before = {name: rows_of(case[name]).clone() for name in ("key_pool", "value_pool")}
    slots = case["slots"]
    with given(words + ("" if order == "forward" else f", threads in {order} order")):
        launch(path, NAME, *arguments(case), explain=explanations(slots), order=order)
        new = {"key_pool": case["keys"].flatten(1), "value_pool": case["values"].flatten(1)}
        for name, other in (("key_pool", "value_pool"), ("value_pool", "key_pool")):
            compare(name, case, before[name], new[name], new[other], options)


def compare(
    name: str, case: dict[str, Any], before: Any, new: Any, other: Any, options: dict[str, Any]
) -> None:
    import torch

    slots, got = case["slots"], rows_of(case[name])
    real = slots >= 0
    mine = torch.zeros(len(got), dtype=torch.bool)
    mine[slots[real]] = True
    wanted = new[real]
    if len(options.get("padding", ())) and bool((got[~mine] == new[~real][0]).all(1).any()):
        fail(f"{name}: a row of padding was written. {PADDING}")
    found = got[slots[real]]
    at = "keys" if name == "key_pool" else "values"
    threads = min(new.shape[1], 128)
    unit = widest(case)
    narrow = (
        ""
        if unit == 16
        else (
            f" The widest unit that divides the row of {new.shape[1] * new.element_size()} bytes, "
            f"the strides and the addresses has {unit} byte{'s' * (unit > 1)}."
        )
    )
    without_0 = torch.where((slots[real] == 0)[:, None], before[slots[real]], wanted)
    mistakes = [
        *([(found.clone(), BY_TOKEN)] if bool((got[: len(new)] == new).all()) else []),
        (without_0, "Slot 0 is a slot like any other: padding is below 0."),
        (other[real], SWAPPED if at == "keys" else SWAPPED.replace("values", "keys", 1)),
        (before[slots[real]], untouched(got, before) + narrow),
    ]
    if new.shape[1] > threads:
        first = before[slots[real]].clone()
        for bytes_each in (16, 4):
            end = threads * bytes_each // 4
            if end < new.shape[1]:
                first[:, :end] = wanted[:, :end]
                mistakes.append(
                    (first.clone(), "Only the first 128 units of a row have come: a row may have "
                     "more units than the thread block has threads, so a thread goes on by "
                     "blockDim.x.")
                )  # fmt: skip
    if options.get("fused") or options.get("odd"):
        stride = case[at].stride(0)
        dense = case[at].as_strided(new.shape, (new.shape[1], 1))
        mistakes.append((
            dense[real], f"The tokens of {at} do not touch here: {stride} elements lie between the "
            f"beginnings of two rows, {new.shape[1]} are in one. Token t begins at t * "
            f"{'key' if at == 'keys' else 'value'}_stride.{narrow}"
        ))  # fmt: skip
    because = f"Row t of {at} belongs at slots[t]. {STRIDE}{narrow}"
    equal(found, wanted, f"{name} at the slots of the tokens", because=because, mistakes=mistakes)
    require_others_kept(got, before, mine, f"{name}: slot", STRIDE)


def widest(case: dict[str, Any]) -> int:
    """The bytes of the widest unit that a launch may use."""
    _, _, _, _, _, _, *sizes = arguments(case)
    pointers = [case[n].data_ptr() for n in ("keys", "values", "key_pool", "value_pool")]
    together = 16
    for number in (*sizes, *pointers):
        together |= number
    return together & -together


def untouched(got: Any, before: Any) -> str:
    """What became of rows that are not in their slots."""
    if bool((got == before).all()):
        return "That is what was there before: nothing was written to this pool."
    return f"That is what was there before: the row went somewhere else. {STRIDE}"


def explanations(slots: Any) -> dict[str, Any]:
    def bounds(finding: Finding) -> str:
        pool = finding.name.endswith("pool")
        if pool and finding.offset < 0 and bool((slots < 0).any()):
            return PADDING
        if pool:
            return STRIDE
        if finding.name == "slots":
            return "There is one slot for each token, and a thread block for each token."
        return (
            "Token t begins key_stride (or value_stride) units behind token t - 1, and a row has "
            "`size` units."
        )

    return {
        "out_of_bounds": bounds,
        "misaligned": MISALIGNED,
        "race": (
            PADDING
            if bool((slots < 0).any())
            else f"Two threads write the same place, so one row lands on another's. {STRIDE}"
        ),
    }


def wide(path: Path) -> None:
    """Where everything is a multiple of 16, no request moves less."""
    case = inputs((3, 2, 64, 4))
    with given("3 tokens, 2 heads of 64, every address a multiple of 16"):
        report = report_of(path, NAME, *arguments(case))
        for access in report.accesses:
            if access.name == "slots":
                continue
            if access.size < 16:
                fail(
                    f"the result is right, but line {access.line} moves {access.size} "
                    f"byte{'s' * (access.size > 1)} a thread: {access.requests:,} requests where "
                    f"{access.requests * access.size // 16:,} of 16 bytes would do. Which unit "
                    "divides the addresses, row_bytes and the strides?"
                )
            if access.units > access.ideal_units:
                fail(
                    f"line {access.line}: a request of {access.name} costs "
                    f"{access.per_request:.3g} sectors, {access.ideal:.3g} would do: "
                    "neighboring threads take neighboring units.",
                    picture=partial(_drawn, access),
                )


def _drawn(access: Any) -> Any:
    from yaie.course.viz.memory import draw_access

    return draw_access(access)


def draw_write(path: Path) -> Any:
    """Which token lies in which slot, as the kernel left it."""
    from yaie.course.viz.paged import draw_slots

    case = inputs((9, 2, 4, 4))
    before = rows_of(case["key_pool"]).clone()
    report_of(path, NAME, *arguments(case))
    rows, keys = rows_of(case["key_pool"]), case["keys"].flatten(1)
    slots = [int((rows == key).all(1).nonzero()[0]) for key in keys]
    assert int((rows != before).any(1).sum()) == len(slots)
    return draw_slots([f"t{t}" for t in range(len(slots))], slots, len(case["key_pool"]), 4)
