"""Fixtures that all tests share."""

from __future__ import annotations

import os
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
def real_model() -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched unless it is in the cache."""
    from yaie.model.pull import pull

    return pull(progress=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module's tests on one worker, since they share what they build; of exercises, each
    exercise's."""
    for item in items:
        group = item.nodeid.partition("::")[0]
        exercise = getattr(item, "callspec", None) and item.callspec.params.get("exercise")
        if exercise is not None:
            group += f"[{exercise.id}]"
        item.add_marker(pytest.mark.xdist_group(group))
