"""From a scheduled step to logits and tokens.

A step on a GPU: the host writes the step's inputs into pinned memory, and one copy takes them to
the GPU; the model runs over the paged cache; the operator `sample` chooses a token for each row of
logits; one copy brings the tokens back, and the host does not wait for it. The tokens also stay on
the GPU, in front of the inputs, so that the next step can be launched before the host knows them.
Most steps are replayed from a CUDA graph. On a CPU the same code runs, with nothing to copy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from yaie.engine.config import EngineConfig
from yaie.engine.graphs import Graph, capture, shapes
from yaie.engine.inputs import Inputs, LaidOut, Shape, shape_of, write_batch
from yaie.engine.kv_cache import KVCacheManager, blocks_needed
from yaie.engine.logprobs import score_prompts
from yaie.engine.request import Request
from yaie.engine.scheduler import Step
from yaie.model.batch import Batch
from yaie.model.llama import Llama
from yaie.ops import operators

MOST_SHAPES = 64  # how many shapes' views of the memory are kept

# From logits in float32 to tokens, and the log-probabilities that some of the requests ask for.
Choose = Callable[[torch.Tensor], tuple[torch.Tensor, Mapping[Request, torch.Tensor]]]


@dataclass(eq=False)
class Launched:
    """A step that was launched, and whose tokens have not been read.

    Attributes:
        requests: those that get a token, in the order of the rows.
        may_overlap: whether the next step can be launched before the tokens are read: they are in
            the device's memory, and the host computes nothing from the logits.
        fetched, done: see `StagingBuffer.fetch`.
        logprobs: of the whole vocabulary, for the requests that ask for some.
    """

    requests: Sequence[Request]
    may_overlap: bool
    fetched: torch.Tensor
    done: torch.cuda.Event | None
    logprobs: Mapping[Request, torch.Tensor]

    def tokens(self) -> list[int]:
        """Wait for the tokens; -1 where the logits allowed none."""
        if self.done is not None:
            self.done.synchronize()
        return self.fetched.tolist()


class Runner:
    """Runs the model over the paged cache, for requests of up to `max_model_len` tokens."""

    def __init__(
        self, model: Llama, kv: KVCacheManager, config: EngineConfig, max_model_len: int
    ) -> None:
        self.model, self.kv = model, kv
        self.max_num_seqs = max_num_seqs = config.max_num_seqs
        self.max_blocks = max_blocks = blocks_needed(max_model_len, kv.block_size)
        max_num_tokens = max_num_seqs + max(config.max_num_batched_tokens, max_model_len)
        device = kv.key_pools[0].device
        most_rows = max_num_seqs + max_num_tokens  # if all are of prompts to be scored
        largest = Shape(max_num_tokens, 2 * max_num_seqs + 1, most_rows, max_blocks, 0)
        size = 8 * max_num_seqs + largest.nbytes
        memory = torch.zeros(size, dtype=torch.uint8, device=device)  # see `inputs`
        sampled, fields = memory.tensor_split([8 * max_num_seqs])
        self._sampled = sampled.view(torch.int64)
        if device.type == "cuda":
            self._staging = [PinnedStagingBuffer(fields, max_num_seqs) for _ in range(2)]
        else:
            self._staging = [StagingBuffer(fields)]
        self._inputs = lru_cache(MOST_SHAPES)(lambda shape: Inputs(shape, memory, max_num_seqs))
        self._laid_out: LaidOut | None = None
        self.graphs: list[Graph] = []  # the smallest first

    def capture(self, most_tokens: int) -> None:
        """Capture steps of up to `most_tokens` tokens as CUDA graphs."""
        sizes = shapes(self.max_num_seqs, self.max_blocks, self.kv.block_size, most_tokens)
        self.graphs = capture(self, sizes)

    def forget_graphs(self) -> None:
        """Free the CUDA graphs: from here on, every kernel is launched by itself."""
        for graph in self.graphs:
            graph.graph.reset()
        self.graphs = []

    def warm(self) -> None:
        """Compute a token into block 0, which is free yet: the disk is read for mapped weights."""
        if self.model.step is not None:
            batch = Batch.of_prompt(torch.zeros(1, dtype=torch.int64), self.kv.block_size)
            self.model(batch, self.kv.key_pools, self.kv.value_pools)

    @torch.inference_mode()
    def run(
        self, step: Step, ready: Sequence[Request], samples: bool, shape: Shape
    ) -> torch.Tensor:
        """Compute the tokens of a step of this shape, and store their keys and values. Requests
        that ask for the log-probabilities of their prompts get them.

        Returns:
            Logits for the next token of each request in `ready`, `[ready, vocabulary]`; see
            `forward`.
        """
        self._lay_out(shape, step, ready, samples)
        hidden = self._hidden()
        if shape.rows > len(ready):
            score_prompts(step, hidden[len(ready) :], self.model.logits)
        return self.model.lm_head(hidden[: len(ready)])

    def forward(self) -> torch.Tensor:
        """The logits of what is laid out, in the dtype in which the last product leaves them."""
        return self.model.lm_head(self._hidden())

    def _hidden(self) -> torch.Tensor:
        return self.model.hidden(self.inputs.batch(), self.kv.key_pools, self.kv.value_pools)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Choose a token for each row that `run` returned, int64 on the device; -1 where the logits
        allow none. In the memory in front of the inputs, where the next step may find them, 0
        stands for -1, since the model needs a token.
        """
        backend = self.model.backends["sample"]
        arguments = (field[: len(logits)] for field in self.inputs.sampling())
        tokens = operators.sample(logits, *arguments, backend=backend)
        torch.clamp(tokens, min=0, out=self._sampled[: len(tokens)])
        return tokens

    @torch.inference_mode()
    def launch(
        self, step: Step, ready: Sequence[Request], samples: bool, choose: Choose | None = None
    ) -> Launched:
        """Compute the tokens of a step and choose the next ones, without waiting for them.

        Args:
            ready: the requests whose tokens are all computed with this step.
            samples: whether `sample` chooses the tokens: otherwise no random numbers are drawn.
            choose: called in place of `sample`. It is Python, which no graph can repeat, so then
                every kernel is launched by itself.
        """
        shape = shape_of(step, ready, self.kv)
        may_overlap = choose is None and shape.rows == len(ready)
        graphs = self.graphs if may_overlap else ()
        graph = next((graph for graph in graphs if graph.shape.holds(shape)), None)
        tokens, logprobs = torch.empty(0, dtype=torch.int64), {}
        if graph is not None:
            self._lay_out(graph.shape, step, ready, samples)
            tokens = graph.replay()[: len(ready)]
        else:
            logits = self.run(step, ready, samples, shape)
            if ready and choose is not None:
                tokens, logprobs = choose(logits.float())
            elif ready:
                tokens = self.sample(logits)
        launched = Launched(ready, may_overlap, *self._staging[0].fetch(tokens), logprobs)
        self._staging.reverse()  # not before: a retry must keep the other's unread tokens
        return launched

    def _lay_out(self, shape: Shape, step: Step, ready: Sequence[Request], samples: bool) -> None:
        """Write a step's inputs and bring them to the device."""
        fields = self._staging[0].open(shape)
        last, self._laid_out = self._laid_out, None  # in case it is interrupted
        requests = step, ready, self.kv, self.max_num_seqs
        self._laid_out = write_batch(fields, shape, *requests, last)
        if samples:
            drawn = fields["uniform"][: len(ready)]
            drawn[:] = [r.uniform() if r.params.temperature > 0 else 0.0 for r in ready]
        self._send(shape)

    def lay_out_padding(self, shape: Shape) -> None:
        """Write inputs of padding only, each context as long as one can be: what a graph is
        captured with."""
        fields = self._staging[0].open(shape)
        write_batch(fields, shape, Step(), [], self.kv, self.max_num_seqs)
        fields["context_lens"].fill(self.max_blocks * self.kv.block_size)
        tables = fields["block_tables"]
        tables[:] = np.arange(tables.size).reshape(tables.shape) % self.kv.pool.num_blocks
        self._send(shape)

    def _send(self, shape: Shape) -> None:
        self._staging[0].send(shape)
        self.inputs = self._inputs(shape)


