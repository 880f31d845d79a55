"""Every kernel of the table against float64: on the emulator, and on the GPU if any.

Outputs hold NaN before a kernel runs. What is expected of a kernel beyond its result: the same bits
whatever the order of its threads, no finding in checked mode, any alignment. The public operators
that these kernels compute are compared as well, with the kernels of Triton beside them.
"""

from collections.abc import Iterator

import pytest
import torch
from kernel_cases import CASES, LARGE_ROWS, Case, Draw, Shape, Tensors
from launches import (
    NEEDS_TRITON,
    as_tuple,
    captured,
    each_device,
    each_dtype,
    gpu_only,
    name_of,
    same_in_each_order,
    shifted,
    skip_unless_it_runs_on,
)

from yaie.build import jit
from yaie.course.lessons.custom import launch_silu_and_mul
from yaie.course.lessons.ops import elementwise as sums
from yaie.ops import elementwise, norm, rotary
from yaie.ops.cuda.launching import SUFFIXES
from yaie.ops.reference.rotary import rotary_tables

OPERATORS = [case for case in CASES if case.operator is not None]
IN_TRITON = [case for case in OPERATORS if "transpose" not in case.name]

each_kernel = pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(case, d, id=f"{case}-{name_of(d)}") for case in CASES for d in case.dtypes],
)
each_back_end = pytest.mark.parametrize(
    ("case", "backend"),
    [pytest.param(case, "cuda", id=f"{case}-cuda") for case in OPERATORS]
    + [pytest.param(case, "triton", id=f"{case}-triton", marks=NEEDS_TRITON) for case in IN_TRITON],
)


