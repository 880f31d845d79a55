"""What requests and responses look like: OpenAI's completions and chat completions.

A field that this server does not have is refused, since to ignore it would change the answer
silently; those that change nothing are taken and ignored, by name or by value. Fields that OpenAI
lacks (`top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`, `ignore_eos`, `min_tokens`,
`cache_salt`) are vLLM's.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from yaie.engine.params import SamplingParams

Text = Annotated[str, Field(max_length=1_000_000)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(min_length=1)]
StopString = Annotated[str, Field(min_length=1, max_length=1000)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenName = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class Strict(BaseModel):
    """Takes no unknown field, and no value of another type; null stands for a field left out.

    Attributes:
        neutral: fields that this server does not have, with the values that change nothing:
            frameworks send them.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    neutral: ClassVar[dict[str, tuple]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        sent = {name: value for name, value in given.items() if value is not None}
        return {name: sent[name] for name in sent if sent[name] not in cls.neutral.get(name, ())}


class StreamOptions(Strict):
    """What a stream contains in addition to the answer: its usage at the end, or in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # ignored, as it hides lengths by padding


class Sampling(Strict):
    """The fields that both endpoints share."""

    neutral = {
        "add_generation_prompt": (True,), "function_call": ("none",), "functions": ([],),
        "include_stop_str_in_output": (False,), "length_penalty": (1,), "modalities": (["text"],),
        "parallel_tool_calls": (True, False), "priority": (0,), "store": (False,), "suffix": ("",),
        "response_format": ({"type": "text"},), "skip_special_tokens": (True,), "tools": ([],),
        "spaces_between_special_tokens": (True,), "tool_choice": ("none",),
        "use_beam_search": (False,),
    }  # fmt: skip

    model: str | None = None  # only one is served
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Annotated[int, Field(ge=1, le=64)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: Annotated[str, Field(max_length=256)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenName, Bias], Field(max_length=1024)] | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    # Ignored: the end user, the price and the tone.
    user: str | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    verbosity: str | None = None

    def sampling_params(
        self, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None = None
    ) -> list[SamplingParams]:
        """Parameters for each of the n answers to one prompt; each has a seed of its own."""
        names = self.model_fields_set & SamplingParams.__dataclass_fields__.keys()
        given = {name: getattr(self, name) for name in names - {"max_tokens", "logprobs", "seed"}}
        given["prompt_logprobs"] = prompt_logprobs
        if self.logit_bias:
            given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
        seeds = [None if self.seed is None else self.seed + i for i in range(self.n or 1)]
        return [
            SamplingParams(max_tokens=max_tokens, logprobs=logprobs, seed=seed, **given)
            for seed in seeds
        ]


class CompletionRequest(Sampling):
    """The body of POST /v1/completions."""

    # The first type that fits, usual ones first: by default, pydantic tries each id as all types.
    prompt: Annotated[
        Text
        | TokenIds
        | Annotated[list[Text], Field(min_length=1, max_length=256)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=256)],
        Field(union_mode="left_to_right"),
    ]
    max_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None  # 0 needs `echo`
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: Literal[1] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list, however many came."""
        is_single = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return [self.prompt] if is_single else self.prompt


class TextPart(Strict):
    """A piece of a message's text."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """A message of a conversation. An answer's own message may come back as a client keeps it."""

    neutral = {
        "annotations": ([],),
        "provider_specific_fields": ({}, {"refusal": None}),  # litellm's
        "tool_calls": ([],),
    }

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(max_length=256)]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """As chat templates take it."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "".join(part.text for part in self.content)}


class ChatRequest(Sampling):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class PromptDetails(BaseModel):
    """How many of the prompt's tokens were found in the prefix cache."""

    cached_tokens: int


class Usage(BaseModel):
    """What a call cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class CompletionLogprobs(BaseModel):
    """Log-probabilities by token, in the older endpoint's form."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TopLogprob(BaseModel):
    """A token that might have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """The token that was chosen, and the likeliest ones."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Log-probabilities by token."""

    content: list[TokenLogprob]


FinishReason = Literal["stop", "length"]


class CompletionChoice(BaseModel):
    """An answer, or in a stream its next piece."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatMessage(BaseModel):
    """The assistant's message, or in a stream its next piece."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChoice(BaseModel):
    """An answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class Response(BaseModel):
    """What all answers have."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: Usage | None = None


class Completion(Response):
    """The answer of POST /v1/completions, and each piece of its stream."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatCompletion(Response):
    """The answer of POST /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ModelCard(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "yaie"
    max_model_len: int


class ModelList(BaseModel):
    """The answer of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
