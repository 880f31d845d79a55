"""What a forward pass costs, counted from a model's shape: floating-point operations and bytes.

A multiplication and an addition are two operations. Only products of matrices are counted: all
else (norms, rotations, softmax) is below one percent. Bytes are those that must be read from
memory or written to it: every weight once a pass, keys and values of every token.
"""

from yaie.model.config import ModelConfig


def layer_weights(config: ModelConfig) -> int:
    """How many weights of all layers each token is multiplied with."""
    heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads  # q, output, k, v
    attention = heads * config.head_dim * config.hidden_size
    mlp = 3 * config.hidden_size * config.intermediate_size  # gate, up, down
    return config.num_hidden_layers * (attention + mlp)


def head_weights(config: ModelConfig) -> int:
    """The weights that turn a hidden state into a score for every token of the vocabulary."""
    return config.vocab_size * config.hidden_size


def forward_flops(config: ModelConfig, new: int, past: int = 0) -> int:
    """Operations of a pass over `new` tokens that come after `past` cached ones.

    Logits are computed for the last token only. Every new token is scored against every key, as
    in `yaie.ops.reference.attention.attention`: those that the mask hides are computed as well.
    """
    products = 2 * new * layer_weights(config) + 2 * head_weights(config)
    per_score = 4 * config.head_dim  # q · k, and the weight times v
    scores = config.num_hidden_layers * config.num_attention_heads * new * (past + new)
    return products + per_score * scores


def kv_bytes_per_token(config: ModelConfig, itemsize: int = 2) -> int:
    """Bytes of the keys and values of one token in all layers; numbers of `itemsize` bytes."""
    heads = config.num_hidden_layers * config.num_key_value_heads
    return 2 * heads * config.head_dim * itemsize


def forward_bytes(config: ModelConfig, new: int, past: int = 0, itemsize: int = 2) -> int:
    """Bytes that such a pass must move: weights read, new keys and values written, all read.

    Activations of one layer are small and stay in caches or registers where a kernel is good;
    they are not counted, nor is the one row of the embedding for each token.
    """
    weights = (layer_weights(config) + head_weights(config)) * itemsize
    return weights + (new + (past + new)) * kv_bytes_per_token(config, itemsize)
