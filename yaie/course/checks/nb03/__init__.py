"""Exercises of notebook 03: block tables, reference counts, copy-on-write, slots."""

from __future__ import annotations

from yaie.course.checks.nb03.allocate import check_allocate_blocks, draw_allocate_blocks
from yaie.course.checks.nb03.append import check_append_tokens, draw_append_tokens
from yaie.course.checks.nb03.release import check_release, draw_release
from yaie.course.checks.nb03.slots import check_slot_mapping, draw_slot_mapping
from yaie.course.core.manifest import Exercise

NOTEBOOK = "03_paged_kv_cache"

EXERCISES = [
    Exercise(
        id="03.1",
        notebook=NOTEBOOK,
        slug="allocate_blocks",
        title="Give a new request its block table",
        target="yaie.engine.kv_cache:KVCacheManager.allocate_blocks",
        task=(
            "A request arrives with a number of tokens. Give it as many blocks as they need, "
            "record its table in `block_tables` and its number of tokens in `lengths`. It may "
            "begin with blocks that other requests already filled (`prefix_blocks`): these are "
            "shared. Whatever goes wrong, nothing may have changed. You have `blocks_needed`, and "
            "of the pool `allocate`, `share` and `release`, which are all or nothing."
        ),
        difficulty=2,
        minutes=12,
        hints=(
            "A block table is a list of block numbers: first those that are shared, then those "
            "that are new. Everything that can fail should fail before anything is recorded.",
            "After the call, every block has as many users in the pool as tables hold it; after a "
            "call that raised, everything is as before. `pool.allocate` raises by itself when too "
            "few are free, and takes none; the only thing left to undo then is what you shared.",
            "Two checks that raise ValueError: the id has a table, or the prefix is longer than "
            "the request. Then\n"
            "    missing = blocks_needed(...) - len(...)\n"
            "    share the prefix\n"
            "    try: allocate `missing` blocks\n"
            "    except OutOfBlocks: release the prefix, raise\n"
            "Record the new table and the length, and return `list(table)`.",
        ),
        proves=(
            "No block leaked and none was given twice in 360 random steps, and each of the calls "
            "that must fail changed nothing."
        ),
        check=check_allocate_blocks,
        picture=draw_allocate_blocks,
        part="kv_cache",
    ),
    Exercise(
        id="03.2",
        notebook=NOTEBOOK,
        slug="release",
        title="Take a user away, and free what nobody uses",
        target="yaie.engine.kv_cache:BlockPool.release",
        task=(
            "A user of some blocks is done with them. Count one user less for each; a block "
            "without users goes back to the free ones. Refuse to take away a user who is not "
            "there, and then release nothing. The counts are in the list `self._ref_counts`, the "
            "free blocks in the deque `self.free_block_list`, which `allocate` takes from the "
            "left; `self.ref_count(block)` checks the number before it looks."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "Look at everything first, change after that. A call that turns out wrong halfway "
            "has already done half of the harm.",
            "At every moment a block is in free_block_list exactly once if its count is 0, and "
            "not at all if it is positive. No count is ever negative. A block that occurs twice "
            "in `blocks` needs two users.",
            "Make `blocks` a list. Then two loops:\n"
            "    for block, times in Counter(blocks).items():   # raise if there are fewer users\n"
            "    for block in blocks:                           # count down; at 0, append\n"
            "(`from collections import Counter` is at the top of your file.)",
        ),
        proves="In 600 random steps the counts and the free blocks were those of an oracle.",
        check=check_release,
        picture=draw_release,
        part="block_pool",
    ),
    Exercise(
        id="03.3",
        notebook=NOTEBOOK,
        slug="append_tokens",
        title="Grow a request, copy-on-write",
        target="yaie.engine.kv_cache:KVCacheManager.append_tokens",
        task=(
            "A request is about to compute more tokens. Make room for their keys and values and "
            "return their slots. Take new blocks where the last one is full. If the new tokens go "
            "into a last block that a fork uses as well, copy that block first, and write into "
            "the copy. You have `self._table(request_id)` (the table; KeyError if there is none), "
            "`self._copy_block(source, target)`, `self.slot_mapping(request_id, start, end)`, and "
            "the pool."
        ),
        difficulty=3,
        minutes=15,
        hints=(
            "Two questions decide everything. How many blocks does the longer request need, more "
            "than it has? And will the first new token be written into a block that somebody else "
            "reads?",
            "A block with more than one user is never written. Only the last block can be partly "
            "filled, so at most one block is copied. The copy is one more block to ask the pool "
            "for: ask once for all of them, so that a refusal changes nothing.",
            "The shape of it:\n"
            "    writes_into_tail = ...           # new tokens, and the last block is not full\n"
            "    copy_tail = writes_into_tail and ...  # its block has more than one user\n"
            "    new_blocks = self.pool.allocate(missing + copy_tail)\n"
            "    if copy_tail:                    # take one of them, copy, change the table's\n"
            "        ...                          # last entry, release the old block\n"
            "Then extend the table, set the length, and return the slots from the old length to "
            "the new one.",
        ),
        proves=(
            "In 450 random steps of growing, forking and freeing, every request read back its own "
            "tokens, and no block leaked."
        ),
        check=check_append_tokens,
        picture=draw_append_tokens,
        part="kv_cache",
    ),
    Exercise(
        id="03.4",
        notebook=NOTEBOOK,
        slug="slot_mapping",
        title="Say where each token lies",
        target="yaie.engine.kv_cache:KVCacheManager.slot_mapping",
        task=(
            "A kernel that writes keys and values knows nothing of requests: it wants one number "
            "for each token, its slot in the pool seen as one long row. Translate the tokens "
            "`start` to `end` of a request into slots, through its block table. Refuse tokens that "
            "the request does not have."
        ),
        difficulty=1,
        minutes=8,
        hints=(
            "This is what an operating system does with an address: the upper part picks the page "
            "in a table, the lower part stays.",
            "Token i is in the table's entry number i // block_size, at offset i % block_size. "
            "Both count from the beginning of the request, wherever `start` is.",
            "Take the table by `self._table(request_id)`. Raise ValueError unless\n"
            "    0 <= start <= end <= self.lengths[request_id]\n"
            "and return a list with, for each i from start to end,\n"
            "    (block of i) * block_size + (offset of i)",
        ),
        proves="It agrees with slots written out one by one for 208 ranges and four block sizes.",
        check=check_slot_mapping,
        picture=draw_slot_mapping,
        part="kv_cache",
    ),
]
