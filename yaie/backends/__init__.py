"""How each operator is computed: `registry` chooses, `triton` and `cuda` hold the kernels.

The third back end, the reference, is the plain modules beside this folder.
"""

from yaie.backends.interpreter import choose_interpreter

choose_interpreter()
