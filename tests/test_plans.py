"""Kept launches: a call by its plan computes what the operator does, and other calls have none.

The plans are a GPU's. Here their launchers run in the emulator, which is given the tensors that the
plan's addresses belong to.
"""

import copy
import gc
import math
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from launches import Seen

from yaie.bench.host import python_calls
from yaie.build.jit import KernelError, Module
from yaie.course.lessons.ops.attention import attention_forward
from yaie.course.lessons.ops.shared_prefix import shared_prefix_attention
from yaie.emulator.signature import Launcher
from yaie.ops import plans, registry
from yaie.ops.attention import paged_attention_forward
from yaie.ops.elementwise import silu_and_mul
from yaie.ops.kv import reshape_and_cache
from yaie.ops.norm import add_rms_norm, rms_norm
from yaie.ops.rotary import rotary
from yaie.ops.sampling import sample
from yaie.ops.triton import runtime

STREAM = 77
GUARDS = plans.guards.TensorGuards


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plans, and the registry as if no other test had changed it."""
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: STREAM, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    before = set(registry.changed)
    registry.changed.clear()
    yield
    registry.changed.update(before)


def kept() -> list[int]:
    """How many launches each plan repeats, the oldest of each kind first; 0 if it repeats none and
    calls the operator."""
    texts = [plan.__doc__ for known in plans._plans.values() for plan in reversed(known)]
    assert all(("call(*arguments)" in text) == (", stream)" not in text) for text in texts)
    return [text.count(", stream)") for text in texts]


def with_addresses(launcher: Launcher, values: list, addresses: tuple[int, ...]) -> list:
    """The values of a launch with other pointers, and another stream as the last."""
    given = iter(addresses)
    places = zip(launcher.parameters, values, strict=True)
    values = [next(given) if p.pointer or p.is_stream else value for p, value in places]
    assert not list(given)
    return values


def again(start: Callable[[tuple], int | None], first: list) -> dict[str, object]:
    """What `Module.repeat` returns; `start` takes the first values and the new addresses."""
    pack = lambda first, *addresses: (first, addresses)  # noqa: E731
    return {"start": start, "pack": pack, "first": first, "fail": pytest.fail}


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> dict[int, torch.Tensor]:
    """Tensors by address; plans launch in the emulator, and their memory begins as NaN."""
    tensors: dict[int, torch.Tensor] = {}
    empty = plans._EMPTY["cpu"]

    def poisoned(*arguments):
        tensor = empty(*arguments)
        tensors[tensor.data_ptr()] = tensor
        return tensor.fill_(math.nan if tensor.is_floating_point() else -9)

    def repeat(module, launcher, index, first):
        def start(packed):
            *values, stream = with_addresses(launcher, *packed)
            assert index == -1 and stream == STREAM
            given = [
                (tensors[value] if value else None) if parameter.pointer else value
                for parameter, value in zip(launcher.wanted, values, strict=True)
            ]  # fmt: skip
            module._emulated().call(launcher, given)

        return again(start, first)

    monkeypatch.setitem(plans._EMPTY, "cpu", poisoned)
    monkeypatch.setattr(Module, "repeat", repeat)
    return tensors


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Tensors say that they are on a GPU. What a plan launches is noted: the launcher's name, the
    values, the stream and the card."""
    found: list[tuple] = []

    def repeat(module, launcher, index, first):
        def start(packed):
            *values, stream = with_addresses(launcher, *packed)
            found.append((launcher.name, values, stream, index))

        return again(start, first)

    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(Module, "repeat", repeat)
    return found


