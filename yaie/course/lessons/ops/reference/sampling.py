"""Tokens from seeds, in plain PyTorch: random numbers that are computed where they are needed."""

import torch

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def gumbel_sample(
    logits: torch.Tensor, temperature: torch.Tensor, seed: torch.Tensor, step: torch.Tensor
) -> torch.Tensor:
    """A token for each row: the largest of logit + temperature × Gumbel noise.

    That is a draw from softmax(logits / temperature). The noise of a token is -log(-log(u)), with
    u from `uniforms(seed, step, token)`: it depends on nothing else in the batch.

    Args:
        logits: `[rows, size]`. A NaN is never drawn.
        temperature: float32 `[rows]`. 0 takes the first of the largest.
        seed, step: int64 `[rows]`, the random stream of each row and the place in it.

    Returns:
        int64 `[rows]`; -1 where a row has nothing above -inf.
    """
    ids = torch.arange(logits.shape[1], device=logits.device)
    noise = (-uniforms(seed.unsqueeze(1), step.unsqueeze(1), ids).log()).log()
    scores = logits.float() - temperature.unsqueeze(1) * noise
    scores = scores.masked_fill(scores.isnan(), -torch.inf)
    return torch.where(scores.amax(dim=1) > -torch.inf, scores.argmax(dim=1), -1)


def uniforms(seed: torch.Tensor, step: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """A number above 0 and below 1 for each seed, step and token: float32, 2**23 values.

    With 24 bits, the largest and a half would be rounded to 1, whose noise is infinite.
    """
    return ((philox(seed, step, token) >> 9).float() + 0.5) * 2.0**-23


def philox(seed: torch.Tensor, step: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """32 random bits for each seed, step and token, as int64.

    A counter of 128 bits, (token / 4, step, 0), is turned by ten rounds with the key `seed` into
    four random words; token % 4 says which one. There is no state: any number of any stream can be
    computed directly. Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
    """
    a, b = (token >> 2) & _LOW, step & _LOW
    c, d = (step >> 32) & _LOW, torch.zeros_like(step)
    key = [seed & _LOW, (seed >> 32) & _LOW]
    for _ in range(10):
        (high_a, low_a), (high_c, low_c) = _multiply(a, 0), _multiply(c, 1)
        a, b, c, d = high_c ^ b ^ key[0], low_c, high_a ^ d ^ key[1], low_a
        key = [(part + more) & _LOW for part, more in zip(key, _INCREMENTS, strict=True)]
    word = token & 3
    return torch.where(word < 2, torch.where(word == 0, a, b), torch.where(word == 2, c, d))


def _multiply(x: torch.Tensor, which: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The upper and the lower 32 bits of a product, of which int64 could not hold all."""
    factor = _MULTIPLIERS[which]
    low = x * (factor & 0xFFFF)
    middle = x * (factor >> 16) + (low >> 16)
    return middle >> 16, ((middle << 16) | (low & 0xFFFF)) & _LOW
