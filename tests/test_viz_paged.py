"""Pictures of paged decoding: who reads what, when it is done, what is read together."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from yaie.course.viz import film_strip
from yaie.course.viz.lanes import Timeline, draw_timeline, finished, started
from yaie.course.viz.paged import Prefix, Readers, draw_prefix, draw_readers


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("equal", [False, True])
def test_each_key_is_somewhere_once_and_no_two_at_a_time(equal):
    drawn = random.Random(0)
    for _ in range(30):
        pieces = tuple((drawn.randrange(5), drawn.randrange(1, 90)) for _ in range(11))
        state = Timeline(pieces, drawn.randrange(1, 9), 1000, equal)
        bars = started(state)
        for sequence in range(5):
            keys = sum(end - begin for _, owner, begin, end in bars if owner == sequence)
            assert keys == sum(length for owner, length in pieces if owner == sequence)
        for processor in range(state.processors):
            mine = sorted((begin, end) for where, _, begin, end in bars if where == processor)
            assert all(one[1] <= other[0] for one, other in pairwise(mine))
        total = sum(keys for _, keys in pieces)
        assert finished(state) >= total / state.processors
        if equal:
            assert finished(state) < total / state.processors + 1


def test_a_timeline_says_when_it_is_done():
    said = texts(draw_timeline(Timeline(((0, 400), (1, 100)), 2, 400)))
    assert "2 thread blocks, done after 400 keys" in said
    assert any("busy 62%" in text for text in said)
    assert finished(Timeline((), 3, 10)) == 0 and draw_timeline(Timeline((), 3, 10))


def test_readers_are_counted():
    reads = (frozenset({0, 2}), frozenset({2}))
    state = Readers(("sequence 0", "sequence 1"), (0, 1), reads, 4)
    said = texts(draw_readers(state))
    assert "2 thread blocks" in said and said.count("·") == 2


def test_shared_blocks_are_read_once():
    tables = ((3, 7, 0), (3, 7, 2, 5), (3, 7))
    states = [Prefix(tables, 2, 4, once) for once in (False, True)]
    alone, once = (texts(draw_prefix(state)) for state in states)
    assert "every context for itself: 9 blocks read" in alone
    assert "shared blocks once: 5 blocks read" in once and "12 rows of queries in all" in once
    assert film_strip(states, draw_prefix, ["", ""]).get_size_inches()[0] <= 10
