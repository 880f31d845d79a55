"""Fixtures that all tests share."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# jsonschema, which nbformat imports, would build parsers of international URLs: 2 s per process.
sys.modules.setdefault("rfc3987_syntax", None)
# What tests expect is what a CPU computes, in float32; those that want a GPU name it.
os.environ.setdefault("YAIE_DEVICE", "cpu")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """Folder of the tiny random model. Do not write into it: other tests read it."""
    from tiny import make_tiny_model  # brings torch, which the process that deals out needs not

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama")


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory) -> Path:
    """A tiny model whose answers vary: with tied embeddings a random one repeats its last token."""
    from tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("untied") / "tiny", tie_word_embeddings=False)


@pytest.fixture(scope="module")
def model(untied_model):
    """The model in that folder. Modules with another model have fixtures of the same names."""
    from yaie.model.weights import load_model

    return load_model(untied_model)


@pytest.fixture(scope="module")
def tokenizer(untied_model):
    from yaie.model.tokenizer import Tokenizer

    return Tokenizer(untied_model)


@pytest.fixture(scope="module")
def reference(untied_model):
    """An engine of the same model without a server."""
    from yaie import LLM

    return LLM(untied_model, num_blocks=256)


@pytest.fixture(scope="module")
def http(running):
    """A client of the server that a module has as its fixture `running`."""
    with running.client() as client:
        yield client


@pytest.fixture(scope="module")
def client(running):
    """OpenAI's client of the same server. Its import takes 1 s, which other workers save."""
    from openai import OpenAI

    return OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched unless it is in the cache."""
    from yaie.model.pull import pull

    return pull(progress=False)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Keep the garbage collector from walking through the objects of imports and earlier modules,
    which takes up to a fifth of the processor time of some tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(autouse=True)
def no_kept_launches() -> None:
    """On a GPU, what a test changes in a back end would not be seen by a call that an earlier test
    has made a plan for."""
    if plans := sys.modules.get("yaie.ops.plans"):
        plans.forget()


@pytest.fixture
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 4 KB before each timed call, instead of the 64 MB that empty a CPU's caches."""
    from yaie.bench.protocol import CpuClock

    monkeypatch.setattr(CpuClock, "empty_caches", lambda clock: clock._unrelated[:1024].sum())


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


@pytest.fixture(scope="module")
def warm_python() -> Iterator[None]:
    """Processes that these tests start have torch; `warm.py` says what else differs."""
    from yaie.course.author.warm import warm

    with warm():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the exercises' mistakes last. They are dealt out one exercise at a time, and
    each exercise takes a few seconds, so that the workers end at about the same time."""
    items.sort(key=lambda item: item.path.stem == "test_course_mistakes")


class ByModule(LoadScopeScheduling):
    """`--dist=loadscope`, by module: its tests share what they build; of the tests of the
    exercises' mistakes, those of one exercise; of those in a browser, that of the web site apart.

    pytest-xdist's `loadgroup` would say that with marks, but has no effect with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        part = re.search(r"\[\d\d\.\d\b" if "mistakes" in module else "_web_site_", test)
        return f"{module}{part[0]}" if part else module

    def remove_node(self, node: WorkerController) -> str | None:
        """What a worker that died leaves to the others: not the test at which it died, which
        pytest-xdist would start in one worker after the other, without end."""
        units = self.assigned_work[node]
        died = next((test for unit in units.values() for test in unit if not unit[test]), None)
        if died is not None:
            units[self._split_scope(died)][died] = True
        self.assigned_work[node] = {
            scope: unit for scope, unit in units.items() if not all(unit.values())
        }
        super().remove_node(node)
        return died


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByModule | None:
    return ByModule(config, log) if config.getvalue("dist") == "loadscope" else None
