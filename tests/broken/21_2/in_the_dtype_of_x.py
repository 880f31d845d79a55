"""Computes in the dtype of x, bfloat16 as it may be."""

from yaie.course.lessons import custom as reference

EXPECT = "round once, at the end"


class RMSNorm(reference.RMSNorm):
    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        wide, scale = x, scale.to(x.dtype)
        weighted = gradient * weight
        mean = (weighted * wide).mean(dim=-1, keepdim=True)
        of_x = scale * (weighted - wide * scale.square() * mean)
        of_weight = (gradient * wide * scale).flatten(0, -2).sum(dim=0)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None
