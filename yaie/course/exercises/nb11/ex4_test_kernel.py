"""11.4: which of the planted kernels `test_kernel` accepts."""

import traceback
from collections.abc import Callable, Iterator

from yaie.course.core.observe import Case, Observer, is_unsolved
from yaie.course.exercises.nb11.planted import planted
from yaie.course.lessons.kernel_test import Kernel


def cases() -> Iterator[Case]:
    for kernel in planted():
        yield Case(f"a kernel that {kernel.what}", kernel=kernel)


def observe(test_kernel: Callable[[Kernel], None], case: Case, see: Observer) -> None:
    kernel = case.kernel
    if not kernel.look_for:
        verdict, told = "accepts", ""
        make, last = kernel.make(), []

        def noted(x, *others):
            last[:] = [str(x.dtype).removeprefix("torch.")]
            make(x, *others)

        with see.call("test_kernel"):
            try:
                test_kernel(noted)
            except AssertionError as error:  # often without words: then its line has to tell
                line = traceback.extract_tb(error.__traceback__)[-1].line
                told = f" What your test refused: {words}" if (words := str(error) or line) else ""
                verdict = f"refuses, in {last[0]}" if last else "refuses"
        problem = "" if verdict == "accepts" else f"is {verdict!r}, expected 'accepts'.{told}"
        why = "The kernel keeps its promises; it may round differently."
        see.note("your test's verdict", verdict, problem, why)
        return
    try:
        test_kernel(kernel.make())
        verdict = "accepts"
    except Exception as error:
        if is_unsolved(error):
            raise
        verdict = "refuses"
    see.equal("your test's verdict", verdict, "refuses", kernel.look_for)
