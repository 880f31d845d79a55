"""A request's text as it grows: whole characters only, and never a part of a stop string."""

from collections.abc import Sequence

from yaie.model.tokenizer import StreamDecoder, Tokenizer

CONTEXT = 6  # tokens of the prompt that the text's first space depends on, with room to spare


class OutputText:
    """Turns tokens into text, and watches for stop strings, once there are `min_tokens` tokens.

    Attributes:
        pieces: the text that may be shown, in the order in which it came. A tail that could yet
            become a stop string is held back.
        stopped: whether a stop string has come; the text ends before it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        prompt_token_ids: Sequence[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._num_before_stop = min_tokens - 1  # tokens in whose text no stop string is looked for
        self._decoder = StreamDecoder(tokenizer, context=prompt_token_ids[-CONTEXT:])
        self._stop = tuple(stop)
        self._held = ""
        self._num_shown = 0
        self.pieces: list[str] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """The pieces joined, which takes as long as the text is: not for every token."""
        return "".join(self.pieces)

    @property
    def length(self) -> int:
        """How many characters are complete, including those held back."""
        return self._num_shown + len(self._held)

    def push(self, token_id: int) -> str:
        """Add a token, and return the text that may be shown now."""
        piece = self._extend(self._decoder.push(token_id))
        self._num_before_stop -= 1
        return piece

    def finish(self) -> str:
        """Return what was held back: no more tokens will come."""
        piece, self._stop = self._extend(self._decoder.flush()), ()
        return piece + self._extend("")

    def _extend(self, piece: str) -> str:
        if self.stopped:
            return ""
        shown, old, self._held = self._held + piece, len(self._held), ""
        if self._stop:
            places = [shown.find(stop, max(0, old - len(stop) + 1)) for stop in self._stop]
            if self._num_before_stop <= 0 and (found := [at for at in places if at >= 0]):
                self.stopped, shown = True, shown[: min(found)]
            elif keep := max(_overlap(shown, stop) for stop in self._stop):
                shown, self._held = shown[:-keep], shown[-keep:]
        if shown:
            self.pieces.append(shown)
            self._num_shown += len(shown)
        return shown


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