def draw(seed: int) -> dict[str, tuple]:
    """By operator: the operator, arguments, and which of them it writes into."""
    torch.manual_seed(seed)
    lengths = torch.tensor([5, 8], dtype=torch.int32)
    tables = torch.randperm(6, dtype=torch.int32).view(2, 3)
    starts = torch.tensor([0, 1, 2], dtype=torch.int32)
    several = torch.tensor([0, 3, 5], dtype=torch.int32)
    pools = torch.randn(6, 4, 2, 16), torch.randn(6, 4, 2, 16)
    x, q = torch.randn(3, 40), torch.randn(2, 4, 16)
    cos = torch.randn(9, 8)
    wide = torch.randn(3, 3, 2, 16)  # keys and values of a fused product: tokens lie apart
    row = [torch.rand(3) + 0.5, torch.tensor([0, 5, 3], dtype=torch.int32), torch.rand(3) * 0.5]
    return {
        "rms_norm": (rms_norm, (x, torch.randn(40), 1e-5)),
        "add_rms_norm": (add_rms_norm, (x, torch.randn(3, 40), torch.randn(40))),
        "silu_and_mul": (silu_and_mul, (x,)),
        "rotary": (rotary, (q, torch.tensor([seed, 4]), cos, torch.randn(9, 8))),
        "attention": (attention_forward, (q, torch.randn(5, 2, 16), torch.randn(5, 2, 16))),
        "decode": (paged_attention_forward, (q, *pools, tables, lengths, starts)),
        "prefill": (paged_attention_forward,
                    (torch.randn(5, 4, 16), *pools, tables, lengths, several, 0.3)),
        "shared": (shared_prefix_attention, (q, *pools, tables[:1].repeat(2, 1), lengths, 4)),
        "reshape_and_cache": (reshape_and_cache,
                              (wide[:, 0], wide[:, 1], *pools, torch.randperm(24)[:3])),
        "sample": (sample, (x, *row, torch.zeros(3), torch.rand(3, dtype=torch.float64))),
    }  # fmt: skip


@pytest.mark.parametrize("name", draw(0))
def test_by_a_plan_the_same(name: str, emulated: dict[int, torch.Tensor]) -> None:
    for seed in (0, 1, 2):
        operator, arguments = draw(seed)[name]
        wanted = draw(seed)[name][1]
        want = operator(*wanted, backend="reference")
        emulated.update({x.data_ptr(): x for x in arguments if isinstance(x, torch.Tensor)})
        before = [x._version for x in arguments if isinstance(x, torch.Tensor)]
        written = (2, 3) if name == "reshape_and_cache" else ()
        got = plans.launch(operator, arguments, "cuda", written)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for i, (x, y) in enumerate(zip(arguments, wanted, strict=True)):
            if isinstance(x, torch.Tensor):
                torch.testing.assert_close(x, y)
                assert x._version == before[i] + (i in written)
    assert kept() == [1]


def test_what_is_not_kept(emulated: dict[int, torch.Tensor]) -> None:
    """The reference launches nothing; of strided tables a copy is launched."""
    x, weight = torch.randn(3, 40), torch.randn(40)
    plans.launch(rms_norm, (x, weight), "reference", ())
    q, pool = torch.randn(2, 4, 16), torch.randn(6, 4, 2, 16)
    tables = torch.arange(6, dtype=torch.int32).view(2, 3)
    lengths, ends = torch.tensor([3, 4]).int(), torch.tensor([0, 1, 2]).int()
    apart = tables.repeat_interleave(2, 1)[:, ::2]
    for lie in (apart, tables):
        given = (q, pool, pool.clone(), lie, lengths, ends)
        plans.launch(paged_attention_forward, given, "cuda", ())
    assert kept() == [0, 0, 1]


def test_a_tensor_given_twice_does_not_decide_for_two(emulated: dict[int, torch.Tensor]) -> None:
    """Nor an empty one, which has no address."""
    x, y, weight = torch.randn(3, 40), torch.randn(3, 40), torch.randn(40)
    plans.launch(add_rms_norm, (x, x, weight), "cuda", ())
    plans.launch(rms_norm, (x[:0], weight), "cuda", ())
    assert not kept()
    emulated.update({t.data_ptr(): t for t in (x, y, weight)})
    for given in ((x, y, weight), (x, y, weight), (x, x, weight)):  # the last by the plan of two
        got = plans.launch(add_rms_norm, given, "cuda", ())
        torch.testing.assert_close(got, add_rms_norm(*given, backend="reference"))
    assert len(kept()) == 1


