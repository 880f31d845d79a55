"""Flash attention for Hopper in three rungs; operands as for `yaie.ops.cuda.flash.launch`."""

from collections.abc import Callable
from typing import Any

from yaie.ops.cuda.flash import State
from yaie.ops.cuda.hopper import pingpong


def tma(*operands: Any) -> State:
    """TMA and wgmma, one after another."""
    return pingpong(*operands, file="flash/hopper/tma.cu")


def producer(*operands: Any) -> State:
    """One warp group loads, others compute."""
    return pingpong(*operands, file="flash/hopper/producer.cu")


RUNGS: dict[str, Callable[..., State]] = {f.__name__: f for f in (tma, producer, pingpong)}
