"""A captured step: what a replay runs again, what is refused, and a batch of any size by it."""

import pytest
import torch

from yaie.course.lessons.capture import NotCapturable, Recording, capture_on_cpu


def test_replay_reads_and_writes_the_same_tensors():
    x, weight, total = torch.randn(3, 4), torch.randn(4, 2), torch.zeros(3, 2)

    def step():
        out = (x @ weight).relu()
        total.add_(out)
        return out.t()

    out, replay = capture_on_cpu(step)
    address = out.data_ptr()
    for _ in range(3):
        x.copy_(torch.randn(3, 4))
        total.zero_()
        replay()
        torch.testing.assert_close(out, (x @ weight).relu().t())
        torch.testing.assert_close(total, (x @ weight).relu())
        assert out.data_ptr() == address


def test_python_is_not_looked_at_again():
    x, length = torch.ones(2), 2
    out, replay = capture_on_cpu(lambda: x * length)
    length = 3
    replay()
    assert out.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (lambda x: x.sum().item(), "wait for a number"),
        (lambda x: bool(x[0] > 0), "wait for a number"),
        (lambda x: x[x > 0], "shape of its result"),
        (lambda x: x.nonzero(), "shape of its result"),
        (lambda x: x + torch.tensor([1.0, 2.0]), "made of Python's numbers"),
    ],
)
def test_what_is_refused(line, why):
    with pytest.raises(NotCapturable, match=why):
        capture_on_cpu(lambda: line(torch.ones(2)))


def test_what_is_allowed():
    x, places = torch.randn(4), torch.tensor([3, 1])

    def step():
        x[0] = 1.0
        return x[places] + torch.zeros(2)

    out, replay = capture_on_cpu(step)
    x.copy_(torch.arange(4.0))
    replay()
    assert out.tolist() == [3.0, 1.0] and x[0] == 1.0


def test_operators_are_listed_without_views():
    recording, x = Recording(), torch.randn(2, 3)
    with recording:
        x.t().contiguous().add(1)
    assert recording.names == ["aten::clone", "aten::add.Tensor"]


def test_our_operators_are_captured():
    from yaie.ops.norm import rms_norm

    x, weight = torch.randn(2, 8), torch.randn(8)
    out, replay = capture_on_cpu(lambda: rms_norm(x, weight, 1e-6))
    x.copy_(torch.randn(2, 8))
    replay()
    torch.testing.assert_close(out, rms_norm(x, weight, 1e-6))