def test_other_arguments_have_other_plans(emulated: dict[int, torch.Tensor]) -> None:
    x, weight = torch.randn(4, 40), torch.randn(40)
    for given in (
        (x, weight),
        (x[:2], weight),
        (x[1:3], weight),
        (x, weight, 1e-3),
        (x[:2], weight),
        (x, weight, 1),
        (x, weight, 1.0),
    ):
        emulated.update({t.data_ptr(): t for t in given if isinstance(t, torch.Tensor)})
        got = plans.launch(rms_norm, given, "cuda", ())
        torch.testing.assert_close(got, rms_norm(*given, backend="reference"))
    assert len(kept()) == 5  # the same alignment, the same plan
    with pytest.raises(ValueError, match="weight must have shape"):
        plans.launch(rms_norm, (x, weight[:3]), "cuda", ())
    past = torch.randn(41)[1:]  # 4 bytes past a multiple of 16
    plans.launch(rms_norm, (x, past), "cuda", ())
    wide = torch.randn(4, 40, dtype=torch.float64)[:, :40]
    with pytest.raises(TypeError, match="weight must be float64"):
        plans.launch(rms_norm, (wide, weight), "cuda", ())
    assert len(kept()) == 6 and plans.recording() is None


def test_a_plan_holds_no_tensor(launched: list) -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    held = [weakref.ref(t) for t in (x, weight, rms_norm(x, weight, backend="cuda"))]
    del x, weight
    gc.collect()
    assert len(kept()) == 1 and [ref() for ref in held] == [None] * 3


def test_an_error_in_a_plan_shows_its_line(monkeypatch) -> None:
    true_repeat = Module.repeat

    def repeat(module, launcher, index, first):
        monkeypatch.setitem(module._on_gpu, index, {launcher.name: lambda packed: 700})
        return true_repeat(module, launcher, index, first)

    monkeypatch.setattr(Module, "repeat", repeat)
    for operator, given, line in (
        (rms_norm, (torch.randn(3, 40), torch.randn(40)), ", at_x0, at_x1, at_y2, stream)"),
        (silu_and_mul, (torch.randn(3, 40),), ", at_x0, at_y1, stream)"),
    ):
        plans.launch(operator, given, "cuda", ())
        with pytest.raises(KernelError, match=r"returned .*: it may be an earlier kern") as error:
            plans.launch(operator, given, "cuda", ())
        assert line in "".join(traceback.format_exception(error.value))


def test_each_call_has_its_own_memory(launched: list) -> None:
    """So a call in a CUDA graph keeps what the graph writes to."""
    x, weight = torch.randn(3, 40), torch.randn(40)
    results = [rms_norm(x, weight, backend="cuda") for _ in range(4)]
    assert len({result.data_ptr() for result in results}) == 4
    assert [values[2] for _, values, _, _ in launched] == [r.data_ptr() for r in results[1:]]
    assert all(values[:2] == [x.data_ptr(), weight.data_ptr()] for _, values, _, _ in launched)


class CardGuards:
    """Torch's guards, which also compare what `get_device` returns, as for a GPU's tensors."""

    def __init__(self, *tensors: torch.Tensor, **options: object) -> None:
        self.card, self.guards = tensors[0].get_device(), GUARDS(*tensors, **options)

    def check(self, *tensors: torch.Tensor) -> bool:
        return self.card == tensors[0].get_device() and self.guards.check(*tensors)


def test_a_plan_launches_on_the_stream_and_card_of_its_call(launched, monkeypatch) -> None:
    monkeypatch.setattr(plans.guards, "TensorGuards", CardGuards)
    x, weight = torch.randn(3, 40), torch.randn(40)
    streams = {-1: 5, 1: 9}
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", streams.__getitem__)
    rms_norm(x, weight, backend="cuda")
    rms_norm(x, weight, backend="cuda")
    streams[-1] = 6
    rms_norm(x, weight, backend="cuda")
    assert [told[2:] for told in launched] == [(5, -1), (6, -1)]
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 1)
    card = [-1]

    @contextmanager
    def switched(index):
        card.append(index)
        yield
        card.pop()

    monkeypatch.setattr(torch.cuda, "device", switched)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: card[-1])
    monkeypatch.setattr(Module, "_launch", lambda *_: None)  # what it would launch on card 1
    rms_norm(x, weight, backend="cuda")
    assert len(launched) == 2 and len(kept()) == 2  # a plan of its own
    rms_norm(x, weight, backend="cuda")
    assert launched[-1][2:] == (9, 1)


