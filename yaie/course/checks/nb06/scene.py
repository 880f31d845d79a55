"""Steps of the reference scheduler, to set the scene of a check with."""

from __future__ import annotations

from typing import Any

from yaie.course.lessons.simulate import Simulation


def step_by_reference(simulation: Simulation) -> Any:
    """Schedule and compute one step, by the reference's rules."""
    from yaie.engine.scheduler import Scheduler

    step = Scheduler.schedule(simulation.scheduler)
    simulation.compute(step)
    return step
