"""The engine as one object: give it prompts, get text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from yaie.engine.engine import Engine
from yaie.engine.parts import Parts, learner_parts
from yaie.engine.request import RequestOutput
from yaie.model.llama import Llama
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model
from yaie.sampling import SamplingParams

Prompt = str | Sequence[int]
Message = dict[str, str]


class LLM:
    """A language model, ready to answer.

    Args:
        model: the name of a model that `yaie pull` has fetched, or a folder in Hugging Face
            format.
        dtype: "float32", "bfloat16" or "float16".
        block_size: tokens a KV block.
        num_blocks: blocks of the KV cache; by default as many as `kv_cache_memory_bytes` holds.
        kv_cache_memory_bytes: memory for keys and values.
        max_num_seqs, max_num_batched_tokens, enable_prefix_caching, enable_chunked_prefill,
            policy: see `Scheduler`.
        exercises: run the learner's solved exercises in place of the reference, and print whose
            code runs. By default the environment variable YAIE_USE_EXERCISES decides: 1 is yes.

    Raises:
        ValueError: an argument is out of range, or the model is not known.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: str = "float32",
        block_size: int = 16,
        num_blocks: int | None = None,
        kv_cache_memory_bytes: int = 2**30,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        enable_prefix_caching: bool = True,
        enable_chunked_prefill: bool = True,
        policy: str = "fcfs",
        exercises: bool | None = None,
    ) -> None:
        if exercises is None:
            exercises = os.environ.get("YAIE_USE_EXERCISES") == "1"
        parts = learner_parts() if exercises else Parts()
        for line in parts.report:
            print(line)
        folder = find_model(model)
        self.tokenizer = Tokenizer(folder)
        llama = load_model(
            folder, dtype, apply_rotary=parts.apply_rotary, paged_attention=parts.paged_attention
        )
        if num_blocks is None:
            num_blocks = kv_cache_memory_bytes // _block_bytes(llama, block_size)
        self.engine = Engine(
            llama,
            self.tokenizer,
            num_blocks=num_blocks,
            block_size=block_size,
            parts=parts,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            enable_chunked_prefill=enable_chunked_prefill,
            policy=policy,
        )

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
            ValueError: a prompt cannot be served. Then none is.
        """
        return self._run(self._as_token_lists(prompts), sampling_params)

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
        """
        if not messages:
            raise ValueError("messages must not be empty")
        conversations = [messages] if isinstance(messages[0], dict) else messages
        prompts = [self.tokenizer.apply_chat_template(messages) for messages in conversations]
        return self._run(prompts, sampling_params)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
    ) -> TextStream:
        """Continue a prompt or answer a conversation, and yield the text as it comes.

        The stream's `output` is the whole result once it has ended. Leaving the stream early
        aborts the request.
        """
        if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], dict):
            token_ids = self.tokenizer.apply_chat_template(prompt)
        else:
            [token_ids] = self._as_token_lists(prompt)
        return TextStream(self.engine, token_ids, sampling_params)

    def _as_token_lists(self, prompts: Prompt | Sequence[Prompt]) -> list[list[int]]:
        is_single = isinstance(prompts, str) or (len(prompts) and isinstance(prompts[0], int))
        prompts = [prompts] if is_single else prompts
        return [self.tokenizer.encode(p) if isinstance(p, str) else list(p) for p in prompts]

    def _run(
        self,
        prompts: list[list[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[RequestOutput]:
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        if len(sampling_params) != len(prompts):
            raise ValueError(
                f"sampling_params must be one, or one for each of the {len(prompts)} prompts, "
                f"got {len(sampling_params)}"
            )
        for i, prompt in enumerate(prompts):
            self.engine.check_prompt(prompt, name=f"prompts[{i}]")
        pairs = zip(prompts, sampling_params, strict=True)
        request_ids = [self.engine.add_request(prompt, params) for prompt, params in pairs]
        outputs: dict[str, RequestOutput] = {}
        try:
            while len(outputs) < len(request_ids):
                for output in self.engine.step():
                    if output.finish_reason:
                        outputs[output.request_id] = output
        finally:  # an interrupt, or an exception in somebody's kernel, must not leak blocks
            for request_id in request_ids:
                self.engine.abort(request_id)
        return [outputs[request_id] for request_id in request_ids]


class TextStream(Iterator[str]):
    """The pieces of a text as they come.

    Attributes:
        output: what the request has so far, and in the end all of it; None before the first.
    """

    def __init__(
        self, engine: Engine, prompt_token_ids: list[int], params: SamplingParams | None
    ) -> None:
        self._engine = engine
        self._request_id = engine.add_request(prompt_token_ids, params)
        self._shown = 0
        self.output: RequestOutput | None = None

    def __next__(self) -> str:
        """Run the engine until there is more text to show."""
        while self.output is None or self.output.finish_reason is None:
            for output in self._engine.step():
                if output.request_id == self._request_id:
                    self.output = output
            piece = self.output.text[self._shown :] if self.output else ""
            if piece:
                self._shown += len(piece)
                return piece
        raise StopIteration

    def close(self) -> None:
        """End the request, wherever it is."""
        output = self._engine.abort(self._request_id)
        self.output = output or self.output

    def __del__(self) -> None:
        self.close()


def _block_bytes(model: Llama, block_size: int) -> int:
    """Bytes of one KV block over all layers."""
    config = model.config
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return numbers * model.dtype.itemsize * block_size
