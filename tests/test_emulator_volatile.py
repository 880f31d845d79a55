"""Updates through volatile pointers that thread blocks lose, and idioms that lose none."""

import pytest
import torch
from emulated import launcher

from yaie.build import jit
from yaie.emulator.checks import _counts, _is_update
from yaie.emulator.runtime import ORDERS, settings

KERNEL = """__global__ void k{0}(const float* x, volatile float* out, int* lock) {{
    volatile int* turn = lock + 1;
    if (threadIdx.x == 0) {{
        {1}
    }}
}}
"""
UPDATES = {  # none is a fault under a lock
    "a sum": "out[0] = out[0] + x[blockIdx.x];",
    "an assignment": "out[0] += x[blockIdx.x];",
    "a count": "++out[0];",
    "a pointer": "volatile float* sum = out;\n        *sum = x[blockIdx.x] + *sum;",
    "a maximum": "out[0] = fmaxf(out[0], x[blockIdx.x]);",
}
RIGHT = {
    "an element each": "out[blockIdx.x] = out[blockIdx.x] + x[blockIdx.x];",
    "a turn": "int me = atomicAdd(lock, 1);\n while (*turn != me) {}\n *turn = me + 1;",
    "a turn on one line": "int me = atomicAdd(lock, 1); while (*turn != me); *turn = me + 1;",
    "a turn that another variable names": "int next = atomicAdd(lock, 1) + 1;\n"
    "        while (*turn + 1 != next) {}\n        *turn = next;",
    "a turn that counts": "int me = atomicAdd(lock, 1); while (*turn != me) {} ++*turn;",
    "a flag that all raise": "if (!*turn) *turn = 1;",
    "the last one": "if (atomicAdd(lock, 1) == gridDim.x - 1) out[0] = out[0] + 1;",
    "a ticket and a fence": """int me = atomicAdd(lock, 1);
        while (*turn != me) {}
        __threadfence();
        out[0] = out[0] + x[blockIdx.x];
        __threadfence();
        *turn = me + 1;""",
} | {
    f"{name}, under a lock": f"""while (atomicCAS(lock, 0, 1) != 0) {{}}
        {fence}
        {update}
        __threadfence();
        atomicExch(lock, 0);"""
    for name, update in UPDATES.items()
    for fence in ("__threadfence();", "")
}  # fmt: skip
WRONG = {name: code for name, code in UPDATES.items() if name != "a maximum"}
ALL = RIGHT | WRONG
LAUNCH = "if (which == {0}) k{0}<<<4, 32, 0, stream>>>(x, out, lock);\n"
SOURCE = "".join(KERNEL.format(i, code) for i, code in enumerate(ALL.values())) + launcher(
    "run",
    "const float* x, float* out, int* lock, int which",
    "".join(LAUNCH.format(i) for i in range(len(ALL))),
)


@pytest.fixture(scope="module")
def module():
    return jit.load(SOURCE, checked=True, name="volatile.cu")


def report(module, name, order):
    with settings(order=order, seed=2, time_limit=2):
        module.run(
            torch.arange(4.0), torch.ones(4), torch.zeros(2, dtype=torch.int32), [*ALL].index(name)
        )
    return module.report


@pytest.mark.parametrize("name", RIGHT)
def test_what_loses_none_is_not_accused(module, name):
    for order in ORDERS:
        found = report(module, name, order)
        assert found.clean, (order, found)


@pytest.mark.parametrize("name", WRONG)
def test_an_update_that_a_thread_block_may_lose_is_told(module, name):
    for order in ORDERS:
        (found,) = report(module, name, order).findings
        assert found.kind == "race"
        assert SOURCE.splitlines()[found.line - 1].strip() == WRONG[name].splitlines()[-1].strip()
        assert "thread blocks run in no order, and an update may be lost" in found.message


def test_which_lines_update_what_they_read():
    for line in ("++*v;", "v[0] += 3;", "(*v) = (*v) * 2;", "if (x) *v = 2 + *v;"):
        assert _is_update(line), line
    for line in ("*turn = next;", "while (*turn != me); *turn = me + 1;", "s[i + k] = t[j + k];"):
        assert not _is_update(line), line


def test_which_updates_count_even_if_two_store_the_same_value():
    for line in ("++*v;", "v[0] += 3;", "*v = *v + 1;", "a[i] = 2 * a[i];"):
        assert _counts(line), line
    for line in ("*v |= 1;", "v[0] = fmaxf(v[0], x);", "if (!*v) *v = 1;", "*v = *v & mask;"):
        assert not _counts(line), line