@pytest.mark.parametrize("change", ["replaced", "preferred"])
def test_a_changed_registry_has_no_plans(change: str, launched, monkeypatch) -> None:
    """Functions of others may do more than launch; other operators go on as before."""
    monkeypatch.setitem(registry._FUNCTIONS, "rms_norm", dict(registry._FUNCTIONS["rms_norm"]))
    monkeypatch.setattr(registry, "_preferred", {})
    before = set(registry.changed)
    x, y, weight = torch.randn(3, 40), torch.randn(3, 40), torch.randn(40)
    for _ in range(2):
        rms_norm(x, weight, backend="cuda")
        rms_norm(x, weight)
    try:
        name = "cuda" if change == "replaced" else "mine"
        registry.register("rms_norm", name, lambda x, weight, eps: x + 1)
        options = {"backend": "cuda"}
        if change == "preferred":
            registry.prefer("rms_norm", "mine")
            options = {}
        for _ in range(2):
            assert torch.equal(rms_norm(x, weight, **options), x + 1)
        launched.clear()
        for _ in range(2):
            add_rms_norm(x, y, weight, backend="cuda")
        assert [told[0] for told in launched] == ["add_rms_norm_f32"]
    finally:
        registry.changed.clear()
        registry.changed.update(before)


def test_a_gradient_is_refused_though_there_is_a_plan(launched: list) -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    for _ in range(2):
        rms_norm(x, weight, backend="cuda")
    wanting = weight.requires_grad_()
    for mode in (None, torch.no_grad, torch.inference_mode):
        if mode is not None:
            with mode():
                for _ in range(2):  # the first makes a plan of its own
                    assert not rms_norm(x, wanting, backend="cuda").requires_grad
        with pytest.raises(NotImplementedError, match="rms_norm has no gradient here"):
            rms_norm(x, wanting, backend="cuda").sum().backward()
    assert len(launched) == 3


def test_torch_sees_a_call_though_there_is_a_plan(launched: list) -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    for _ in range(2):
        rms_norm(x, weight, backend="cuda")
    with Seen() as seen:
        want = rms_norm(x, weight, backend="cuda")
    assert "yaie.rms_norm.default" in seen.names and len(launched) == 1
    torch.testing.assert_close(want, rms_norm(x, weight, backend="reference"))


def test_a_call_that_torch_transforms_is_not_asked_for_addresses(launched: list) -> None:
    x, weights = torch.randn(3, 40), torch.randn(2, 40)
    for _ in range(2):
        rms_norm(x, weights[0], backend="cuda")
    got, want = (
        torch.vmap(partial(rms_norm, backend=backend), (None, 0))(x, weights)
        for backend in ("cuda", "reference")
    )
    torch.testing.assert_close(got, want)
    assert len(launched) == 1


def test_arguments_that_are_wrong_are_named(launched: list) -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    for _ in range(2):
        rms_norm(x, weight, backend="cuda")
    with pytest.raises(TypeError, match="weight must be a tensor, got list"):
        rms_norm(x, [1.0], backend="cuda")
    with pytest.raises(ValueError, match="backend of rms_norm must be"):
        rms_norm(x, weight, backend="cudda")
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        rms_norm(x, weight, epsilon=1e-5, backend="cuda")
    assert plans.recording() is None


def test_there_are_never_more_than_so_many(launched, monkeypatch) -> None:
    monkeypatch.setattr(plans, "MOST", 5)
    weight = torch.randn(8)
    for rows in [*range(1, 20), 1, 2]:
        x = torch.randn(rows, 8)
        rms_norm(x, weight, backend="cuda")
        launched.clear()
        assert rms_norm(x, weight, backend="cuda").shape == x.shape
        ((_, values, _, _),) = launched
        assert values[3:5] == [rows, 8]
        assert len(kept()) <= 5


