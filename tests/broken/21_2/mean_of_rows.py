"""The gradient of weight as a mean over rows."""

from yaie.course.lessons import custom as reference

EXPECT = "the sum, not the mean"


class RMSNorm(reference.RMSNorm):
    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        wide = x.to(scale.dtype)
        weighted = gradient * weight.to(scale.dtype)
        mean = (weighted * wide).mean(dim=-1, keepdim=True)
        of_x = scale * (weighted - wide * scale.square() * mean)
        of_weight = (gradient * wide * scale).flatten(0, -2).mean(dim=0)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None
