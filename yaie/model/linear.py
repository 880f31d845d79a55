"""A matrix product, by torch or by the back end `cpp`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from yaie.ops.cpp import native
from yaie.ops.cpp.native import Rows

GEMV, GATED = "matmul/gemv.cu", "matmul/gated.cu"
# The share of all SMs' time for which the tiles of GATED must have work. With less, torch's product
# and the activation are faster (an H200: notebooks/data/27_gated_h200.json).
ENOUGH = 0.86
FEW_TOKENS = 16  # up to here, reading the weights is what takes time


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16: AVX512-BF16 or AMX."""
    names = "_is_avx512_bf16_supported", "_is_amx_tile_supported"
    return any(getattr(torch.cpu, name, bool)() for name in names)  # bool() is False


class Linear(nn.Module):
    """`x @ weight.T + bias` for `x` of shape `[tokens, in]`, weight `[out, in]`.

    With `rows`, the back end `cpp` multiplies with them as they are stored, one part after the
    other. There a row of the result is independent of the rows beside it, bit for bit, so that a
    request's logits do not depend on its neighbors, except where `torch_is_faster` is true.

    With `by_gemv`, a kernel of the back end `cuda` multiplies a single token. It reads most weights
    faster than torch's, and begins while the kernel before it still runs. Torch, too, chooses its
    kernels by the number of tokens, so a token's last bits depend on its neighbors in either case.

    With `gated_sms`, the number of the card's SMs, a kernel of the back end `cuda` computes the
    product with gate and up and the activation after it, if the tokens keep these SMs busy.

    torch computes a product with a bias by cuBLASLt, and one without by cuBLAS. `zeros` has a bias
    of zeros for each number of tokens that cuBLASLt is to compute; see `yaie.engine.libraries`.
    """

    def __init__(self, weight: nn.Parameter | None, bias: nn.Parameter | None = None):
        super().__init__()
        self.weight, self.bias = weight, bias
        self.rows: Sequence[Rows] = ()
        self.by_gemv, self.gated_sms = False, 0
        self.zeros: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, in]` -> `[tokens, out]`."""
        if self.takes(x):
            from yaie.ops.cuda.launching import launch  # a CPU never imports it

            weight, out = self.weight, x.new_empty(1, len(self.weight))
            launch(GEMV, "gemv", x.dtype, x, weight, self.bias, out, *weight.shape)
            return out
        if not self.rows:
            bias = self.bias
            if self.zeros and not torch.compiler.is_compiling():  # which would fix len(x)
                bias = self.zeros.get(len(x), bias)
            return functional.linear(x, self.weight, bias)
        if not self.torch_is_faster(len(x)):
            return native.product(x, self.rows, self.bias)
        x = x.to(torch.bfloat16)
        out = torch.cat([functional.linear(x, part.data) for part in self.rows], dim=1)
        return out if self.bias is None else out + self.bias

    def of_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor, eps: float,
        gated: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """The product of `add_rms_norm(x, residual)`, or of `rms_norm(x)`, for one token, in one
        kernel. Call it only if `takes(x)`.

        Returns the product, or if `gated`, `silu_and_mul` of it; and x + residual. The kernel that
        runs before it must not write residual.
        """
        from yaie.ops.cuda.launching import launch

        rows, size = self.weight.shape
        rows = rows // 2 if gated else rows
        out, total = x.new_empty(1, rows), x if residual is None else torch.empty_like(x)
        launch(
            *(GEMV, "norm_gemv", x.dtype, x, residual, norm, self.weight, self.bias, out),
            *(None if residual is None else total, rows, size, gated, eps),
        )
        return out, total

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """`silu_and_mul` of the product, in one kernel. Call it only if `takes_gated(x)`."""
        from yaie.ops.cuda.launching import launch

        rows, size = self.weight.shape
        out = x.new_empty(len(x), rows // 2)
        launch(GATED, "gated_product", x.dtype, x, self.weight, out, *out.shape, size)
        return out

    def takes(self, x: torch.Tensor) -> bool:
        """Whether the kernel multiplies x: one aligned row of the weight's dtype. Torch multiplies
        all else."""
        return self.by_gemv and x.shape == (1, self.weight.shape[1]) and self._is_plain(x)

    def takes_gated(self, x: torch.Tensor) -> bool:
        """Whether `gated` is as fast as torch's product of x and the activation after it."""
        if not self.gated_sms or self.bias is not None or not self._is_plain(x):
            return False
        from yaie.ops.cuda.launching import constants

        own = constants(GATED)
        height, width = own["TILE_M"], own["TILE_N"]  # tokens and columns
        tokens, columns = len(x), len(self.weight) // 2
        tiles = -(-tokens // height) * 2 * -(-columns // (2 * width))  # in pairs
        busy = tokens * columns / (height * width)
        fits = tokens * max(self.weight.shape) < 2**31  # the kernels take no more elements
        return fits and busy >= ENOUGH * self.gated_sms * -(-tiles // self.gated_sms)

    def _is_plain(self, x: torch.Tensor) -> bool:
        """Whether x is aligned, has the weight's dtype, and torch, which does not know the kernels,
        need not see what is done with it."""
        if torch.compiler.is_compiling() or x.requires_grad:
            return False  # a tensor that torch traces has no address
        return x.dtype == self.weight.dtype and x.is_contiguous() and x.data_ptr() % 16 == 0

    def torch_is_faster(self, tokens: int) -> bool:
        """Whether torch multiplies faster than the back end `cpp`: in bfloat16, with instructions
        for it, at 2 (AVX-512) to 7 times (AMX) the rate. The last bits then depend on `tokens`."""
        in_bfloat16 = self.rows[0].data.dtype == torch.bfloat16
        return tokens > FEW_TOKENS and in_bfloat16 and multiplies_bfloat16()
