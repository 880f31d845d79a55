"""The helpers that checks are written with say what differs, and recognize known mistakes."""

from __future__ import annotations

import pytest
import torch

from yaie.course.core.expect import CheckFailed, close, equal, fail, given, raises, short, true


def message(call, *arguments, **options) -> str:
    with pytest.raises(CheckFailed) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (3, 4, "x is 3, expected 4"),
        (True, 1, "x is True, expected 1"),
        (None, [], "x is None, expected []"),
        ([1, 2, 3], [1, 9, 3], "index 1 is 2, expected 9"),
        ([1, 2], [1, 2, 3], "2 entries, expected 3"),
        ((1, 2), [1, 2], "x is a tuple (1, 2), expected a list"),
        ([[1], [2]], [[1], [3]], "index 1 is [2], expected [3]: index 0 is 2, expected 3"),
        ({"a": 1}, {"a": 2}, "expected {'a': 2}"),
        (torch.ones(2), [1, 1], "a tensor 2 float32 [1.0, 1.0], expected [1, 1]"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "x is 2 at index [1], expected 3 (1 of 2"),
    ],
)
def test_equal_says_what_differs(got, want, words: str) -> None:
    assert words in message(equal, got, want, "x")


def test_equal_accepts_equals() -> None:
    for value in (0, "a", [1, (2, 3)], {1, 2}, {"a": [1]}, None, torch.arange(4)):
        equal(value, value, "x")


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), "shape [2, 3], expected [3, 2]"),
        (torch.zeros(2).half(), torch.zeros(2), "dtype torch.float16, expected torch.float32"),
        (torch.tensor([1.0, torch.nan]), torch.ones(2), "NaN at index [1], expected 1 (1 NaN"),
        (torch.tensor([[1.0, 2.5]]), torch.tensor([[1.0, 2.0]]), "2.5 at index [0, 1], expected 2"),
        (torch.tensor(1.5), 1.0, "is 1.5, expected 1"),
        (1.5, 1.0, "is 1.5, expected 1"),
        (None, torch.ones(1), "x is None, expected a tensor"),
    ],
)
def test_close_says_what_differs(got, want, words: str) -> None:
    assert words in message(close, got, want, "x")


def test_close_accepts_what_is_close() -> None:
    close(
        torch.tensor([1.0, torch.inf, torch.nan]),
        torch.tensor([1.000001, torch.inf, torch.nan]),
        "x",
    )
    close(1.0000001, 1.0, "x")
    close(torch.tensor(0.5), 0.5, "x")
    with pytest.raises(CheckFailed):
        close(torch.tensor([1.0]), torch.tensor([1.1]), "x", rtol=0.01)


def test_known_mistake_takes_the_place_of_the_reason() -> None:
    known = [(7, "seven is off by three"), (8, "eight is twice")]
    assert message(equal, 8, 4, "x", "Because.", known) == "x is 8, expected 4. eight is twice"
    assert message(equal, 9, 4, "x", "Because.", known) == "x is 9, expected 4. Because."
    a, b, c = torch.zeros(3), torch.ones(3), torch.full((3,), 2.0)
    assert message(close, b, a, "x", mistakes=[(c, "two"), (b, "one")]).endswith(". one")
    equal(4, 4, "x", mistakes=[(4, "a mistake that gives the right answer is none")])


def test_given_names_the_call() -> None:
    with pytest.raises(CheckFailed, match=r"^f\(1\): no") as caught, given("f(1)"):
        fail("no")
    assert str(caught.value) == "f(1): no"
    with pytest.raises(KeyError) as crashed, given("outer"), given("inner"):
        raise KeyError("x")
    assert crashed.value.given == "inner"


def test_given_recognizes_an_error() -> None:
    explained = {KeyError: "look before you leap"}
    with pytest.raises(CheckFailed, match="raised KeyError: 1") as caught, given("f(1)", explained):
        raise KeyError(1)
    assert str(caught.value).endswith(". look before you leap")
    with pytest.raises(TypeError), given("f(1)", errors=explained):
        raise TypeError
    unsolved = NotImplementedError("Exercise 02.2: Match")
    with pytest.raises(NotImplementedError), given("f", errors={Exception: "no"}):
        raise unsolved


def test_raises_wants_that_error() -> None:
    raises(ValueError, lambda: int("x"), "int")
    assert "got a return of 3" in message(raises, ValueError, lambda: 3, "f()", "Why.")
    assert "got KeyError: 1. Why." in message(raises, ValueError, lambda: {}[1], "f()", "Why.")
    with pytest.raises(NotImplementedError):
        raises(ValueError, _unsolved, "f()")


def _unsolved() -> None:
    raise NotImplementedError("Exercise 02.2: Match")


def test_true_and_picture() -> None:
    true(True, "fine")
    with pytest.raises(CheckFailed) as caught:
        true(False, "not fine", picture=lambda: "figure")
    assert caught.value.picture() == "figure"


def test_short_is_one_short_line() -> None:
    assert short(list(range(100))).endswith(", 11, ...]")
    assert len(short("x" * 1000)) <= 80
    assert short(torch.zeros(3, 4)) == "a tensor 3×4 float32"
    assert short(torch.tensor(2)) == "a tensor scalar int64 2"