def test_threads_record_for_themselves(launched, monkeypatch) -> None:
    """While one records a call, another's is no part of it; and plans serve many threads."""
    x, weight, wide = torch.randn(3, 40), torch.randn(40), torch.randn(2, 80)
    inside, go_on = threading.Event(), threading.Event()
    true_launch = Module._launch

    def wait(module, launcher, arguments):
        true_launch(module, launcher, arguments)
        if launcher.name == "rms_norm_f32":
            inside.set()
            assert go_on.wait(30)

    monkeypatch.setattr(Module, "_launch", wait)
    first = threading.Thread(target=rms_norm, args=(x, weight), kwargs={"backend": "cuda"})
    first.start()
    assert inside.wait(30)
    silu_and_mul(wide, backend="cuda")
    go_on.set()
    first.join()
    assert kept() == [1, 1]
    results: dict[int, list[int]] = {}

    def many(number: int) -> None:
        own = torch.randn(3, 40)
        results[number] = [own.data_ptr(), *[rms_norm(own, weight, backend="cuda").data_ptr()]]

    threads = [threading.Thread(target=many, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = sorted((values[0], values[2]) for _, values, _, _ in launched)
    assert told == sorted(map(tuple, results.values()))


def test_a_call_by_a_plan_enters_few_functions(launched, monkeypatch) -> None:
    """Without the launch itself, which is two functions of ctypes and the driver's."""
    most = {"rms_norm": 16, "add_rms_norm": 18, "decode": 23}
    monkeypatch.setattr(Module, "repeat", lambda *_: again(lambda _: None, []))
    entered = {}
    for name in most:
        operator, arguments = draw(0)[name]
        if name == "decode":  # the rungs ask whether the queries are on a GPU
            monkeypatch.setattr("yaie.ops.cuda.paged.decode_step", paged_split)
        operator(*arguments, backend="cuda")
        entered[name] = python_calls(lambda o=operator, a=arguments: o(*a, backend="cuda"))
    assert all(entered[name] <= most[name] for name in most), entered


def paged_split(*operands: object) -> tuple[torch.Tensor, torch.Tensor]:
    from yaie.ops.cuda import paged

    return paged.split(*operands)


class TritonKernel:
    """Stands in for a Triton kernel, its compiled form and torch's launcher; notes its launches."""

    arg_names = ("x", "out", "size", "BLOCK")
    types = "*fp32", "*fp32", "i32", "constexpr"
    src = SimpleNamespace(signature=dict(zip(arg_names, types, strict=True)))
    metadata = SimpleNamespace(num_warps=4, shared=64, num_ctas=1, global_scratch_size=0)

    def __init__(self) -> None:
        self.launches: list[tuple] = []

    def __getitem__(self, grid):
        def run(*values, stream=None, **options):
            self.launches.append((grid, values, stream))
            compiled = copy.copy(self)
            compiled.function = options.get("BLOCK")  # of a kernel compiled for this constant
            return compiled

        return run

    def _launch_kernel(self, function, x, y, z, warps, shared, types, values, stream):
        *values, global_scratch, profile_scratch = values
        assert (warps, shared, types) == (4, 64, "lllll")
        assert (global_scratch, profile_scratch) == (0, 0)
        self.launches.append(((x, y, z), (*values, function), stream))


@pytest.fixture
def triton_operator(monkeypatch: pytest.MonkeyPatch):
    """(a kernel, an operator that launches it with a configuration that is timed if it is large)"""
    monkeypatch.setattr(runtime, "INTERPRETED", False)
    monkeypatch.setattr(runtime, "TUNED", {})
    monkeypatch.setattr(runtime, "_time", lambda launch, config: (launch(config), config["BLOCK"]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel = TritonKernel()
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", kernel, raising=False)

    def operator(x: torch.Tensor, large: bool, *, backend: str) -> torch.Tensor:
        out = plans.made(torch.empty_like(x))

        def launch(config):
            runtime.run_kernel(kernel, (3,), x, out, x.numel(), **config)

        configs = [{"BLOCK": 8}, {"BLOCK": 4}]
        launch(runtime.fastest(("own",), configs, launch, large))
        return out

    return kernel, operator


def test_a_launch_of_triton_is_kept_without_its_tensors(triton_operator) -> None:
    kernel, operator = triton_operator
    x, y = torch.randn(4), torch.randn(4)
    held = [weakref.ref(x), weakref.ref(plans.launch(operator, (x, False), "triton", ()))]
    kernel.launches.clear()  # of the first call, with its tensors
    del x
    gc.collect()
    assert [ref() for ref in held] == [None] * 2
    out = plans.launch(operator, (y, False), "triton", ())
    wanted = ((3, 1, 1), (y.data_ptr(), out.data_ptr(), 4, 8), STREAM)
    assert kernel.launches == [wanted]
    kernel._launch_kernel = None  # a hook is told of the launch, as Triton itself does it
    hook = runtime.triton.knobs.runtime.launch_exit_hook
    hook.add(print)
    try:
        out = plans.launch(operator, (y, False), "triton", ())
    finally:
        hook.remove(print)
    assert kernel.launches == [wanted, (wanted[0], (y.data_ptr(), out.data_ptr(), 4, 8), STREAM)]


@pytest.mark.parametrize("needs", ["num_ctas", "global_scratch_size"])
def test_a_launch_that_torch_cannot_make_is_not_kept(triton_operator, needs: str) -> None:
    """A cluster of thread blocks, or memory that Triton allocates for each launch."""
    kernel, operator = triton_operator
    kernel.metadata = SimpleNamespace(**vars(kernel.metadata) | {needs: 2})
    x = torch.randn(4)
    for _ in range(2):
        plans.launch(operator, (x, False), "triton", ())
    assert kept() == [0] and [values[0] is x for _, values, _ in kernel.launches] == [True] * 2


def test_a_plan_has_the_configuration_that_was_timed(triton_operator, monkeypatch) -> None:
    """It does not hold the launches that were timed. No plan is kept in a capture, where nothing
    can be timed. Timing drops earlier plans: small problems use the same configuration."""
    kernel, operator = triton_operator
    x = torch.randn(4)
    plans.launch(operator, (x, False), "triton", ())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    plans.launch(operator, (x, True), "triton", ())
    assert len(kept()) == 1
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    plans.launch(operator, (x, True), "triton", ())
    assert kept() == [1] and len(kernel.launches) == 5
    for large in (True, False):
        plans.launch(operator, (x, large), "triton", ())
        assert kernel.launches[-1][1][-1] == 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "cuda") for name in draw(0)]
    + [(name, "triton") for name in draw(0) if name not in ("attention", "shared", "sample")],
)
def test_on_a_gpu_the_same(
    name: str, backend: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(plans, "_plans", {})

    def on_gpu(x):
        if not isinstance(x, torch.Tensor) or name == "sample":
            return x.cuda() if isinstance(x, torch.Tensor) else x
        return x.cuda().to(dtype) if x.is_floating_point() and name != "rotary" else x.cuda()

    for seed in range(3):
        (operator, arguments), wanted = draw(seed)[name], draw(seed)[name][1]
        arguments, wanted = tuple(map(on_gpu, arguments)), tuple(map(on_gpu, wanted))
        want = operator(*wanted, backend="reference")
        got = operator(*arguments, backend=backend)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
        for x, y in zip(arguments, wanted, strict=True):
            if isinstance(x, torch.Tensor):
                torch.testing.assert_close(x, y)
    assert len([launches for launches in kept() if launches]) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_on_a_gpu_in_a_graph_and_on_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(plans, "_plans", {})
    x, weight = torch.randn(64, 512, device="cuda"), torch.randn(512, device="cuda")
    rms_norm(x, weight, backend="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=stream):
        out = rms_norm(x, weight, backend="cuda")
    for _ in range(2):
        x.normal_()
        out.fill_(math.nan)
        graph.replay()
        torch.testing.assert_close(out, rms_norm(x, weight, backend="reference"))
    assert len([launches for launches in kept() if launches]) == 1


def test_a_call_that_torch_compiles_or_profiles_is_left_to_torch():
    """The graph has it as one operator, and the profile names it, whatever the guards would say."""
    x, weight = torch.randn(3, 64), torch.randn(64)

    def norm(x, weight):
        return plans.launch(rms_norm, (x, weight), "reference", ())

    compiled = torch.compile(norm, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, weight), rms_norm(x, weight))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        norm(x, weight)
    assert "yaie::rms_norm" in {event.key for event in profile.key_averages()}
    assert not plans._plans
