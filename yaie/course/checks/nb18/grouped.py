"""The check of 18.2: each key read once, by one team, for all query heads that share it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule
from yaie.course.checks.nb18.common import (
    Batch,
    batch_of,
    call,
    compare,
    drawn_access,
    lse_mistakes,
    outside,
)
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator import Report
    from yaie.emulator.checks import Finding

NAME = "paged_grouped"
WARPS, WARP = 4, 32
SHUFFLE = (
    "team.sum is a shuffle, and all 32 lanes of the warp come to it, also those whose team has no "
    "key in this turn: let the number of turns depend on the warp alone, and skip loads and add."
)
WALK = (
    "A warp has team.a_warp() teams, and the thread block WARPS warps. Team n of a warp, "
    "n = team.number(), takes key first + n; then all go on by WARPS * team.a_warp()."
)


def check_grouped(path: Path) -> None:
    explain = explanations()

    alone(path, explain)
    neighbors(path, explain)

    def values(order: str) -> None:
        run(path, "1 and 16 tokens", batch_of((1, 16), 2), explain, order)
        run(path, "21 and 70 tokens", batch_of((21, 70), 2), explain, order)

    on_every_schedule(values)
    run(path, "0, 7 and 0 tokens", batch_of((0, 7, 0)), explain)
    run(path, "4 query heads for 2 KV heads", batch_of((21, 9), 4, 2), explain)
    run(path, "12 query heads for 1 KV head, 8 at a time", batch_of((21, 9), 12), explain)
    for dim in (64, 128, 20):
        run(path, f"heads of {dim}", batch_of((40, 3), 3, dim=dim), explain)
    words = "150 tokens in 38 blocks"
    run(path, words, batch_of((150, 9)), explain, mistakes=of_32_blocks(batch_of((150, 9))))
    large = batch_of((50, 70), spread=300.0)
    run(path, "scores of several hundred", large, explain)
    for dtype in ("float16", "bfloat16"):
        run(path, dtype, batch_of((60, 0, 3), 4, dtype=dtype), explain)
    costs(path, explain)


def alone(path: Path, explain: Explain) -> None:
    """With a single key out is its value whatever the score, and lse is the score."""
    batch = batch_of((1,), heads=1)
    with given("1 token"):
        out, lse, _ = call(path, NAME, batch, explain=explain)
        dims = [*range(4), *range(16, 20)]  # of the first of 4 lanes
        part = (batch.tensors[0][0, 0, dims] * batch.keys[0][0, 0, dims]).sum() * batch.scale
        told = "That is what one lane has of the product: a score is the sum over the team's lanes."
        compare(
            batch, out, lse, "A single key has the weight 1: out is its value.", known(batch),
            [(part.view(1, 1), told), *unscaled(batch), *lse_mistakes(batch)],
        )  # fmt: skip


def unscaled(batch: Batch) -> list[tuple[Any, str]]:
    """The log-sum-exp of a single key whose score has another scale."""
    score = (batch.tensors[0][0, 0] * batch.keys[0][0, 0]).sum().view(1, 1)
    return [
        (score, "The score was not multiplied by paged.scale."),
        (score * batch.scale**2, "The score was multiplied by paged.scale twice."),
    ]


def neighbors(path: Path, explain: Explain) -> None:
    """Eight keys, one for each team of a warp."""
    batch = batch_of((8,), heads=1)
    with given("8 tokens, one for each team of a warp"):
        out, lse, _ = call(path, NAME, batch, explain=explain)
        alike = batch.values[0].mean(0)[None]
        told = (
            "All keys count alike here, as if they had the same score. Is the product summed over "
            "the whole warp? A score is the sum over the team's lanes: team.sum."
        )
        compare(
            batch, out, lse, f"Every key counts once. {WALK}", [(alike, told), *known(batch)],
            lse_mistakes(batch),
        )  # fmt: skip


def run(
    path: Path, words: str, batch: Batch, explain: Explain, order: str = "forward",
    mistakes: list[tuple[Any, str]] = (),
) -> None:  # fmt: skip
    words += "" if order == "forward" else f", threads in {order} order"
    with given(words):
        out, lse, _ = call(path, NAME, batch, explain=explain, order=order)
        heads = batch.tensors[0].shape[1]
        zeros = [h for h in range(heads) if not bool(out[:, h].any())]
        if zeros and len(zeros) < heads:
            fail(
                f"out of query head {zeros[0]} is 0, and that of others is not: a key's score is "
                "another one for each of the `heads` heads, and each has its own state."
            )
        if len(zeros) == heads:
            fail("out is 0 everywhere: no state has seen a key when it is finished.")
        compare(
            batch, out, lse, f"Every key below context.length counts once for each head. {WALK}",
            [*mistakes, *known(batch)], lse_mistakes(batch),
        )  # fmt: skip


def known(batch: Batch) -> list[tuple[Any, str]]:
    """What known mistakes would give."""
    q, key_pool, value_pool, tables, lengths = batch.tensors
    block_size, kv_heads = key_pool.shape[1:3]

    def found(
        slots: Any = None, scale: float = batch.scale, dead: bool = False, head: Any = None,
        whole: bool = False,
    ):  # fmt: skip
        """Attention over other slots than those of the context, or of another KV head."""
        import torch

        out = torch.zeros(q.shape).double()
        for i, length in enumerate(lengths.tolist()):
            if not length:
                continue
            blocks = tables[i, : -(-length // block_size)].long()
            at = torch.arange(len(blocks) * block_size if whole else length)
            if slots is None:
                here = blocks[at // block_size] * block_size + at % block_size
            else:
                here = slots(blocks, at)
            for h in range(q.shape[1]):
                kv = h // batch.group if head is None else head(h)
                keys, values = (
                    pool.view(-1, *pool.shape[2:])[here, kv].double()
                    for pool in (key_pool, value_pool)
                )
                scores = keys @ q[i, h].double() * scale
                if dead:
                    lanes = max(1, 1 << (max(q.shape[2] - 1, 0) // 8).bit_length())
                    more = -len(scores) % (WARP // lanes)  # warps without a key make no turn
                    scores = torch.cat([scores, scores.new_zeros(more)])
                    values = torch.cat([values, values.new_zeros(more, values.shape[1])])
                out[i, h] = torch.softmax(scores, 0) @ values
        return out.to(q.dtype)

    told = [
        (found(scale=1.0), "The scores were not multiplied by paged.scale."),
        (found(scale=batch.scale**2), "The scores were multiplied by paged.scale twice."),
        (found(whole=True), "The last block was read to its end. Behind the context it holds "
         "tokens of others."),
        (found(dead=True), "Teams without a key have added one all the same, of score 0 and value "
         "0: add only where there is a key."),
        (found(lambda blocks, at: blocks[at // block_size] * block_size), "Every token was taken "
         "for the first of its block: the slot is block × block_size + offset."),
        (found(lambda blocks, at: at), "The keys were looked for where they would be without a "
         "table, in slots 0, 1, 2, …: find_slot says where they are."),
    ]  # fmt: skip
    if kv_heads > 1:
        told += [
            (found(head=lambda h: 0), "All query heads have read KV head 0: a slot holds "
             "paged.kv_heads rows, and this thread block's is row kv_head."),
            (found(head=lambda h: h % kv_heads), "Query head h has read KV head h % KV heads."),
        ]  # fmt: skip
    return told


def of_32_blocks(batch: Batch) -> list[tuple[Any, str]]:
    """What comes out if only 32 entries of a table are followed."""
    import torch

    q, size = batch.tensors[0], batch.tensors[1].shape[1]
    told = []
    for blocks in (32, 31, 16):
        out = torch.zeros(q.shape).double()
        for i in range(len(q)):
            for head in range(q.shape[1]):
                scores = batch.scores(i, head)[: blocks * size]
                values = batch.values[i][: blocks * size, head // batch.group].double()
                out[i, head] = torch.softmax(scores, 0) @ values
        words = f"Only the first {blocks} blocks of the context were read, as if a table had "
        told.append((out.to(q.dtype), f"{words}an entry for each lane. It has {-(-150 // size)}."))
    return told


def costs(path: Path, explain: Explain) -> None:
    """Each row of keys and of values travels once."""
    batch = batch_of((32, 64), 4, dim=64, block_size=16, dtype="float16")
    with given("contexts of 32 and 64 tokens, 4 query heads for 1 KV head"):
        report = call(path, NAME, batch, explain=explain)[2]
        wanted = sum(keys.numel() * keys.element_size() for keys in batch.keys)
        for name in ("key_pool", "value_pool"):
            check_once(report, name, wanted, batch.group)


def check_once(report: Report, name: str, wanted: int, group: int) -> None:
    lines = [a for a in report.accesses if (a.name, a.kind) == (name, "load")]
    loaded = sum(access.lanes * access.size for access in lines)
    if loaded <= wanted:
        return
    worst = max(lines, key=lambda access: access.lanes)
    told = "One team takes a key, and no other team the same one."
    if loaded == group * wanted:
        told = (
            f"That is once for each of the {group} query heads: load before the loop over heads, "
            "and let all of them use what was loaded."
        )
    fail(
        f"line {worst.line}: {loaded:,} bytes of {name} are loaded, {loaded / wanted:.3g} times "
        f"the {wanted:,} that the contexts have. {told}",
        picture=drawn_access(worst),
    )


def explanations() -> Explain:
    def place(found: Finding) -> str:
        return outside(found.name if found else "")

    return {
        "out_of_bounds": place,
        "misaligned": "A row begins at (slot * paged.kv_heads + kv_head) * paged.head_dim.",
        "inactive_lane": SHUFFLE,
        "deadlock": SHUFFLE,
        "divergent_barrier": "finish has a barrier: all threads of the thread block come to it, "
        "after the loop.",
        "race": lambda found: (
            "finish uses shared memory: call it once, after the loop."
            if found and found.memory == "shared"
            else "Two thread blocks write the same rows: the first one of this thread block is "
            "paged.out + row * paged.head_dim, and paged.lse + row."
        ),
    }


def draw_grouped(path: Path) -> Any:
    """What each line costs a warp."""
    from yaie.course.viz.costs import draw_costs

    batch = batch_of((100,), 4, dim=64, block_size=16, dtype="float16")
    return draw_costs(call(path, NAME, batch)[2])
