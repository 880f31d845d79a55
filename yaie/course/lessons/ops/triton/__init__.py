"""The lessons' operators by Triton kernels."""

from yaie.ops import triton as triton  # says why, where there is no Triton
