"""The operations of a forward pass, and the work of each: where a model stands under the roof.

Bytes are those of an engine whose operators are fused as in `yaie.ops`: each operator reads its
inputs from memory once and writes its outputs once.
"""

from dataclasses import dataclass

from yaie.course.lessons.roofline import Work, attention_work, linear_work
from yaie.model.config import ModelConfig

# Operations a component, where no matrices are multiplied: multiplications, additions, divisions
# and exponentials count as one each.
ADD_RMS_NORM = 5  # x + residual, square, sum, × scale, × weight
ROTARY = 3  # two products, and their sum or difference
SILU_AND_MUL = 4  # exp, 1 + , ÷, × up


@dataclass(frozen=True)
class Operation:
    """One operator, in all layers together.

    Attributes:
        tensor_cores: whether it is a product of matrices, for which GPUs have units of their own.
    """

    name: str
    work: Work
    tensor_cores: bool


def decode_step(config: ModelConfig, batch: int, context: int) -> list[Operation]:
    """A step that generates one token for each of `batch` sequences.

    `context` is the tokens of each sequence, the new one included.
    """
    return forward_pass(config, batch, 1, context - 1)


def prefill_step(config: ModelConfig, tokens: int, batch: int = 1) -> list[Operation]:
    """A step that computes prompts of `tokens` tokens, with nothing cached."""
    return forward_pass(config, batch, tokens, 0)


def forward_pass(
    config: ModelConfig, batch: int, new: int, past: int, itemsize: int = 2
) -> list[Operation]:
    """A pass over `new` tokens of each of `batch` sequences, after `past` cached ones.

    Scores for the vocabulary are computed for the last token of each sequence only. The lookup of
    embeddings, the first norm and sampling are left out.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads, config.num_key_value_heads
    tokens, layers = batch * new, config.num_hidden_layers
    query, keys = (count * config.head_dim for count in heads)
    attention = attention_work(batch, new, past, *heads, config.head_dim, itemsize)

    def linear(columns: int, rows: int) -> Work:
        return linear_work(tokens, columns, rows, itemsize)

    def elementwise(reads: int, writes: int, flops: int) -> Work:
        """Work on each token's row, in components."""
        return Work(tokens * flops, tokens * (reads + writes) * itemsize)

    norm = elementwise(2 * hidden, 2 * hidden, ADD_RMS_NORM * hidden)
    in_all_layers = [
        ("qkv_proj", linear(hidden, query + 2 * keys), True),
        ("rotary", elementwise(query + keys, query + keys, ROTARY * (query + keys)), False),
        ("reshape_and_cache", elementwise(2 * keys, 2 * keys, 0), False),
        ("attention", attention, True),
        ("o_proj", linear(query, hidden), True),
        ("add_rms_norm", norm.times(2), False),
        ("gate_up_proj", linear(hidden, 2 * inner), True),
        ("silu_and_mul", elementwise(2 * inner, inner, SILU_AND_MUL * inner), False),
        ("down_proj", linear(inner, hidden), True),
    ]
    operations = [Operation(name, work.times(layers), cores) for name, work, cores in in_all_layers]
    head = linear_work(batch, hidden, config.vocab_size, itemsize)
    return [*operations, Operation("lm_head", head, True)]


def total(operations: list[Operation]) -> Work:
    """The work of all of them together."""
    return sum((operation.work for operation in operations), Work(0, 0))
