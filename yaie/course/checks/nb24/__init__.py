"""Exercises of notebook 24: a layer split among ranks, heads and files split, drafts accepted."""

from __future__ import annotations

from yaie.course.checks.nb24.drafts import check_accept, draw_accept
from yaie.course.checks.nb24.heads import check_heads, draw_heads
from yaie.course.checks.nb24.linear import check_linear, draw_linear
from yaie.course.core.manifest import Exercise

NOTEBOOK = "24_where_next"

EXERCISES = [
    Exercise(
        id="24.1",
        notebook=NOTEBOOK,
        slug="linear",
        title="Split a linear layer in both ways",
        target="yaie.model.shards:column_parallel, row_parallel",
        task=(
            "Compute a rank's part of a linear layer, split by its outputs and split by its "
            "inputs. `part(count, rank, size)` gives a rank's slice. The second needs what the "
            "other ranks have: call `all_reduce` once, at the right place, and mind the bias."
        ),
        difficulty=1,
        minutes=12,
        hints=(
            "Write x @ weight.T as sums. Which of the weight's numbers does one column of the "
            "result need? And if you have only some columns of x, which numbers can you multiply "
            "them with?",
            "By outputs: the rows of this rank, and the bias of these rows; the result is "
            "complete, but not all of it. By inputs: the columns of this rank; the result is all "
            "of it, but a summand, and the ranks' summands add up to the product without bias.",
            "own = part(which dimension of weight?, rank, size)\n"
            "column_parallel:\n"
            "    linear(x, weight[own], None if bias is None else ...)\n"
            "row_parallel:\n"
            "    out = all_reduce(linear(x, ...))\n"
            "    return out if bias is None else ...",
        ),
        proves=(
            "A column-parallel and a row-parallel layer are one MLP, on 1 to 4 ranks, with one "
            "all-reduce and a rank's share of the operations."
        ),
        check=check_linear,
        picture=draw_linear,
    ),
    Exercise(
        id="24.2",
        notebook=NOTEBOOK,
        slug="pieces",
        title="Which rank has what",
        target="yaie.model.shards:heads_of, piece_of",
        task=(
            "Say which query heads and KV heads a rank computes, also where there are fewer KV "
            "heads than ranks, and which part of each tensor of a checkpoint it loads, so that it "
            "never reads more than its share. The docstrings list the tensors."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "heads_of: begin with the query heads. A KV head is wanted where a query head of the "
            "rank attends to it, and for no other reason.",
            "The ranks' query heads are contiguous, so the KV heads from the first one's to the "
            "last one's are what they need. piece_of: find out from the name whether the ranks "
            "share the tensor's outputs (rows), its inputs (columns) or nothing; all other "
            "dimensions are whole.",
            "heads_of:\n"
            "    first, last = ...                       # query heads of the rank\n"
            "    group = num_heads // num_kv_heads\n"
            "    return range(first, last + 1), range(first // group, ...)\n"
            'piece_of: layer = name.split(".")[-2]\n'
            "    piece = [slice(0, count) for count in shape]\n"
            "    if layer in (...):\n"
            "        piece[0] = ...                      # heads, in units of config.head_dim\n"
            "    return tuple(piece)",
        ),
        proves=(
            "It agrees with counting head by head and row by row, for 60 splits of heads and 30 "
            "random checkpoints."
        ),
        check=check_heads,
        picture=draw_heads,
    ),
    Exercise(
        id="24.3",
        notebook=NOTEBOOK,
        slug="accept",
        title="Accept what the model would have said",
        target="yaie.course.lessons.speculative:accept",
        task=(
            "A draft was verified in one pass: you know what the model chooses after the text, "
            "and after each drafted token. Return the tokens to append, exactly those that the "
            "model would have written one by one, and as many of them as are known."
        ),
        difficulty=1,
        minutes=8,
        hints=(
            "Which of the choices may you trust? chosen[i] was computed with draft[:i] in the "
            "text.",
            "As long as the draft agrees, the text with the draft is the text that the model "
            "would have written. At the first difference the model's choice is still right; "
            "behind it nothing is.",
            "agreeing = 0\n"
            "while ... and draft[agreeing] == chosen[agreeing]:\n"
            "    agreeing += 1\n"
            "return [*draft[:agreeing], ...]",
        ),
        proves="It returns what a toy model writes one token at a time, for 200 random drafts.",
        check=check_accept,
        picture=draw_accept,
    ),
]
