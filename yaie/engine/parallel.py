"""An engine whose model is split among processes: every rank runs the same engine.

Rank 0 sends the others each new request and the beginning of each step, and nothing else. Which
requests they schedule, which blocks they take and which prefixes they find follows from that, since
the scheduler does not look at a clock. Every rank ends a step with the same logits, so all of them
draw the same tokens. Only the layers of the model exchange tensors (`yaie.model.parallel`), by gloo
between processes on a CPU, by NCCL between GPUs. SGLang's tensor parallelism works the same way.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.parts import Exercises
from yaie.engine.ranks import RankFailed, Ranks, follow
from yaie.engine.request import Request, StepOutput
from yaie.engine.sending import check_launched, launched_ranks
from yaie.model.config import ModelConfig
from yaie.model.parallel import own_shard
from yaie.model.shards import WHOLE, Shard

STEP_LIMIT = 300.0  # seconds that ranks wait for each other; kernels may have to be compiled
PATIENCE = 2.0  # seconds in which a rank that failed can say why


class ParallelEngine(Engine):
    """Rank 0's engine: the other ranks repeat every call of it.

    If a step fails or is interrupted, the ranks may have come to different points, so all of them
    end: requests can still be aborted, but only a new engine can compute.
    """

    def __init__(self, ranks: Ranks, *arguments: Any, **options: Any) -> None:
        self.ranks = ranks
        super().__init__(*arguments, **options)

    def queue(self, request: Request) -> None:
        """As `Engine.queue`, on all ranks, which need the same seed to draw the same tokens."""
        self.ranks.check()
        if request.params.seed is None:
            request.params = replace(request.params, seed=secrets.randbits(63))
        super().queue(request)
        arguments = (request.prompt_token_ids, request.params, request.request_id)
        try:
            self.ranks.post(mirror, "add_request", *arguments, request.namespace)
        except BaseException:  # the caller takes it for refused, and does not abort it
            super()._finish(request, "abort")
            raise

    def _finish(self, request: Request, reason: str) -> str:
        """As `Engine._finish`. An abort is what the other ranks cannot find out by themselves."""
        if reason == "abort":
            with suppress(RankFailed):
                self.ranks.post(mirror, "abort", request.request_id)
        return super()._finish(request, reason)

    def close(self) -> None:
        """As `Engine.close`; the other ranks end."""
        super().close()
        self.ranks.close()

    def reset_prefix_cache(self) -> int:
        """As `Engine.reset_prefix_cache`."""
        self.check_idle()
        self.ranks.post(mirror, "reset_prefix_cache")
        return super().reset_prefix_cache()

    @property
    def is_usable(self) -> bool:
        """As `Engine.is_usable`: not without the other ranks."""
        return self.ranks.is_open

    def step(self) -> list[StepOutput]:
        """As `Engine.step`. Raises RankFailed if another rank has failed: then all have ended."""
        self.check_idle()  # which is no failure of a step
        with end_on_error(self.ranks):
            outputs = super().step()
            self.ranks.check()
        return outputs

    def _begin_step(self) -> None:
        """Only now tell the other ranks: messages of earlier aborts come before that of the step,
        and a request that is aborted from here on ends with the step, on all ranks."""
        super()._begin_step()
        self.ranks.post(mirror, "step")


@contextmanager
def together(
    model_config: ModelConfig,
    device: torch.device,
    model: Path,
    config: EngineConfig,
    exercises: Exercises,
) -> Iterator[tuple[Ranks | None, Shard]]:
    """Start the other ranks of `tensor_parallel_size`, which make the same engine.

    If torchrun has started that many processes, only rank 0's call returns; the others end with
    its engine. Yields the other ranks, to be closed in the end, and the part of the model that this
    process holds. The ranks are None if the size is 1, or if this process is one that was started
    here. If what follows fails, all ranks end.

    Args:
        device: of this process.
        model, config, exercises: what `start_engine` was called with.

    Raises ValueError if the model cannot be split like that, if there are too few GPUs, or if
    torchrun has started another number of processes.
    """
    size = config.tensor_parallel_size
    Shard(0, size).check(model_config)
    if size == 1:
        yield None, WHOLE
        return
    if Ranks.answering:
        yield None, own_shard()
        return
    check_launched(size)
    if launched_ranks() > 1 and os.environ["RANK"] != "0":
        follow(size, device.type, STEP_LIMIT)
    _check_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", size)), str(device))
    ranks = Ranks(size, device=device.type, joined=True, timeout=STEP_LIMIT)
    with end_on_error(ranks):
        # Every rank has a GPU of its own, and "cuda:0" is that of rank 0.
        ranks.post(open_engine, model, replace(config, device=device.type), exercises)
        yield ranks, own_shard()


def _check_gpus(size: int, device: str) -> None:
    if device == "cpu":
        return
    if device != "cuda:0":
        raise ValueError(
            'device must be "cuda:0", or "cuda" where that is the current one, if several GPUs '
            f'share a model, got "{device}"'
        )
    if (count := torch.cuda.device_count()) < size:
        most = f"{count}, the number of GPUs here"
        raise ValueError(f"tensor_parallel_size must be at most {most}, got {size}")


@contextmanager
def end_on_error(ranks: Ranks) -> Iterator[None]:
    """End all ranks if the block fails; if another rank failed first, raise its error."""
    try:
        yield
    except BaseException as error:
        try:
            if isinstance(error, Exception):  # not an interrupt
                ranks.check(PATIENCE)
        except RankFailed as failed:
            if str(error) not in str(failed):  # otherwise it is the same error, on all ranks
                raise failed from error
        ranks.close()
        raise


_engine: Engine | None = None  # of a rank other than 0


def open_engine(model: Path, config: EngineConfig, exercises: Exercises) -> None:
    """Make this rank's engine, as rank 0 makes its own."""
    global _engine
    from yaie.engine.start import start_engine  # which imports this module

    _engine = start_engine(model, config, exercises)


def mirror(name: str, *arguments: Any) -> None:
    """Let this rank's engine do what rank 0's does."""
    getattr(_engine, name)(*arguments)
