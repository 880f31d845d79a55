"""The pictures of notebook 06's exercises: schedules, drawn by running the learner's scheduler."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb06.scene import Scene, counts

OUTPUTS = 6  # tokens that each request of a picture generates


def draw_work(scheduler_class: type) -> Any:
    """Two short prompts and a long one between them."""
    scene = Scene(scheduler_class, max_num_batched_tokens=8)
    return draw_run(scene, {"a": (0, 5), "b": (0, 18), "c": (2, 4)})


def draw_admission(scheduler_class: type) -> Any:
    """Four requests and room for two of them."""
    scene = Scene(scheduler_class, num_blocks=7, enable_prefix_caching=False)
    return draw_run(scene, {"a": (0, 6), "b": (0, 6), "c": (0, 6), "d": (0, 6)})


def draw_preemption(scheduler_class: type) -> Any:
    """Requests that outgrow the pool."""
    scene = Scene(scheduler_class, num_blocks=5, enable_prefix_caching=False)
    return draw_run(scene, {"a": (0, 6), "b": (0, 6), "c": (1, 4)})


def draw_run(scene: Scene, arrivals: dict[str, tuple[int, int]]) -> Any:
    """Run requests that arrive at a step with a prompt of some length, and draw the schedule."""
    from yaie.viz import draw_schedule

    steps = record_run(scene, arrivals)
    return draw_schedule(
        steps,
        token_budget=scene.scheduler.max_num_batched_tokens,
        arrivals={name: step for name, (step, _) in arrivals.items()},
    )


def record_run(scene: Scene, arrivals: dict[str, tuple[int, int]], limit: int = 60) -> list[Any]:
    """Step until every request has generated `OUTPUTS` tokens; returns the steps for pictures."""
    from yaie import viz

    steps = []
    while len(steps) < limit:
        for name, (at, num_tokens) in arrivals.items():
            if at == len(steps):
                scene.request(name, num_tokens)
        if not scene.scheduler.has_work:
            break
        decoding = {r.request_id for r in scene.scheduler.running if r.is_decoding}
        step = scene.scheduler.schedule()
        work = tuple(
            (name, "decode" if name in decoding else "prefill", count)
            for name, count in counts(step).items()
        )
        scene.compute(step)
        finished = [r for r in scene.scheduler.running if r.num_output_tokens >= OUTPUTS]
        for request in finished:
            scene.scheduler.finish(request, "length")
        steps.append(
            viz.Step(
                work=work,
                preempted=tuple(r.request_id for r in step.preempted),
                finished=tuple(r.request_id for r in finished),
                free_blocks=scene.kv.pool.num_free,
            )
        )
    return steps
