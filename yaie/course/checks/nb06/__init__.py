"""Exercises of notebook 06: the scheduler's step, admission, preemption and ending."""

from __future__ import annotations

from yaie.course.checks.nb06.leave import check_finish, check_preempt
from yaie.course.checks.nb06.pictures import draw_admission, draw_preemption, draw_work
from yaie.course.checks.nb06.schedule import check_schedule
from yaie.course.checks.nb06.start import check_start
from yaie.course.core.manifest import Exercise

NOTEBOOK = "06_scheduling"

EXERCISES = [
    Exercise(
        id="06.1",
        notebook=NOTEBOOK,
        slug="schedule",
        title="Put one step together",
        target="yaie.engine.scheduler:Scheduler.schedule",
        task=(
            "Decide who computes how many tokens in the next step: first a token for everyone who "
            "decodes, then the prompts under way, then new requests if nobody had to be "
            "preempted. `grow`, `_add_prefill` and `admit` do the parts; the order is yours."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Somebody is watching the tokens of a request that decodes; nobody has seen anything "
            "yet of one whose prompt is still being read. And the first needs one token of the "
            "budget, the second as many as it can get. So who goes first?",
            "Every token in the step has a slot in the cache: `grow` makes it, or returns False "
            "because the request itself was preempted. While it looks for a block, `grow` may "
            "preempt any running request, also one that you have in a list already. So a request "
            "whose `status` is no longer RUNNING must not be added.",
            "Make the `Step`. Sort `self.running` into two lists by `is_decoding`, before anything "
            "changes. For each of the first list:\n\n"
            "    if it is still running, and self.grow(...): step.add(it, 1)\n\n"
            "For each of the second that is still running, `self._add_prefill(it, step)`. Then "
            "`self.admit(step)`, unless `step.preempted` has somebody in it. Return the step.",
        ),
        proves="Nobody who decodes waits, no budget is exceeded, and random work leaves no block.",
        check=check_schedule,
        picture=draw_work,
        part="scheduler",
    ),
    Exercise(
        id="06.2",
        notebook=NOTEBOOK,
        slug="start",
        title="Admit a request, if there are blocks for it",
        target="yaie.engine.scheduler:Scheduler.start",
        task=(
            "Find what the cache has of a waiting request, make room for the rest, and let it "
            "run. If there is no room, leave everything as it was and return False."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "What the cache already holds is shared; only the rest needs blocks. Whether there "
            "are enough, `cache.make_room` knows: it evicts what nobody uses, or returns False.",
            "The prefix that you found is unlocked, so to `make_room` it looks like memory to "
            "win. Between the match and the count, it has to be locked. And whoever locks must "
            "unlock on the way out that leads to False.",
            "Match (`self.cache.match`; with `enable_prefix_caching` off, match the empty list). "
            "Lock the node. Blocks missing: `blocks_needed` of all tokens, less `found.values`. "
            "If `make_room` refuses: unlock, return False. Otherwise `self.kv.allocate_blocks` "
            "with the found blocks as prefix; set `node`, `num_computed_tokens`, `status`, and "
            "`metrics.num_cached_tokens` if it was never preempted; append to `self.running`.",
        ),
        proves="A prefix is shared and locked before blocks are counted, and a refusal is clean.",
        check=check_start,
        picture=draw_admission,
        part="scheduler",
    ),
    Exercise(
        id="06.3",
        notebook=NOTEBOOK,
        slug="preempt",
        title="Preempt a request without losing its tokens",
        target="yaie.engine.scheduler:Scheduler.preempt",
        task=(
            "Take a running request's blocks away, and put it where it is admitted again as soon "
            "as there is room. What it has generated stays."
        ),
        difficulty=1,
        minutes=8,
        hints=(
            "Keys and values can be computed again from the tokens. The tokens themselves cannot "
            "be computed again: the user has seen them, and a sampler would draw others.",
            "Afterwards the request holds no block, no lock and no place among `running`; it "
            "counts as computed not at all; and it is older than everyone in `waiting`.",
            "`self._leave(request)` gives up blocks, lock and place. Then four lines: computed "
            "tokens to 0, one preemption more in `metrics`, the status, and `waiting.appendleft`.",
        ),
        proves="Tokens survive, blocks return, and the request goes on where it was.",
        check=check_preempt,
        picture=draw_preemption,
        part="scheduler",
    ),
    Exercise(
        id="06.4",
        notebook=NOTEBOOK,
        slug="finish",
        title="End a request, wherever it is",
        target="yaie.engine.scheduler:Scheduler.finish",
        task=(
            "A request has its last token, or its user went away. It may be running or still "
            "waiting. Give back what it holds, and record why it ended."
        ),
        difficulty=1,
        minutes=6,
        hints=(
            "A running request holds blocks, a lock and a seat. A waiting one holds a place in "
            "the queue, and nothing else.",
            "After any workload, every block is free or in the cache without a lock. A request "
            "that ends without giving its blocks back breaks that for good, a few blocks each.",
            "If it is RUNNING, `self._leave(request)`; if it is WAITING, remove it from "
            "`self.waiting`. Then set `status` and `finish_reason`.",
        ),
        proves="Blocks and locks return, the cache keeps what was computed, and queues are clean.",
        check=check_finish,
        part="scheduler",
    ),
]
