"""The engine as one object: give it prompts, get text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from yaie.engine.device import choose_device, choose_dtype, count_blocks, explain_shortage
from yaie.engine.engine import Engine
from yaie.engine.parallel import ParallelEngine, RankEngine, together
from yaie.engine.parts import Parts, learner_parts
from yaie.engine.request import Request, RequestOutput
from yaie.engine.sampling import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.llama import OPERATORS
from yaie.model.parallel import smallest
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model
from yaie.ops.registry import AUTO, choose, register

_number = count(1)  # of engines with learners' operators, for the names of these back ends
Prompt = str | Sequence[int]
Message = dict[str, str]


class LLM:
    """A language model, ready to answer. One thread at a time may use it.

    Args:
        model: the name of a model that `yaie pull` has fetched, or a folder in Hugging Face
            format.
        device: "cpu", "cuda" or "cuda:1"; "auto" takes what the environment variable YAIE_DEVICE
            names, else a GPU if there is one.
        dtype: "float32", "bfloat16" or "float16"; "auto" is float32 on a CPU, half precision on a
            GPU.
        block_size: tokens a KV block.
        num_blocks: blocks of the KV cache; by default as many as there is memory for.
        gpu_memory_utilization: the part of a GPU's memory that weights, activations and cache may
            take together; activations twice, as CUDA graphs keep their own.
        kv_cache_memory_bytes: memory for keys and values; by default 1 GiB on a CPU, and on a GPU
            what `gpu_memory_utilization` leaves.
        tensor_parallel_size: processes that share the model, each on a GPU of its own, or all on
            the CPU: see `yaie.engine.parallel`. Memory is that of each process.
        max_model_len: the most tokens of a request, prompt and output together; by default as many
            as the model was trained for, if the cache can hold them.
        enforce_eager: launch every kernel by itself, and capture no CUDA graphs.
        max_num_seqs, max_num_batched_tokens, enable_prefix_caching, enable_chunked_prefill,
            policy: see `Scheduler`.
        backend: who computes the operators: "auto", "reference", "triton", "cuda", or a mapping
            with a back end for some of them; see `yaie.ops.registry`.
        exercises: run the learner's solved exercises in place of the reference, and print whose
            code runs: True for all of them, or an id, or a list of ids. By default
            YAIE_USE_EXERCISES decides (1, true or yes).

    Raises:
        ValueError: an argument is out of range, or the model is not known.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = AUTO,
        dtype: str = AUTO,
        block_size: int = 16,
        num_blocks: int | None = None,
        gpu_memory_utilization: float = 0.9,
        kv_cache_memory_bytes: int | None = None,
        max_model_len: int | None = None,
        enforce_eager: bool = False,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        enable_prefix_caching: bool = True,
        enable_chunked_prefill: bool = True,
        policy: str = "fcfs",
        backend: str | Mapping[str, str] = AUTO,
        exercises: bool | str | Sequence[str] | None = None,
        tensor_parallel_size: int = 1,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name != "self"}
        if exercises is None:
            exercises = switch("YAIE_USE_EXERCISES")
        elif isinstance(exercises, str):
            exercises = [exercises]
        elif not isinstance(exercises, bool | Sequence):
            raise TypeError(f"exercises must be True, False or a list of ids, got {exercises!r}")
        ids = None if exercises is True else exercises
        parts = learner_parts(ids) if exercises else Parts()
        for line in parts.report:
            print(line)
        where = choose_device(device)
        folder = find_model(model)
        config = ModelConfig.from_folder(folder)
        with together(tensor_parallel_size, config, str(where), arguments) as (ranks, shard):
            self.tokenizer = Tokenizer(folder)
            backends = _with_exercises(backend, parts)
            with explain_shortage(
                f"the weights of {folder.name} do not fit {where}: take a smaller dtype or model"
            ):
                llama = load_model(folder, choose_dtype(dtype, where), where, backends, shard)
            if num_blocks is None:
                longest = max(
                    max_model_len or config.max_position_embeddings, max_num_batched_tokens
                )
                num_blocks = count_blocks(
                    llama,
                    block_size,
                    max_num_seqs,
                    max_num_batched_tokens if enable_chunked_prefill else longest,
                    gpu_memory_utilization,
                    kv_cache_memory_bytes,
                    enforce_eager,
                )
            num_blocks = smallest(num_blocks, shard, where)
            if ranks is not None:
                make = partial(ParallelEngine, ranks)
            else:
                make = Engine if shard.size == 1 else RankEngine
            self.engine = make(
                llama,
                self.tokenizer,
                num_blocks=num_blocks,
                block_size=block_size,
                parts=parts,
                max_model_len=max_model_len,
                enforce_eager=enforce_eager,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                enable_prefix_caching=enable_prefix_caching,
                enable_chunked_prefill=enable_chunked_prefill,
                policy=policy,
            )
        self._ranks = ranks
        self._is_closed = False

    def close(self) -> None:
        """Free the CUDA graphs, and end the other processes, if the model is shared among several.

        Then the LLM takes no prompt any more; close its open streams first. Weights and cache are
        freed with the LLM itself. A group of ranks that somebody else started can be ended only
        when this has been called.
        """
        self._is_closed = True
        self.engine.runner.forget_graphs()
        if self._ranks is not None:
            self._ranks.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt.

        Args:
            prompts: a text, a list of token ids, or a list of either.
            sampling_params: for all prompts, or one for each.

        Returns:
            An output for each prompt, in the same order.

        Raises:
            ValueError, TypeError: a prompt cannot be served. Then none is.
            RuntimeError: the LLM is closed, or another thread uses it.
        """
        self._check_open()
        _check_sequence("prompts", prompts, "a str, a list of token ids, or a list of either")
        is_single = isinstance(prompts, str) or isinstance(prompts[0], int)
        prompts = [prompts] if is_single else prompts
        names = [f"prompts[{i}]" for i in range(len(prompts))]
        return self._run([self._encode(prompt) for prompt in prompts], names, sampling_params)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several.

        Args:
            messages: dicts with "role" ("system", "user", "assistant") and "content".
            sampling_params: as for `generate`.

        Returns:
            A list with an output for each conversation.

        Raises:
            As `generate`.
        """
        self._check_open()
        _check_sequence("messages", messages, "a list of messages, or a list of such lists")
        conversations = [messages] if isinstance(messages[0], dict) else messages
        prompts = [self.tokenizer.apply_chat_template(messages) for messages in conversations]
        return self._run(prompts, ["messages"] * len(prompts), sampling_params)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
    ) -> TextStream:
        """Continue a prompt or answer a conversation, and yield the text as it comes.

        Several streams may be open, and `generate` may run meanwhile: whoever runs the engine
        moves all of them on. Leaving the stream early aborts the request: at the end of a `with`,
        or when nobody has the stream any more.

        Raises:
            As `generate`.
        """
        self._check_open()
        _check_sequence("prompt", prompt, "a str, a list of token ids, or a list of messages")
        if isinstance(prompt[0], dict):
            token_ids = self.tokenizer.apply_chat_template(prompt)
        else:
            token_ids = self._encode(prompt)
        self.engine.check_params(sampling_params, "sampling_params")
        return TextStream(self.engine, token_ids, sampling_params)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this LLM is closed: make another one")

    def _encode(self, prompt: Prompt) -> Sequence[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    def _run(
        self,
        prompts: Sequence[Sequence[int]],
        names: list[str],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[RequestOutput]:
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        _check_sequence("sampling_params", sampling_params, "SamplingParams, or a list of them")
        if len(sampling_params) != len(prompts):
            raise ValueError(
                f"sampling_params must be one, or one for each of the {len(prompts)} prompts, "
                f"got {len(sampling_params)}"
            )
        for i, (prompt, name, params) in enumerate(
            zip(prompts, names, sampling_params, strict=True)
        ):
            self.engine.check_prompt(prompt, name)
            self.engine.check_params(params, f"sampling_params[{i}]")
        requests: list[Request] = []
        try:
            for prompt, params in zip(prompts, sampling_params, strict=True):
                requests.append(self.engine.requests[self.engine.add_request(prompt, params)])
            while any(request.finish_reason is None for request in requests):
                self.engine.step()
        finally:  # an interrupt, or an exception in somebody's kernel, must not leak blocks
            for request in requests:
                self.engine.abort(request.request_id)
        return [request.output() for request in requests]


class TextStream(Iterator[str]):
    """The pieces of a text as they come. At the end of `with llm.stream(...) as pieces:` the
    request is over, whatever has happened."""

    def __init__(
        self, engine: Engine, prompt_token_ids: Sequence[int], params: SamplingParams | None
    ) -> None:
        self._engine = engine
        self._request: Request | None = None  # what `__del__` finds if the next line raises
        self._request = engine.requests[engine.add_request(prompt_token_ids, params)]
        self._shown = 0

    @property
    def output(self) -> RequestOutput:
        """What the request has so far, and in the end all of it."""
        return self._request.output()

    def __next__(self) -> str:
        """Run the engine until there is more text to show."""
        request = self._request
        while len(request.text) == self._shown:
            if request.finish_reason is not None:
                raise StopIteration
            try:
                self._engine.step()
            except BaseException:
                self.close()
                raise
        piece = request.text[self._shown :]
        self._shown += len(piece)
        return piece

    def close(self) -> None:
        """End the request, wherever it is."""
        if self._request is not None:
            self._engine.abort(self._request.request_id)

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _with_exercises(backend: str | Mapping[str, str], parts: Parts) -> dict[str, str]:
    """A back end for each operator of the model: the learner's code where there is some."""
    backends = choose(OPERATORS, backend)
    name = f"exercises-{next(_number)}"  # another engine may have another version of them
    for operator, function in parts.operators.items():
        register(operator, name, function)
        backends[operator] = name
    return backends


def switch(name: str) -> bool:
    """What an environment variable says, yes or no; unset is no. Raises ValueError for others."""
    word = os.environ.get(name, "").lower()
    if word not in ("1", "true", "yes", "0", "false", "no", ""):
        raise ValueError(f"{name} must be 1, true, yes, 0, false or no, got {word!r}")
    return word in ("1", "true", "yes")


def _check_sequence(name: str, value: object, wanted: str) -> None:
    """Raise an error that names the argument unless `value` is a sequence with something in it."""
    if isinstance(value, bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be {wanted}, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty: {wanted}")
