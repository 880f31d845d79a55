"""Pictures of sampling kernels: keys in the order of floats, rounds that end at a threshold."""

from __future__ import annotations

import math
import random
import struct

import pytest

from yaie.course.viz.draws import draw_bits, draw_rounds, draw_shares, ordered_key, rounds
from yaie.course.viz.page import png


def test_keys_descend_as_floats_ascend() -> None:
    numbers = random.Random(0)
    values = [numbers.uniform(-1, 1) * 10 ** numbers.randint(-40, 38) for _ in range(500)]
    values += [0.0, math.inf, -math.inf, 1e-45, -1e-45]
    values = sorted({struct.unpack("f", struct.pack("f", value))[0] for value in values})
    keys = [ordered_key(value) for value in values]
    assert keys == sorted(keys, reverse=True) and len(set(keys)) == len(keys)
    assert ordered_key(-0.0) == ordered_key(0.0)


def test_rounds_close_in_on_the_threshold() -> None:
    logits = [3.0, 2.0, 2.0, 1.5, -1.0]
    first, *_, last = state = rounds(logits, [8, 4, 4, 2, 2], threshold=1.5)
    assert [one.tokens for one in state] == sorted((one.tokens for one in state), reverse=True)
    assert first.tokens == 5 and sum(first.shares) == pytest.approx(1.0)
    assert last.tokens == 1 and last.before == pytest.approx(0.8)
    assert sum(last.shares) == last.shares[last.bin] == pytest.approx(0.1)


def test_pictures_are_drawn() -> None:
    state = rounds([3.0, 2.0, -1.0], [8, 4, 2], threshold=2.0)
    for figure in (
        draw_rounds(state), draw_bits([1.0, -0.0, math.inf]), draw_shares([3, 0], [0.9, 0.1]),
    ):  # fmt: skip
        assert png(figure) == png(figure)
        assert figure.get_size_inches()[0] <= 10.0
