"""How far a format of the weights moves a model: against the reference in float32."""

from pathlib import Path

import torch

from yaie.model.batch import Batch
from yaie.model.llama import Llama
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

TEXTS = (  # what a person might ask or write; each is read as a whole
    "Explain to a child why the sky is blue, and why a sunset is red.",
    "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n\nprint(gcd(84, 36))",
    "The recipe needs two cups of flour, one egg, a pinch of salt and a little milk. Mix the flour",
    "In 1969 three astronauts left for the Moon. Two of them landed, and one stayed in orbit while",
    "Dear Sir or Madam, I am writing to ask about the invoice that I received last Monday. It says",
    "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 and so on: each number is twice the one before it",
    "A cache is fast because it is small and near. A memory is large because it is slow and far",
    "Question: which animals lay eggs? Answer: birds, most fish, most reptiles, and the platypus.",
)
BLOCK = 16


def rounding(folder: Path, form: str) -> dict[str, float]:
    """The mean KL divergence from float32, in nats per token, and how often the likeliest token is
    the same, over all tokens of TEXTS."""
    tokenizer = Tokenizer(folder)
    texts = [torch.tensor(tokenizer.encode(text)) for text in TEXTS]

    def logprobs(*how: str) -> torch.Tensor:
        model = load_model(folder, *how)
        return torch.cat([logits(model, text) for text in texts]).log_softmax(-1)

    exact, rounded = logprobs("float32", "cpu", "reference"), logprobs(form, "cpu")
    same = exact.argmax(-1) == rounded.argmax(-1)
    found = {
        "tokens": len(exact),
        "kl": (exact.exp() * (exact - rounded)).sum(-1).mean().item(),
        "same": same.float().mean().item(),
    }
    print(f"{form:9} KL {found['kl']:.1e}, the same likeliest token {found['same']:.1%}")
    return found


def logits(model: Llama, tokens: torch.Tensor, cache: torch.dtype | None = None) -> torch.Tensor:
    """The logits `[tokens, vocabulary]` after every token of a text, which is computed in one step.

    Args:
        cache: dtype of keys and values; by default that of the model.
    """
    config, places = model.config, torch.arange(len(tokens))
    blocks = -(-len(tokens) // BLOCK)
    shape = (blocks, BLOCK, config.num_key_value_heads, config.head_dim)
    dtype = cache or model.cache_dtype
    pools = [
        [torch.zeros(shape, dtype=dtype) for _ in range(config.num_hidden_layers)] for _ in "kv"
    ]
    ends = torch.tensor([0, len(tokens)], dtype=torch.int32)
    tables = torch.arange(blocks, dtype=torch.int32).unsqueeze(0)
    return model(Batch(tokens, places, places, tables, ends[1:], ends, places), *pools)
