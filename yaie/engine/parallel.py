"""An engine whose model is split among processes: every rank runs the same engine.

Rank 0 tells the others which requests came and when a step begins, and nothing else. What they
schedule, which blocks they take and which prefixes they find follows from that, as the scheduler
does not look at a clock; and as every rank ends a step with the same logits, all of them draw the
same tokens. Only the layers of the model talk to each other (`yaie.model.parallel`). SGLang's
tensor parallelism works like this as well.

Between processes on a CPU it is gloo, between GPUs NCCL, whose kernels are captured in CUDA graphs
with all others. Two H200 gave the tokens of one, with graphs and without, and a rank that died was
noticed in 0.25 s (`two_gpus.py` among the author's tools measures it).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

from yaie.engine.checks import check_count
from yaie.engine.engine import Engine
from yaie.engine.ranks import RankFailed, Ranks, before_leaving
from yaie.engine.request import RequestOutput
from yaie.engine.sampling import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.parallel import own_shard
from yaie.model.shards import WHOLE, Shard

STEP_LIMIT = 300.0  # seconds that ranks wait for each other; kernels may have to be compiled
PATIENCE = 2.0  # seconds in which a rank that failed can say why


class ParallelEngine(Engine):
    """Rank 0's engine: what is asked of it, the others do as well.

    If a step fails or is interrupted, the ranks may have come to different points, so all of them
    end: the requests can still be aborted, and a new engine has to be made.
    """

    def __init__(self, ranks: Ranks, *arguments: Any, **options: Any) -> None:
        self.ranks = ranks
        super().__init__(*arguments, **options)
        before_leaving(self.runner.forget_graphs)

    def add_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        namespace: str = "",
    ) -> str:
        """As `Engine.add_request`. A request without a seed is given one, the same on all ranks."""
        self.ranks.check()
        self.check_params(params)
        params = params or SamplingParams()
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        request_id = super().add_request(prompt_token_ids, params, request_id, namespace)
        prompt = list(prompt_token_ids)
        try:
            self.ranks.post(mirror, "add_request", prompt, params, request_id, namespace)
        except BaseException:  # whoever asked never learns its id, to abort it by
            super().abort(request_id)
            raise
        return request_id

    def abort(self, request_id: str) -> RequestOutput | None:
        """As `Engine.abort`, also when the other ranks have ended."""
        if request_id in self.requests and not self._in_step:
            with suppress(RankFailed):
                self.ranks.post(mirror, "abort", request_id)
        return super().abort(request_id)

    def reset_prefix_cache(self) -> int:
        """As `Engine.reset_prefix_cache`."""
        self.ranks.post(mirror, "reset_prefix_cache")
        return super().reset_prefix_cache()

    @property
    def is_usable(self) -> bool:
        """As `Engine.is_usable`: not without the other ranks."""
        return self.ranks.is_open

    def step(self) -> list[RequestOutput]:
        """As `Engine.step`.

        Raises:
            RankFailed: another rank has failed. All have ended.
        """
        self.check_idle()  # which is no failure of a step
        with end_on_error(self.ranks):
            outputs = super().step()
            self.ranks.check()
        return outputs

    def _begin_step(self) -> None:
        """From here on a request that is aborted ends with the step, on all ranks: so the message
        that begins it comes after the messages of what was aborted before."""
        super()._begin_step()
        self.ranks.post(mirror, "step")


class RankEngine(Engine):
    """The engine of a process that is a rank beside others: every rank asks for the same, and draws
    for itself, which gives the same tokens only from the same seed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        before_leaving(self.runner.forget_graphs)

    def check_params(self, params: SamplingParams | None, name: str = "params") -> None:
        """As `Engine.check_params`; what is drawn has to have a seed."""
        super().check_params(params, name)
        params = params or SamplingParams()
        if params.temperature > 0 and params.seed is None:
            raise ValueError(
                f"{name}.seed must be given where every rank of a group makes its own LLM and "
                f"temperature is {params.temperature}: else each would draw other tokens"
            )


# ------------------------------------------------------------------------ the group


@contextmanager
def together(
    size: int, config: ModelConfig, device: str, arguments: dict[str, Any]
) -> Iterator[tuple[Ranks | None, Shard]]:
    """Have `size` ranks, of which this process is one; the others make an `LLM(**arguments)` each.

    Yields the ranks that were started, to be closed in the end, and the part of the model that
    this process holds. No ranks are started, and None is yielded, if `size` is 1, or if this
    process is one of a group of that size already: it was started as one here, or by torchrun. If
    what follows fails, all that were started end.

    Raises:
        ValueError: the model cannot be split like that, or there are not so many GPUs.
    """
    check_count("tensor_parallel_size", size)
    Shard(0, size).check(config)
    if size == 1:
        yield None, WHOLE
        return
    shard = own_shard()
    if shard.size > 1 and not Ranks.joined_here:
        if shard.size != size:
            raise ValueError(
                f"tensor_parallel_size must be {shard.size}, since this process is one of so many "
                f"ranks already, got {size}"
            )
        yield None, shard
        return
    _check_gpus(size, device)
    ranks = Ranks(size, device=device.partition(":")[0], joined=True, timeout=STEP_LIMIT)
    with end_on_error(ranks):
        # Every rank has a GPU of its own, and "cuda:0" is that of rank 0.
        ranks.post(open_engine, arguments | {"device": device.partition(":")[0]})
        yield ranks, own_shard()


def _check_gpus(size: int, device: str) -> None:
    if device == "cpu":
        return
    if device != "cuda:0":
        raise ValueError(
            'device must be "cuda:0", or "cuda" where that is the current one, if several GPUs '
            f'share a model, got "{device}"'
        )
    if torch.cuda.device_count() < size:
        raise ValueError(
            f"tensor_parallel_size must be at most {torch.cuda.device_count()}, the number of "
            f"GPUs here, got {size}"
        )


@contextmanager
def end_on_error(ranks: Ranks) -> Iterator[None]:
    """End all ranks if what is done here fails. If that is because another rank has failed, its
    error is raised."""
    try:
        yield
    except Exception as error:
        try:
            ranks.check(PATIENCE)
        except RankFailed as failed:
            if str(error) not in str(failed):  # else it is the same one, of all ranks
                raise failed from error
        ranks.close()
        raise
    except BaseException:  # an interrupt
        ranks.close()
        raise


# ------------------------------------------------------------------------ in the other ranks

_engine: Engine | None = None


def open_engine(arguments: dict[str, Any]) -> None:
    """Make this rank's engine, as rank 0 makes its own."""
    global _engine
    from yaie.engine.llm import LLM  # which imports this module

    _engine = LLM(**arguments).engine


def mirror(name: str, *arguments: Any) -> None:
    """Let this rank's engine do what rank 0's does."""
    getattr(_engine, name)(*arguments)