class StagingBuffer:
    """Where the host writes the fields of a step. On a CPU the model reads the same memory."""

    def __init__(self, host: torch.Tensor) -> None:
        self.host = host
        self.fields = lru_cache(MOST_SHAPES)(
            lambda shape: {name: view.numpy() for name, view in shape.views(host).items()}
        )

    def open(self, shape: Shape) -> dict[str, np.ndarray]:
        """The fields of a step, to be written."""
        return self.fields(shape)

    def send(self, shape: Shape) -> None:
        """Bring what was written to the device."""

    def fetch(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
        """Where the host finds the tokens, and the event after which they are there: None if they
        are there already, or if reading them waits."""
        return tokens, None


class PinnedStagingBuffer(StagingBuffer):
    """Pinned memory, which a GPU copies from and to while the host goes on; the model reads the
    fields from `device`. Steps alternate between two of them: the host writes one step's inputs
    while the GPU has yet to read those of the step before."""

    def __init__(self, device: torch.Tensor, num_tokens: int) -> None:
        super().__init__(torch.zeros(device.shape, dtype=torch.uint8, pin_memory=True))
        self.device = device
        self._tokens = torch.zeros(num_tokens, dtype=torch.int64, pin_memory=True)
        self._sent, self._fetched = torch.cuda.Event(), torch.cuda.Event()

    def open(self, shape: Shape) -> dict[str, np.ndarray]:
        self._sent.synchronize()
        return super().open(shape)

    def send(self, shape: Shape) -> None:
        self.device[: shape.nbytes].copy_(self.host[: shape.nbytes], non_blocking=True)
        self._sent.record()

    def fetch(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event]:
        fetched = self._tokens[: len(tokens)]
        fetched.copy_(tokens, non_blocking=True)
        self._fetched.record()
        return fetched, self._fetched
