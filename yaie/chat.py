"""A conversation with the model in the terminal: `yaie chat`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.engine.llm import LLM
    from yaie.engine.params import SamplingParams

HELP = "/reset forgets the conversation, /exit or /quit ends it, Ctrl-C stops an answer"
# SmolLM2's authors advise a temperature of 0.2; so small a model begins wrongly too often at that.
TEMPERATURE, TOP_P = 0.0, 0.9


def load(model: str, exercises: bool | Sequence[str] = False, **options: Any) -> LLM:
    """Load a model, with these options of `LLM`, and say how long it took."""
    started = time.perf_counter()
    from yaie.engine.llm import LLM
    from yaie.engine.params import SamplingParams

    llm = LLM(model, exercises=exercises or None, **options)
    print(llm.engine.about, flush=True)
    if exercises:  # kernels are compiled at their first call, which is not the first answer's
        llm.generate("Hi", SamplingParams(max_tokens=2, ignore_eos=True))
    print(f"ready after {time.perf_counter() - started:.1f} s. {HELP}.")
    return llm


class Chat:
    """Keeps the conversation. Each question sends all of it; the prefix cache makes that cheap.

    Args:
        llm: anything with `stream(messages, sampling_params)` like `yaie.LLM`'s.
        params: how each answer is sampled, and how long it may be.
        system: a system prompt, kept when the conversation is reset.
        ask: how a line is read; raises EOFError at the end of the input.
    """

    def __init__(
        self,
        llm: LLM,
        params: SamplingParams,
        system: str | None = None,
        ask: Callable[[str], str] = input,
    ) -> None:
        self.llm, self.params, self.ask = llm, params, ask
        self.opening = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.opening)

    def run(self) -> None:
        """Ask and answer until /exit, /quit or the end of the input."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  gives `input` its history and editing keys
        prompt = "\n> " if sys.stdin.isatty() else ""
        is_leaving = False  # the last thing that came was a Ctrl-C
        while True:
            try:
                line, is_leaving = self.ask(prompt).strip(), False
            except (EOFError, KeyboardInterrupt) as ended:
                print()
                if is_leaving or isinstance(ended, EOFError):
                    return
                is_leaving = True
                print("Ctrl-C once more ends the conversation.")
                continue
            except UnicodeDecodeError as error:
                print(f"A question must be text: {error}.")
                continue
            if line in ("/exit", "/quit"):
                return
            if line == "/reset":
                self.messages = list(self.opening)
                print("The conversation starts over.")
            elif line == "/help":
                print(f"{HELP}.")
            elif line.startswith("/"):
                print(f"No command {line.split()[0]}. {HELP}.")
            elif line:
                self.answer(line)

    def answer(self, question: str) -> None:
        """Stream the answer, remember it, and say what it cost. A question that cannot be served is
        not remembered."""
        messages = [*self.messages, {"role": "user", "content": question}]
        try:
            stream = self.llm.stream(messages, self.params)
        except ValueError as error:
            print(f"{error}. /reset starts over.")
            return
        started = time.perf_counter()
        try:
            for piece in stream:
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            stream.close()
        seconds = time.perf_counter() - started
        print()
        output = stream.output
        if output.error:
            print(f"The answer ended early: {output.error}")
        elif output.token_ids:  # else stopped before the first token
            self.messages = [*messages, {"role": "assistant", "content": output.text}]
            if output.finish_reason == "length":
                is_cut = len(output.token_ids) == self.params.max_tokens
                limit = f"stopped at --max-tokens {self.params.max_tokens}"
                print(f"({limit if is_cut else 'the context is full, /reset starts over'})")
            print(self.cost(output, seconds))

    @staticmethod
    def cost(output, seconds: float) -> str:
        """One line: the prompt's tokens, how many were cached, and the speed of the answer."""
        prompt, answer = len(output.prompt_token_ids), len(output.token_ids)
        cached = output.metrics.num_cached_tokens
        rate = answer / seconds if seconds > 0 else 0.0
        text = f"[prompt {prompt} tokens, {cached} cached; answer {answer} at {rate:.3g} tokens/s]"
        return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text
