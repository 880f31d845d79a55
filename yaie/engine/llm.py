"""The engine as one object: give it prompts, get text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Timer
from typing import Any

from yaie.build.cache import tell
from yaie.engine.checks import check_sequence
from yaie.engine.config import SAMPLING_OPTIONS, EngineConfig, check_names
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.engine.parts import Exercises
from yaie.engine.request import Request, RequestOutput
from yaie.engine.start import start_engine
from yaie.model.tokenizer import Message
from yaie.ops.registry import STAND_INS

Prompt = str | Sequence[int]
PROMPT = "a str or a list of token ids"


class LLM:
    """A language model, ready to answer. One thread at a time may use it.

    Args:
        model: the name of a model that `yaie pull` has fetched, or a folder in Hugging Face
            format.
        exercises: run the learner's solved exercises in place of the reference, and print whose
            code runs: True for all of them, or an id, or a list of ids. By default
            YAIE_USE_EXERCISES decides (1, true or yes).
        options: those of `yaie.engine.config.EngineConfig`, which documents them.

    Raises:
        ValueError, TypeError: an argument cannot be used, or the model is not known.
    """

    def __init__(self, model: str | Path, *, exercises: Exercises = None, **options: Any) -> None:
        check_names(options)
        slow = Timer(1.0, tell, [f"loading {model}; new kernels are compiled, once ..."])
        slow.start()
        try:
            self.engine = start_engine(model, EngineConfig(**options), exercises)
        finally:
            slow.cancel()
        if self.engine.device.type == "cpu" and sys.stderr.isatty():
            for name in STAND_INS.keys() & self.engine.runner.model.backends.values():
                print(f"{name} runs {STAND_INS[name]}", file=sys.stderr)
        self.tokenizer = self.engine.tokenizer
        self._is_closed = False

    def close(self) -> None:
        """Free the CUDA graphs, and end the other processes if the model is shared among several.

        Close open streams first. Weights and cache are freed with the LLM itself.
        """
        self._is_closed = True
        self.engine.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **misplaced: Any,
    ) -> list[RequestOutput]:
        """Continue each prompt.

        Args:
            prompts: a text, a list of token ids, or a list of either.
            sampling_params: for all prompts, or one for each.
            misplaced: nothing; what belongs in `sampling_params` is refused by its name.

        Returns:
            An output for each prompt, in the same order.

        Raises:
            ValueError, TypeError: a prompt cannot be served. Then none is.
            RuntimeError: the LLM is closed, or another thread uses it.
        """
        self._check_call(misplaced)
        check_sequence("prompts", prompts, "a str, a list of token ids, or a list of either")
        is_single = isinstance(prompts, str) or isinstance(prompts[0], int)
        prompts = [prompts] if is_single else prompts
        names = [f"prompts[{i}]" for i in range(len(prompts))]
        return self._run(list(map(self._encode, prompts, names)), sampling_params, names)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **misplaced: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several.

        Args:
            messages: dicts with "role" ("system", "user", "assistant") and "content".
            sampling_params, misplaced: as for `generate`.

        Returns a list with an output for each conversation. Raises as `generate`.
        """
        self._check_call(misplaced)
        wanted = "a list of messages, or a list of such lists"
        check_sequence("messages", messages, wanted, (str, bytes))
        is_single = isinstance(messages[0], dict)
        conversations = [messages] if is_single else messages
        names = ["messages" if is_single else f"messages[{i}]" for i in range(len(conversations))]
        pairs, encode = zip(conversations, names, strict=True), self.tokenizer.apply_chat_template
        prompts = [encode(conversation, name=name) for conversation, name in pairs]
        return self._run(prompts, sampling_params, names)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **misplaced: Any,
    ) -> TextStream:
        """Continue a prompt or answer a conversation, and yield the text as it comes.

        Several streams may be open, and `generate` may run meanwhile: each step of the engine
        advances all of them. Leaving the stream early aborts the request: at the end of a `with`,
        or when the stream is no longer referenced. Raises as `generate`.
        """
        self._check_call(misplaced)
        check_sequence("prompt", prompt, "a str, a list of token ids, or a list of messages")
        if isinstance(prompt[0], dict):
            token_ids = self.tokenizer.apply_chat_template(prompt)
        else:
            token_ids = self._encode(prompt, "prompt")
        request = self.engine.make_request(
            token_ids, sampling_params, params_name="sampling_params"
        )
        return TextStream(self.engine, request)

    def _check_call(self, misplaced: dict[str, Any]) -> None:
        if unknown := [name for name in misplaced if name not in SAMPLING_OPTIONS]:
            raise TypeError(f"there is no argument {unknown[0]!r}; sampling_params has the options")
        if misplaced:
            given = ", ".join(f"{name}={value!r}" for name, value in misplaced.items())
            raise TypeError(f"pass SamplingParams({given}) as sampling_params, not {given} alone")
        if self._is_closed:
            raise RuntimeError("this LLM is closed: make another one")

    def _encode(self, prompt: Prompt, name: str) -> Sequence[int]:
        first = prompt[0] if isinstance(prompt, Sequence) and prompt else prompt
        if isinstance(first, dict):
            raise TypeError(f"{name} must be {PROMPT}, got messages: for messages use `llm.chat`")
        check_sequence(name, prompt, PROMPT)
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    def _run(
        self,
        prompts: Sequence[Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        names: list[str],
    ) -> list[RequestOutput]:
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        check_sequence("sampling_params", sampling_params, "SamplingParams, or a list of them")
        if len(sampling_params) != len(prompts):
            raise ValueError(
                f"sampling_params must be one, or one for each of the {len(prompts)} prompts, "
                f"got {len(sampling_params)}"
            )
        requests = [
            self.engine.make_request(
                prompt, params, prompt_name=names[i], params_name=f"sampling_params[{i}]"
            )
            for i, (prompt, params) in enumerate(zip(prompts, sampling_params, strict=True))
        ]
        try:
            for request in requests:
                self.engine.queue(request)
            for request in requests:
                while request.finish_reason is None:
                    self.engine.step()
        finally:  # an interrupt, or an exception in a kernel, must not leak blocks
            for request in requests:
                self.engine.abort(request.request_id)
        return [request.output() for request in requests]


class TextStream(Iterator[str], AbstractContextManager):
    """The pieces of a text as they come. `with llm.stream(...) as pieces:` ends the request."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine, self._request = engine, request
        self._num_shown = 0  # pieces of the text
        engine.queue(request)

    @property
    def output(self) -> RequestOutput:
        """What the request has so far, and in the end all of it."""
        return self._request.output()

    def __next__(self) -> str:
        """The next piece: runs the engine until there is one."""
        request, pieces = self._request, self._request.output_text.pieces
        while len(pieces) == self._num_shown:
            if request.finish_reason is not None:
                raise StopIteration
            try:
                self._engine.step()
            except BaseException:
                self.close()
                raise
        piece = "".join(pieces[self._num_shown :])
        self._num_shown = len(pieces)
        return piece

    def close(self) -> None:
        """End the request, wherever it is."""
        self._engine.abort(self._request.request_id)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
