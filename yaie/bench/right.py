"""Whether the text that a server sent is the answer to its prompt."""

from collections.abc import Sequence

from yaie.bench.oracle import Oracle, WrongAnswer
from yaie.engine.text import OutputText
from yaie.model.tokenizer import Tokenizer

Prompt = list[int]
AT_ONCE = 16  # prompts of a batch of transformers


class Right:
    """Compares texts with what transformers generates for the same prompts.

    Two computations round differently. Where a text departs from transformers', it is still right
    if the token with which it does is as likely as transformers' own, within rounding; what comes
    after that token is not compared, because it answers another prompt.
    """

    def __init__(self, oracle: Oracle, tokenizer: Tokenizer) -> None:
        self.oracle, self.tokenizer = oracle, tokenizer
        self._known: dict[tuple[int, ...], list[int]] = {}

    def check(
        self, prompts: Sequence[Prompt], texts: Sequence[str], max_tokens: int
    ) -> dict[str, int]:
        """How many answers were compared, and how many are equal.

        Raises:
            WrongAnswer: one is not the answer to its prompt.
        """
        self.learn(prompts, max_tokens)
        same = 0
        for prompt, text in zip(prompts, texts, strict=True):
            tokens = self._known[tuple(prompt)][:max_tokens]
            if text == self.text(prompt, tokens):
                same += 1
            elif not self._departs_within_rounding(prompt, tokens, text):
                raise WrongAnswer(
                    f"the answer {text!r} is not the model's, which is "
                    f"{self.text(prompt, tokens)!r}"
                )
        return {"checked_answers": len(texts), "same_answers": same}

    def learn(self, prompts: Sequence[Prompt], max_tokens: int) -> None:
        """Have transformers answer those prompts that it has not answered so far."""
        missing = [
            prompt
            for prompt in {tuple(prompt): prompt for prompt in prompts}.values()
            if len(self._known.get(tuple(prompt), ())) < max_tokens
        ]
        missing.sort(key=len)  # padding costs
        for start in range(0, len(missing), AT_ONCE):
            batch = missing[start : start + AT_ONCE]
            answers = self.oracle.generate(batch, max_tokens)
            self._known |= {tuple(p): a for p, a in zip(batch, answers, strict=True)}

    def text(self, prompt: Prompt, tokens: Sequence[int]) -> str:
        """The text of an answer, as the server makes it."""
        text = OutputText(self.tokenizer, (), prompt)
        for token in tokens:
            text.push(token)
        text.finish()
        return text.text

    def _departs_within_rounding(self, prompt: Prompt, tokens: list[int], text: str) -> bool:
        shared = len(tokens)
        while not text.startswith(self.text(prompt, tokens[:shared])):
            shared -= 1
        if shared == len(tokens):  # all of it is there, and something more
            return False
        near = self.oracle.nearly_as_likely(prompt, tokens[: shared + 1])
        begun = [self.text(prompt, [*tokens[:shared], token]) for token in near]
        return any(text.startswith(words) for words in begun)
