"""Multiplies the incoming gradient in place."""

from yaie.course.lessons import custom as reference

EXPECT = "It is not yours"


class RMSNorm(reference.RMSNorm):
    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        wide = x.to(scale.dtype)
        of_weight = (gradient * wide * scale).flatten(0, -2).sum(dim=0)
        weighted = gradient.mul_(weight)
        mean = (weighted * wide).mean(dim=-1, keepdim=True)
        of_x = scale * (weighted - wide * scale.square() * mean)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None
