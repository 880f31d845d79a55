"""The scale taken for a constant: the second term is missing."""

from yaie.course.lessons import custom as reference

EXPECT = "The second term is missing"


class RMSNorm(reference.RMSNorm):
    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        wide = x.to(scale.dtype)
        weighted = gradient * weight.to(scale.dtype)
        of_x = scale * weighted
        of_weight = (gradient * wide * scale).flatten(0, -2).sum(dim=0)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None
