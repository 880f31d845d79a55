"""Requests that schemathesis makes up from the server's own schema, right ones and wrong ones."""

import logging
import os

import pytest
from hypothesis import HealthCheck, given, settings
from servers import serving

from yaie import LLM

schemathesis = pytest.importorskip("schemathesis", reason="it needs Python 3.11")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

EXAMPLES = 1000 if os.environ.get("YAIE_LONG_TESTS") == "1" else 40
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def running(untied_model):
    logging.getLogger("yaie.server").setLevel(logging.ERROR)
    with serving(LLM(untied_model, num_blocks=64), max_tokens=4) as server:
        yield server


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/completions"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("GET", "/metrics"),
    ],
)
def test_no_request_breaks_the_server(running, method, path, mode):
    api = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    operation = api[path][method]
    if mode is schemathesis.GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("it has no parameters to get wrong")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case):
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "tiny"  # else nearly all would end there
        case.call_and_validate(checks=CHECKS, timeout=30)

    ask()


def test_nothing_is_left_behind(running):
    running.wait_until_idle()
    engine = running.llm.engine
    assert engine.kv.pool.num_free + engine.cache.num_cached == engine.kv.pool.num_blocks
