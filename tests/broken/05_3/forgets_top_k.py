"""Never applies top-k."""

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column, check_logits

EXPECT = "this filter was not applied"


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
        top_p = _column("top_p", top_p, logits)[drawn]
        _column("top_k", top_k, logits)
        min_p = _column("min_p", min_p, logits)[drawn]
        scaled = logits[drawn].float()
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature[drawn]
        scaled = self.top_p(scaled, top_p)
        scaled = self.min_p(scaled, min_p)
        probabilities = scaled.softmax(dim=-1)
        tokens[drawn] = self.draw(probabilities, [generators[i] for i in drawn.tolist()])
        return tokens
