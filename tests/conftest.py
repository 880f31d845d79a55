"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import make_tiny_model

# What tests expect is what a CPU computes, in float32; those that want a GPU name it.
os.environ.setdefault("YAIE_DEVICE", "cpu")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """Folder of the tiny random model. Do not write into it: other tests read it."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama")


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory) -> Path:
    """A tiny model whose answers vary: with tied embeddings a random one repeats its last token."""
    return make_tiny_model(tmp_path_factory.mktemp("untied") / "tiny", tie_word_embeddings=False)


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched unless it is in the cache."""
    from yaie.model.pull import pull

    return pull(progress=False)


@pytest.fixture
def poison() -> Iterator[None]:
    """Fill the memory for a kernel's results with NaN, and seed the random numbers."""
    import torch

    from yaie.bench.protocol import new_memory_is_nan

    torch.manual_seed(0)
    with new_memory_is_nan():
        yield


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Unsolved exercises and an empty state, whatever this checkout's learner has done."""
    from yaie.course.author import build

    monkeypatch.setenv("YAIE_EXERCISES_DIR", str(tmp_path / "exercises"))
    monkeypatch.setenv("YAIE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    build.write_stubs(tmp_path / "exercises")
    return tmp_path


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module's tests on one worker, since they share what they build; of exercises, each
    exercise's."""
    for item in items:
        group = item.nodeid.partition("::")[0]
        exercise = getattr(item, "callspec", None) and item.callspec.params.get("exercise")
        if exercise is not None:
            group += f"[{exercise.id}]"
        item.add_marker(pytest.mark.xdist_group(group))
