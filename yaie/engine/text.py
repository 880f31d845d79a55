"""A request's text as it grows: whole characters only, and never a piece of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from yaie.model.tokenizer import StreamDecoder, Tokenizer

CONTEXT = 6  # tokens of the prompt that the text's first space depends on, with room to spare


class OutputText:
    """Turns tokens into text, and watches for stop strings.

    Attributes:
        text: what may be shown. A tail that could yet become a stop string is held back.
        stopped: a stop string has come; `text` ends before it.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), prompt_token_ids: Sequence[int] = ()
    ) -> None:
        self._decoder = StreamDecoder(tokenizer, context=prompt_token_ids[-CONTEXT:])
        self._stop = tuple(stop)
        self._held = ""
        self.text = ""
        self.stopped = False

    @property
    def length(self) -> int:
        """Characters that are complete, those that are held back included."""
        return len(self.text) + len(self._held)

    def push(self, token_id: int) -> None:
        """Add a token."""
        self._extend(self._decoder.push(token_id))

    def finish(self) -> None:
        """Add what was held back: no more tokens will come."""
        self._extend(self._decoder.flush())
        if not self.stopped:
            self.text += self._held
        self._held = ""

    def _extend(self, piece: str) -> None:
        if self.stopped:
            return
        self._held += piece
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.text += self._held[: min(found)]
            self._held = ""
            self.stopped = True
            return
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        ready = len(self._held) - keep
        self.text += self._held[:ready]
        self._held = self._held[ready:]


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
