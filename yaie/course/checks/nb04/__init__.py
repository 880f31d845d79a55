"""Exercises of notebook 04: a radix tree whose values are KV blocks."""

from __future__ import annotations

from yaie.course.checks.nb04.evict import check_evict
from yaie.course.checks.nb04.insert import check_insert
from yaie.course.checks.nb04.match import check_match
from yaie.course.checks.nb04.pictures import draw_evict, draw_insert, draw_match
from yaie.course.core.manifest import Exercise

NOTEBOOK = "04_prefix_sharing"

EXERCISES = [
    Exercise(
        id="04.1",
        notebook=NOTEBOOK,
        slug="match",
        title="Find the blocks that hold a prompt's beginning",
        target="yaie.engine.prefix_cache:RadixCache.match",
        task=(
            "A request arrives. Ask the tree, `self.tree`, for the blocks that hold the beginning "
            "of its tokens, but leave at least one token to compute: without a forward pass "
            "there are no logits, and without logits no next token."
        ),
        difficulty=1,
        minutes=5,
        hints=(
            "The tree does the searching, and it cares for whole blocks and for the path to the "
            "node. The one thing it does not know is that a request must compute something. So "
            "decide, before it is asked, how many of the tokens it may see.",
            "Of n tokens at most n - 1 may be found. The node, the length and the blocks in the "
            "answer describe the same prefix; that holds by itself if the tokens are cut before "
            "the search, and is hard to restore if the answer is cut after it.",
            "Two lines: the tokens that may be found, and the search among them.\n"
            "    searched = token_ids[: ...]\n"
            "    return self.tree.match(searched, ...)\n"
            "Mind that there may be no tokens at all, and that the tree keeps namespaces apart "
            "only if it is told which one is meant.",
        ),
        proves=(
            "It leaves a token over, keeps namespaces apart, takes nothing, and agrees with a "
            "naive oracle through 400 steps of a random trace."
        ),
        check=check_match,
        picture=draw_match,
        part="radix_cache",
    ),
    Exercise(
        id="04.2",
        notebook=NOTEBOOK,
        slug="insert",
        title="Keep what a request has computed",
        target="yaie.engine.prefix_cache:RadixCache.insert",
        task=(
            "A request has computed some tokens, and `blocks` is its block table. Put the full "
            "blocks into the tree, and make the cache one more user of those that the tree did "
            "not have. Nothing is taken from the request: it goes on, and releases its table when "
            "it ends."
        ),
        difficulty=2,
        minutes=12,
        hints=(
            "Two requests may have computed the same tokens, each into blocks of its own. The "
            "tree keeps one block for each; so first let it tell you which of yours it took, and "
            "then count references for those only.",
            "At every moment, a block's reference count is the number of tables that name it, "
            "plus one if the tree names it. insert changes what the tree names, so it must "
            "change exactly those counts, by one. A block that is not full is not named by the "
            "tree.",
            "Count the full blocks and refuse if `blocks` has fewer. Then\n"
            "    node, length = self.tree.insert(...)\n"
            "where `length` says how many tokens were there before: the blocks of those are not "
            "new. `self.pool.share(...)` the slice of `blocks` between them and the last full "
            "one, and return the node.",
        ),
        proves=(
            "Through 400 steps of a random trace each block has as many users as tables and tree "
            "name it, and the tree names what a naive oracle names."
        ),
        check=check_insert,
        picture=draw_insert,
        part="radix_cache",
    ),
    Exercise(
        id="04.3",
        notebook=NOTEBOOK,
        slug="evict",
        title="Give blocks back when memory runs short",
        target="yaie.engine.prefix_cache:RadixCache.evict, RadixCache.make_room",
        task=(
            "`evict` gives the blocks used longest ago back to the pool. `make_room` evicts until "
            "a request's blocks are free: no more than needed, and nothing at all if it cannot "
            "succeed."
        ),
        difficulty=2,
        minutes=10,
        hints=(
            "The tree chooses what goes and the pool counts who uses what. Each has to hear of "
            "it: a block that only the tree forgets is lost, and one that only the pool frees is "
            "found again by the next match.",
            "After evict, as before it, a block is named by the tree exactly if the cache is one "
            "of its users. make_room can be decided beforehand: what is free already, and what "
            "could be evicted now, is `self.num_available`. Locked blocks are not among that.",
            "evict is three steps: let `self.tree.evict(...)` take blocks out of the tree, release "
            "them, return how many they are. make_room is\n"
            "    if num_blocks > ...:\n"
            "        return False\n"
            "    self.evict(...)\n"
            "    return True\n"
            "where what is evicted is the difference between what is wanted and what is free. A "
            "negative difference evicts nothing.",
        ),
        proves=(
            "Through 400 steps of a random trace the blocks that a naive oracle evicts are "
            "evicted and no others, and none that is locked."
        ),
        check=check_evict,
        picture=draw_evict,
        part="radix_cache",
    ),
]
