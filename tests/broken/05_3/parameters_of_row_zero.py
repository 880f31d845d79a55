"""Uses the parameters of the first row for all."""

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column, check_logits

EXPECT = "with the parameters of row 0"


class SamplingKernel(reference.SamplingKernel):
    def sample(self, logits, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, generators=None):
        check_logits(logits)
        generators = [None] * len(logits) if generators is None else generators
        if len(generators) != len(logits):
            raise ValueError(f"generators must be {len(logits)}, got {len(generators)}")
        temperature = _column("temperature", temperature, logits)
        tokens = logits.argmax(dim=-1)
        drawn = (temperature.squeeze(1) > 0).nonzero().squeeze(1)
        if len(drawn) == 0:
            return tokens
        top_p = _column("top_p", top_p, logits)[:1].expand(len(drawn), 1)
        top_k = _column("top_k", top_k, logits)[:1].expand(len(drawn), 1)
        min_p = _column("min_p", min_p, logits)[:1].expand(len(drawn), 1)
        scaled = logits[drawn].float()
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature[:1]
        scaled = self.top_k(scaled, top_k)
        scaled = self.top_p(scaled, top_p)
        scaled = self.min_p(scaled, min_p)
        probabilities = scaled.softmax(dim=-1)
        tokens[drawn] = self.draw(probabilities, [generators[i] for i in drawn.tolist()])
        return tokens
