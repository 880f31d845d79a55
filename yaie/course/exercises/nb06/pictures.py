"""The pictures of notebook 06's exercises: schedules, drawn by running the learner's scheduler."""

from typing import Any

from yaie.course import viz
from yaie.course.lessons.simulate import Arrival, Simulation


def draw_work(scheduler_class: type) -> Any:
    """Two short prompts and a long one between them."""
    simulation = Simulation(scheduler_class, max_num_batched_tokens=8)
    return draw_run(simulation, a=Arrival(0, 5, 6), b=Arrival(0, 18, 6), c=Arrival(2, 4, 6))


def draw_admission(scheduler_class: type) -> Any:
    """Four requests and room for two of them."""
    simulation = Simulation(scheduler_class, num_blocks=7, enable_prefix_caching=False)
    return draw_run(simulation, **{name: Arrival(0, 6, 6) for name in "abcd"})


def draw_preemption(scheduler_class: type) -> Any:
    """Requests that outgrow the pool."""
    simulation = Simulation(scheduler_class, num_blocks=5, enable_prefix_caching=False)
    return draw_run(simulation, a=Arrival(0, 6, 6), b=Arrival(0, 6, 6), c=Arrival(1, 4, 6))


def draw_run(simulation: Simulation, **arrivals: Arrival) -> Any:
    """Run a simulation, and draw its schedule."""
    return viz.draw_schedule(
        simulation.run(arrivals, limit=60),
        token_budget=simulation.scheduler.max_num_batched_tokens,
        arrivals={name: arrival.step for name, arrival in arrivals.items()},
    )
