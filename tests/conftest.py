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
