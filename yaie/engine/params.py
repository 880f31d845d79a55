"""What a request may ask for, and which requests an engine takes. Checks them without torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from yaie.engine.checks import (
    as_items,
    as_strings,
    check_int,
    check_number,
    check_range,
    check_sequence,
    check_switch,
)

MOST_LOGPROBS = 20


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen, and when it ends.

    Attributes:
        temperature: 0 takes the most likely token; larger values flatten the distribution.
        top_p: keep the smallest set of most likely tokens whose probabilities reach this sum.
        top_k: keep this many most likely tokens; 0 keeps all, and -1 becomes 0.
        min_p: keep tokens at least this fraction as likely as the most likely one.
        repetition_penalty: divides positive logits of tokens seen before, multiplies negative
            ones; 1 does nothing.
        frequency_penalty, presence_penalty: subtracted from the logits of tokens generated before;
            frequency_penalty once per occurrence, presence_penalty once. From -2 to 2.
        logit_bias: added to the logits of some tokens, from -100 to 100; a mapping from token ids,
            kept as pairs.
        seed: the same seed gives the same tokens, whatever else is in the batch, up to rounding:
            beside other requests, a prompt may be cut into different chunks. A GPU and a CPU give
            different tokens, because they look up the random number in different token orders.
        max_tokens: the most tokens to generate.
        min_tokens: until there are this many, no end token can be chosen, and stop strings that end
            before are part of the text.
        stop: strings that end the text; they are not part of it. None is the same as none.
        stop_token_ids: tokens that end the text, in addition to the model's own end token.
        ignore_eos: go on after the model's end token (for benchmarks).
        logprobs: also report the log-probability of every token chosen, and of this many of the
            likeliest; those of the model itself, before penalties, temperature and filters. None
            reports nothing.
        prompt_logprobs: the same of every token of the prompt but the first. Such a request takes
            nothing from the prefix cache, since all its logits have to be computed.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] | None = ()
    seed: int | None = None
    max_tokens: int = 128
    min_tokens: int = 0
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Sequence[int] | None = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        penalties = ("frequency_penalty", "presence_penalty")
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", *penalties):
            check_number(name, getattr(self, name))
        for name in ("top_k", "max_tokens", "min_tokens"):
            check_int(name, getattr(self, name))
        fits = 0 <= self.temperature < 1e38
        check_range("temperature", self.temperature, fits, "0 or more, below 1e38")
        check_range("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        fits = -1 <= self.top_k < 2**31
        check_range("top_k", self.top_k, fits, "0 or -1 (off) or more, below 2**31")
        object.__setattr__(self, "top_k", max(self.top_k, 0))
        check_range("min_p", self.min_p, 0 <= self.min_p <= 1, "between 0 and 1")
        check_penalty(self.repetition_penalty)
        for name in penalties:
            value = getattr(self, name)
            check_range(name, value, -2 <= value <= 2, "between -2 and 2")
        object.__setattr__(self, "logit_bias", _bias_pairs(self.logit_bias))
        check_range("max_tokens", self.max_tokens, self.max_tokens >= 1, "1 or more")
        fits = 0 <= self.min_tokens <= self.max_tokens
        check_range("min_tokens", self.min_tokens, fits, f"from 0 to max_tokens, {self.max_tokens}")
        if self.seed is not None:
            check_int("seed", self.seed)
            check_range("seed", self.seed, -(2**63) <= self.seed < 2**64, "a number of 64 bits")
            object.__setattr__(self, "seed", int(self.seed))
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None:
                check_int(name, value)
                check_range(name, value, 0 <= value <= MOST_LOGPROBS, f"from 0 to {MOST_LOGPROBS}")
        check_switch("ignore_eos", self.ignore_eos)
        object.__setattr__(self, "stop", as_strings("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", as_items("stop_token_ids", self.stop_token_ids))


def _bias_pairs(given: Mapping[int, float] | Iterable[tuple[int, float]] | None) -> tuple:
    """A logit bias as pairs of a token id and a number, in the order of the ids."""
    try:
        pairs = sorted(dict(() if given is None else given).items())
    except (TypeError, ValueError) as error:
        raise TypeError(f"logit_bias must map token ids to numbers, got {given!r}") from error
    for token, bias in pairs:
        check_int("logit_bias' token ids", token)
        check_number(f"logit_bias[{token}]", bias)
        check_range(f"logit_bias[{token}]", bias, -100 <= bias <= 100, "between -100 and 100")
    return tuple(pairs)


def check_penalty(penalty: float) -> None:
    """Raise ValueError for a repetition penalty with which a logit might leave float32's range."""
    check_range("repetition_penalty", penalty, 1e-3 <= penalty <= 1e3, "from 0.001 to 1000")


@dataclass(frozen=True)
class Limits:
    """The limits of an engine.

    Attributes:
        max_model_len: the most tokens of a request, prompt and output together.
        vocab_size: how many token ids the model has.
        sizes: the model's context and the size of the KV cache, in words for errors.
    """

    max_model_len: int
    vocab_size: int
    sizes: str

    def check_prompt(self, prompt_token_ids: Sequence[int], name: str) -> None:
        """Raise ValueError or TypeError for a prompt that the engine does not take."""
        check_sequence(name, prompt_token_ids, "a list of token ids", (str, bytes))
        if len(prompt_token_ids) >= self.max_model_len:
            raise ValueError(
                f"{name} has {len(prompt_token_ids)} tokens; with the one to generate, at most "
                f"{self.max_model_len} fit ({self.sizes})"
            )
        self._check_token_ids(prompt_token_ids, name)

    def checked_params(self, params: SamplingParams | None, name: str = "params") -> SamplingParams:
        """The parameters to use for a request. Errors call the argument `name`."""
        if params is None:
            return SamplingParams()
        if not isinstance(params, SamplingParams):
            raise TypeError(f"{name} must be SamplingParams, got {type(params).__name__}")
        self._check_token_ids(params.stop_token_ids, f"{name}.stop_token_ids")
        self._check_token_ids([token for token, _ in params.logit_bias], f"{name}.logit_bias")
        return params

    def _check_token_ids(self, token_ids: Sequence[int], name: str) -> None:
        vocabulary, are_ints = self.vocab_size, set(map(type, token_ids)) == {int}
        if are_ints and 0 <= min(token_ids) <= max(token_ids) < vocabulary:
            return
        for token in token_ids:  # to find which is wrong, if any is
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"{name} must have ints as token ids, got {token!r}")
            if not 0 <= token < vocabulary:
                raise ValueError(f"{name} has token id {token}, outside 0 to {vocabulary - 1}")
