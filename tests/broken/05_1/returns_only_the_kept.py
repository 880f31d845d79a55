"""Returns k logits instead of a row."""

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "dropped tokens stay in their place as -inf"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        k = _column("top_k", k, logits).long().clamp(max=logits.shape[-1])
        return logits.topk(int(k.max()), dim=-1).values
