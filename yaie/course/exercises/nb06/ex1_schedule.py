"""06.1: who computes how many tokens in the next step, beside explicit steps and invariants."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import pictures
from yaie.course.exercises.nb06.scene import names, observe_trace, step_by_reference
from yaie.course.lessons.simulate import Simulation, counts
from yaie.engine.scheduler import Step

FIRST = "The decoding request gets its one token first; the prompt takes what is left of 16."
UNDERWAY = "A prompt under way holds blocks already, so it is finished before others begin."
SIZE = "A chunk takes at most its size, and leaves the rest of the budget to the next prompt."
WHOLE = "Without chunks a prompt that exceeds the budget is the only prompt of its step."
CUT = {"enable_chunked_prefill": False}
FULL = {"enable_prefix_caching": False}


def cases() -> Iterator[Case]:
    short, big = ("add", "short", 3), ("add", "big", 40)
    yield case("one request decodes and a prompt of 40 waits", [short, "step", big],
               [{"short": 1, "big": 15}], FIRST)  # fmt: skip
    yield case("a prompt of 40 waits", [("add", "a", 40)], [{"a": 16}, {"a": 16}, {"a": 8}],
               "A prompt under way goes on until it is computed.")  # fmt: skip
    yield case("one request decodes and a prompt of 40 is under way", [short, big, "step"],
               [{"short": 1, "big": 15}], FIRST)  # fmt: skip
    yield case("8 tokens of a prompt are left and a prompt of 12 waits",
               [("add", "old", 24), "step", ("add", "new", 12)],
               [{"old": 8, "new": 8}], UNDERWAY)  # fmt: skip
    yield case("one request decodes, and its two blocks are full", [("add", "a", 8), "step"],
               [{"a": 1}], "Its ninth token needs a slot before it is computed.")  # fmt: skip
    yield case("the pool is full: for a block, `grow` preempts c, whose prompt is under way",
               [("add", "a", 8), ("add", "b", 4), ("add", "c", 8), "step"], [{"a": 1, "b": 1}],
               "c lost its blocks in this step.", num_blocks=5, **FULL)  # fmt: skip
    yield case("the pool is full: for a block, `grow` preempts b, which decodes",
               [("add", "a", 8), ("add", "b", 8), "step"], [{"a": 1}],
               "b lost its blocks in this step.", num_blocks=4, **FULL)  # fmt: skip
    yield case("the pool is full: for a block, `grow` preempts the request that asks for it",
               [("add", "a", 7), ("add", "b", 7), "step", "step", "turn"], [{"b": 2}],
               "a lost its blocks in this step.", num_blocks=4, **FULL)  # fmt: skip
    yield case("prompts of 10, 7 and 7 tokens run, without chunked prefill, and the first is done",
               [("add", "a", 10), ("add", "b", 7), ("add", "c", 7), "step"],
               [{"a": 1, "b": 7, "c": 7}], "Of 16 tokens, 15 are left: enough for both prompts.",
               enable_chunked_prefill=False)  # fmt: skip
    yield case("prompts of 13, 3 and 9 tokens wait, and a chunk has at most 5",
               [("add", "a", 13), ("add", "b", 3), ("add", "c", 9)],
               [{"a": 5, "b": 3, "c": 5}, {"b": 1, "a": 5, "c": 4}, {"b": 1, "c": 1, "a": 3}],
               SIZE, chunked_prefill_size=5)  # fmt: skip
    yield case("three prompts of 9 tokens wait, and a chunk has at most 6",
               [("add", name, 9) for name in "abc"],
               [{"a": 6, "b": 6, "c": 4}, {"a": 3, "b": 3, "c": 5}], SIZE,
               chunked_prefill_size=6)  # fmt: skip
    yield case("a request of 6 tokens was preempted after 5 generated ones",
               [("add", "a", 6), ("generated", "a", 5)], [{"a": 11}],
               "None of its 11 tokens has keys and values.")  # fmt: skip
    yield case(
        "a prompt of 40 and one of 4 wait, without chunked prefill",
        [("add", "a", 40), ("add", "b", 4)],
        [{"a": 40}, {"a": 1, "b": 4}],
        WHOLE,
        **CUT,
    )
    yield case(
        "one request decodes and a prompt of 40 waits, without chunked prefill",
        [short, "step", big],
        [{"short": 1, "big": 40}],
        WHOLE,
        **CUT,
    )
    yield case(
        "one request decodes and prompts of 6, 9 and 2 wait, without chunked prefill",
        [short, "step", ("add", "a", 6), ("add", "b", 9), ("add", "c", 2)],
        [{"short": 1, "a": 6, "b": 9}, {"short": 1, "a": 1, "b": 1, "c": 2}],
        "Of 16 tokens, 15 are left: exactly enough for a and b, and c waits.",
        **CUT,
    )
    yield case(
        "one request decodes and prompts of 8 and 8 wait, without chunked prefill",
        [short, "step", ("add", "a", 8), ("add", "b", 8)],
        [{"short": 1, "a": 8}, {"short": 1, "a": 1, "b": 8}],
        "Of 16 tokens, 7 are left beside the first two: b does not fit.",
        **CUT,
    )
    yield case("a prompt of 12 waits, without chunked prefill, and a chunk has at most 5",
               [("add", "a", 12)], [{"a": 12}], "Without chunked prefill there are no chunks.",
               chunked_prefill_size=5, **CUT)  # fmt: skip
    generator = random.Random(0)
    for _ in range(12):
        budget, size = generator.choice([8, 11, 32]), generator.choice([None, 4, 7])
        lengths = [generator.randrange(1, 30) for _ in range(10)]
        options = {"max_num_batched_tokens": budget, "chunked_prefill_size": size}
        yield Case(in_words, trace=lengths, options={"num_blocks": 16, **options})


def case(name: str, work: list, want: list[dict], because: str, **options: Any) -> Case:
    return Case(name, work=work, want=want, because=because, options=options)


def in_words(case: Case) -> str:
    budget, size = (case.options[x] for x in ("max_num_batched_tokens", "chunked_prefill_size"))
    chunk = f", chunks of {size}" if size else ""
    return f"prompts of {case.trace} tokens, 6 to generate each, and a budget of {budget}{chunk}"


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene = Simulation(scheduler_class, **case.options)
    if case.trace is not None:
        most = scene.scheduler.max_num_batched_tokens
        observe_trace(see, scene, case.trace, lambda: observe_schedule(see, scene, most))
        return
    for action in case.work:
        if action == "step":
            step_by_reference(scene)
        elif action == "turn":
            admit_a_last(scene)
        elif action[0] == "generated":
            add_generated(scene, *action[1:])
        else:
            scene.add(*action[1:])
    for want in case.want:
        step = observe_schedule(see, scene, max(16, sum(want.values())))
        got = counts(step)
        see.equal("the number of tokens per request", got, want, case.because)
        see.equal("the order of the batch", list(got), list(want), "Decoding requests come first.")
        see.stop_if_wrong()
        scene.compute(step)


def admit_a_last(scene: Simulation) -> None:
    """As if a had been admitted after b, so that a is the victim if it needs a block."""
    scene.scheduler.running.reverse()
    scene.scheduler.running[0].num_computed_tokens -= 1  # and b has a slot for its token
    scene.kv.lengths["b"] = 9


def add_generated(scene: Simulation, name: str, number: int) -> None:
    """As if a waiting request had been preempted after this many generated tokens."""
    request = scene.requests[name]
    request.token_ids += [scene.new_token() for _ in range(number)]
    request.metrics.num_preemptions = 1


def observe_schedule(see: Observer, scene: Simulation, most: int) -> Any:
    """Call `schedule`, and note what holds of every step, of at most `most` tokens."""
    scheduler = scene.scheduler
    decoding = names(r for r in scheduler.running if r.is_decoding)
    admissions: list[list[str]] = []

    def admit(step: Any) -> None:
        admissions.append(names(step.preempted))
        type(scheduler).admit(scheduler, step)

    scheduler.admit = admit
    with see.call("schedule()"):
        step = scheduler.schedule()
    del scheduler.admit
    see.kind("schedule()", step, Step)
    lost = [r.request_id for r in step.scheduled if r.request_id not in scene.kv.block_tables]
    added = names(step.scheduled)
    twice = sorted({name for name in added if added.count(name) > 1})
    see.equal("the list of requests added to the step twice", twice, [], "Add each one once.")
    because = "A request without blocks has no place for its tokens."
    see.equal("the list of requests in the step that were preempted", lost, [], because)
    left = [
        name for name in decoding if name not in [*names(step.scheduled), *names(step.preempted)]
    ]
    because = "Each request that decodes gets one token in every step."
    see.equal("the list of decoding requests that are not in the step", left, [], because)
    see.at_most("the number of tokens in the step", step.total_tokens, most, "That is the budget.")
    none = [name for name, number in step.num_tokens.items() if number < 1]
    see.equal("the list of requests without a token in the step", none, [], "Add them later.")
    because = "A token needs a slot before it is computed."
    without = [
        r.request_id
        for r in scheduler.running
        if scene.kv.lengths.get(r.request_id, 0) < len(r.token_ids)
    ]
    see.equal("the list of running requests with a token that has no slot", without, [], because)
    late = [preempted for preempted in admissions if preempted]
    because = "No block was free for those that run, so no request is admitted."
    see.equal("the list of preemptions before admit was called", late, [], because)
    return step


draw = pictures.draw_work