def drawing(dtype: torch.dtype, device: str = "cpu", seed: int = 0) -> Draw:
    """Draws normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *sizes: torch.randn(*sizes, generator=generator).to(device, dtype)


def poisoned(case: Case, inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """The outputs of a launcher, full of NaN."""
    options = {"dtype": case.output_dtype or dtype, "device": inputs[0].device}
    return tuple(torch.full(shape, torch.nan, **options) for shape in case.outputs(*inputs))


def run(
    case: Case, inputs: Tensors, dtype: torch.dtype, checked: bool = False, out: Tensors = ()
) -> Tensors:
    """The outputs of a launcher that was called directly; in checked mode nothing may be found."""
    module = jit.load(case.file, checked)
    if (how := module.how(inputs[0].device).words).startswith("needs"):
        pytest.skip(how)
    out = out or poisoned(case, inputs, dtype)
    getattr(module, f"{case.name}_{SUFFIXES[dtype]}")(*case.arguments(inputs, out))
    assert not checked or module.report.clean, module.report
    return out


def each_small(case: Case, draw: Draw) -> Iterator[tuple[Shape, Tensors]]:
    for shape in case.small_shapes:
        yield shape, case.inputs(shape, draw)


# ---------------------------------------------------------------------------------- launchers


@each_device
@each_kernel
def test_equals_the_oracle(case: Case, dtype: torch.dtype, device: str) -> None:
    """On the emulator small shapes with every access checked, large ones in one dtype, in turn."""
    every = device == "cuda" or dtype == case.dtypes[CASES.index(case) % len(case.dtypes)]
    for shape in case.shapes if every else case.small_shapes:
        inputs = case.inputs(shape, drawing(dtype, device))
        checked = device == "cpu" and shape in case.small_shapes
        case.check(run(case, inputs, dtype, checked), inputs)


@each_kernel
def test_same_bits_in_any_order(case: Case, dtype: torch.dtype) -> None:
    for _, inputs in each_small(case, drawing(dtype)):
        got = same_in_each_order(lambda inputs=inputs: run(case, inputs, dtype))
        case.check(got, inputs)


@each_kernel
def test_any_alignment(case: Case, dtype: torch.dtype) -> None:
    """Each tensor in turn at an address that is not a multiple of 16, then all of them."""
    if not case.any_alignment:
        moved = tuple(map(shifted, case.inputs(case.small_shapes[-1], drawing(dtype))))
        with pytest.raises(jit.KernelError, match="cudaErrorMisalignedAddress"):
            run(case, moved, dtype)
        return
    for shape in case.small_shapes[-2:]:
        inputs = case.inputs(shape, drawing(dtype))
        tensors = [*inputs, *poisoned(case, inputs, dtype)]
        moved = [shifted(tensor) for tensor in tensors]
        choices = [[*tensors[:i], moved[i], *tensors[i + 1 :]] for i in range(len(tensors))]
        for choice in [*choices, moved]:
            given, out = tuple(choice[: len(inputs)]), tuple(choice[len(inputs) :])
            for tensor in out:
                tensor.fill_(torch.nan)
            case.check(run(case, given, dtype, checked=True, out=out), given)


def test_accesses_of_a_header_are_told_on_the_line_that_calls() -> None:
    module = jit.load("elementwise/vector_add.cu", checked=True)
    x, out = torch.ones(512), torch.empty(512)
    module.vector_add_wide_f32(x, x, out, 512)
    lines = module.source.splitlines()
    for access in module.report.accesses:
        assert "16(" in lines[access.line - 1] and access.size == 16
        assert access.per_request == access.ideal == 16.0


# ---------------------------------------------------------------------------------- operators


@each_device
@each_dtype()
@each_back_end
@pytest.mark.usefixtures("poison")
def test_public_operator(case: Case, backend: str, dtype: torch.dtype, device: str) -> None:
    skip_unless_it_runs_on(device, backend)
    shapes = case.small_shapes
    if device == "cuda":
        shapes = [*case.shapes, *(LARGE_ROWS if (1823, 781) in case.shapes else ())]
    elif backend == "triton":
        few = (s for s in case.shapes if len(s) == 1 or s[0] < 2000)  # few rows: each is a program
        shapes = [shape for shape in few if torch.Size(shape).numel() <= 20_000]
    for shape in shapes:
        if backend == "triton" and "rms_norm" in case.name and shape[1] > 32768:
            continue  # it says that it cannot
        inputs = case.inputs(shape, drawing(dtype, device))
        case.check(as_tuple(case.operator(*inputs, backend=backend)), inputs, backend)


@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@each_device
def test_compiled_as_one_graph(device: str, compiler: str) -> None:
    draw = drawing(torch.float32, device)
    x, y, weight = draw(5, 64), draw(5, 64), draw(64)
    cos, sin = (table.to(device) for table in rotary_tables(16, 40))
    positions = torch.arange(5, device=device)

    def layer(x: torch.Tensor, y: torch.Tensor, backend: str) -> torch.Tensor:
        normed, total = norm.add_rms_norm(x, y, weight, backend=backend)
        heads = rotary.rotary(normed.view(5, 4, 16), positions, cos, sin, backend=backend)
        both = torch.cat((heads.view(5, 64), total), dim=1)
        gated = elementwise.silu_and_mul(both, backend=backend)
        gated = norm.rms_norm(gated, weight, backend=backend)
        gated = sums.add(gated, sums.add_relu(x, y, backend=backend), backend=backend)
        return gated * 2.0

    torch._dynamo.reset()
    # Which vector instructions there are, inductor compiles programs for 20 s to learn.
    options = {"cpp.vec_isa_ok": True} if compiler == "inductor" else None
    compiled = torch.compile(layer, fullgraph=True, backend=compiler, options=options)
    wanted = layer(x, y, "reference")
    torch.testing.assert_close(compiled(x, y, "cuda"), wanted, rtol=1e-5, atol=1e-5)


@each_device
@each_dtype()
@pytest.mark.parametrize("backend", ["cuda", pytest.param("triton", marks=NEEDS_TRITON)])
def test_add_relu_is_relu_of_the_sum(backend: str, dtype: torch.dtype, device: str) -> None:
    """Of every pair of awkward numbers, NaN and both infinities among them."""
    skip_unless_it_runs_on(device, backend)
    limits = torch.finfo(dtype)
    numbers = [0.0, 1.0, 1 / 3, limits.max, limits.tiny, limits.tiny / 4, limits.eps, torch.inf]
    numbers = torch.tensor(numbers, dtype=dtype)
    numbers = torch.cat((numbers, -numbers, torch.tensor([torch.nan], dtype=dtype)))
    x, y = torch.cartesian_prod(numbers, numbers).unbind(1)
    x, y = x.contiguous(), y.contiguous()
    wanted = torch.relu(x + y)
    for size in (len(x), len(x) - 1):  # through pairs, and one by one
        got = sums.add_relu(*(t.to(device)[-size:] for t in (x, y)), backend=backend).cpu()
        torch.testing.assert_close(got, wanted[-size:], rtol=0.0, atol=0.0, equal_nan=True)


@each_device
@each_dtype()
@pytest.mark.parametrize("head_dim", [6, 16, 64])
def test_rotary_of_a_part(dtype: torch.dtype, head_dim: int, device: str) -> None:
    """Queries and keys may lie side by side in one tensor, as a fused product leaves them."""
    draw = drawing(dtype, device)
    fused = draw(9, 7, head_dim)
    cos, sin = (table.to(device) for table in rotary_tables(head_dim, 40))
    positions = torch.arange(9, device=device)
    for part in (fused[:, :4], fused[:, 4:6], fused[:, 6:], fused[::2, 1:3], fused[:0]):
        arguments = (positions[: len(part)], cos, sin)
        got = rotary.rotary(part, *arguments, backend="cuda")
        alone = rotary.rotary(part.contiguous(), *arguments, backend="cuda")
        assert torch.equal(got, alone)
    turned = draw(9, head_dim, 4).transpose(1, 2)  # a head is not contiguous
    got = rotary.rotary(turned, positions, cos, sin, backend="cuda")
    reference = rotary.rotary(turned, positions, cos, sin, backend="reference")
    torch.testing.assert_close(got, reference)


def test_bad_arguments() -> None:
    x, weight = torch.randn(4, 8), torch.randn(8)
    with pytest.raises(ValueError, match=r"y must have shape \[4, 8\], got \[4, 7\]"):
        sums.add(x, torch.randn(4, 7), backend="cuda")
    with pytest.raises(TypeError, match="y must be float32, got float16"):
        sums.add_relu(x, x.half(), backend="cuda")
    with pytest.raises(ValueError, match="x must be contiguous"):
        sums.add_relu(x.t(), x.t(), backend="cuda")
    with pytest.raises(ValueError, match="x must have an even number of columns, got 7"):
        elementwise.silu_and_mul(torch.randn(4, 7), backend="cuda")
    with pytest.raises(ValueError, match=r"weight must have shape \[8\], got \[7\]"):
        norm.rms_norm(x, weight[:7], backend="cuda")
    with pytest.raises(ValueError, match=r"cannot: the kernels take float32, .* got torch.float64"):
        norm.rms_norm(x.double(), weight.double(), backend="cuda")
    with pytest.raises(TypeError, match=r"argument 'y' must be a tensor of float32, got float16"):
        jit.load("elementwise/add_relu.cu").add_relu_f32(x, x.half(), x, 32)
    with pytest.raises(TypeError, match=r"float32, float16 or bfloat16, got .*float64"):
        launch_silu_and_mul(x.double(), x.double()[:, :4])


@gpu_only
@pytest.mark.parametrize("case", OPERATORS, ids=str)
def test_captured_in_a_cuda_graph(case: Case, device: str) -> None:
    """Kernels are queued on the current stream, so a graph can hold them and run them again."""
    shape = case.small_shapes[-1]
    inputs = case.inputs(shape, drawing(torch.bfloat16, device))
    got, replay = captured(lambda: case.operator(*inputs, backend="cuda"))
    fresh = case.inputs(shape, drawing(torch.bfloat16, device, seed=1))
    for old, new in zip(inputs, fresh, strict=True):
        old.copy_(new)
    replay()
    case.check(as_tuple(got), inputs)
