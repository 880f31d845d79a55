"""The server: OpenAI's own client, the engine's answers, limits, endings."""

import asyncio
import json
import os
import socket
import sys
import threading
from functools import partial
from unittest import mock

import httpx
import pytest
import torch
from engines import check_whole
from prometheus_client.parser import text_string_to_metric_families
from servers import app_of, ask_many, serving, wait_until, wanted_answers
from tiny import make_batch, make_pools

from yaie import LLM, SamplingParams
from yaie.engine.request import Request as EngineRequest
from yaie.server import wire
from yaie.server.answers import token_text
from yaie.server.app import Settings
from yaie.server.errors import ApiError
from yaie.server.guards import unless
from yaie.server.metrics import Metrics
from yaie.server.worker import Job, Worker

LONG = os.environ.get("YAIE_LONG_TESTS") == "1"


@pytest.fixture(scope="module")
def running(untied_model):
    with serving(
        LLM(untied_model, num_blocks=256, max_num_seqs=8), max_body_bytes=100_000
    ) as server:
        yield server


@pytest.fixture
def own(untied_model):
    """A server for one test, and a client of it."""
    with serving(LLM(untied_model, num_blocks=64)) as server, server.client() as http:
        yield server, http


MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


# ---------------------------------------------------------------------------- the engine's answers


@pytest.mark.parametrize("stop", [None, "e", [" upon", "zz"]])
def test_a_stream_is_the_same_answer_in_pieces(client, stop):
    call = {"model": "tiny", "messages": MESSAGES, "seed": 5, "max_tokens": 40, "n": 3}
    call |= {"stop": stop, "temperature": 1.5}
    whole = client.chat.completions.create(**call)
    texts, reasons, usage = {}, {}, None
    for chunk in client.chat.completions.create(
        **call, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                assert choice.index not in reasons, "two endings"
                reasons[choice.index] = choice.finish_reason
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert len(set(texts.values())) > 1, "each answer has random numbers of its own"
    assert reasons == {c.index: c.finish_reason for c in whole.choices}
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_completion_streams_too(client, reference):
    """Of prompts that are texts, or token ids."""
    call = {"model": "tiny", "seed": 5, "max_tokens": 8, "n": 2}
    ids = [reference.tokenizer.encode(text) for text in ("Once", "A block")]
    same = client.completions.create(**call, prompt=ids)
    call["prompt"] = ["Once", "A block"]
    whole = client.completions.create(**call)
    assert [choice.text for choice in same.choices] == [choice.text for choice in whole.choices]
    texts, usage = ["", "", "", ""], None
    for chunk in client.completions.create(
        **call, stream=True, stream_options={"include_usage": True}
    ):
        assert usage is None, "a chunk after the usage"
        assert (chunk.usage is None) == bool(chunk.choices)
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_shared_prompt_is_cached(client, running):
    text = "You are a helpful assistant. " * 6
    first = client.completions.create(model="tiny", prompt=text, max_tokens=2)
    second = client.completions.create(model="tiny", prompt=text, max_tokens=2)
    other = client.completions.create(
        model="tiny", prompt=text, max_tokens=2, extra_body={"cache_salt": "mine", "top_k": -1}
    )
    block = running.llm.engine.kv.block_size
    length = second.usage.prompt_tokens
    assert first.usage.prompt_tokens_details.cached_tokens < block
    assert second.usage.prompt_tokens_details.cached_tokens == (length - 1) // block * block
    assert other.usage.prompt_tokens_details.cached_tokens == 0


def next_logprobs(llm, tokens):
    """What the model predicts after some tokens, computed anew."""
    model = llm.engine.runner.model
    pools = make_pools(model.config, 1, len(tokens))
    logits = model(make_batch([(tokens, 0, [0])], len(tokens)), *pools)[0]
    return logits.double().log_softmax(dim=-1)


DRAWN = {"temperature": 2, "seed": 3, "max_tokens": 40}  # mostly parts of characters, or no text


def test_logprobs_of_a_chat_are_the_models_streamed_or_not(client, reference):
    call = {"model": "tiny", "messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **DRAWN}
    call["extra_body"] = {"ignore_eos": True}
    [whole] = client.chat.completions.create(**call).choices
    content = whole.logprobs.content
    streamed = []
    for chunk in client.chat.completions.create(**call, stream=True):
        for choice in chunk.choices:
            streamed += choice.logprobs.content if choice.logprobs else []
    assert streamed == content

    [answer] = reference.chat(MESSAGES, SamplingParams(ignore_eos=True, **DRAWN))
    assert (whole.message.role, whole.message.content) == ("assistant", answer.text)
    for number, (found, token) in enumerate(zip(content, answer.token_ids, strict=True)):
        want = next_logprobs(reference, [*answer.prompt_token_ids, *answer.token_ids[:number]])
        assert found.logprob == pytest.approx(float(want[token]), abs=1e-4)
        top = [entry.logprob for entry in found.top_logprobs]
        assert top == pytest.approx(want.topk(3).values.tolist(), abs=1e-4)
        spelled = bytes(found.bytes)
        assert spelled == reference.tokenizer.token_bytes(token)
        try:
            assert found.token == spelled.decode()
        except UnicodeDecodeError:
            assert found.token == "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def test_logprobs_of_a_completion_are_the_models_streamed_or_not(client, reference):
    call = {"model": "tiny", "prompt": "Once", "logprobs": 3, **DRAWN}
    call["extra_body"] = {"ignore_eos": True}
    got = client.completions.create(**call)
    [choice], whole = got.choices, got.choices[0].logprobs
    streamed = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in client.completions.create(**call, stream=True):
        for name, values in streamed.items():
            values += getattr(chunk.choices[0].logprobs, name)
    assert streamed == whole.model_dump()

    [answer] = reference.generate("Once", SamplingParams(ignore_eos=True, **DRAWN))
    assert (choice.text, choice.finish_reason) == (answer.text, answer.finish_reason)
    assert got.usage.prompt_tokens == len(answer.prompt_token_ids)
    assert got.usage.completion_tokens == len(answer.token_ids)
    text = partial(token_text, reference.tokenizer)
    assert whole.tokens == [text(token) for token in answer.token_ids]
    likeliest = 0
    for number, token in enumerate(answer.token_ids):
        want = next_logprobs(reference, [*answer.prompt_token_ids, *answer.token_ids[:number]])
        best = want.topk(3)
        top = dict(zip(map(text, best.indices.tolist()), best.values.tolist(), strict=True))
        assert whole.token_logprobs[number] == pytest.approx(float(want[token]), abs=1e-4)
        top[text(token)] = float(want[token])  # as at OpenAI, also the chosen token
        assert whole.top_logprobs[number] == pytest.approx(top, abs=1e-4)
        likeliest += int(want.argmax()) == token
        check_offset(reference, choice, answer.token_ids[:number], number)
    assert likeliest < 20


def check_offset(reference, choice, earlier, number):
    """Offsets count whole characters, of the text that came before."""
    token, offset = choice.logprobs.tokens[number], choice.logprobs.text_offset[number]
    before = reference.tokenizer.decode(earlier)
    assert choice.text.startswith(before[:offset])
    if len(before) > offset:
        assert before.endswith("\ufffd")  # of a character that is not complete
    elif not token.startswith(("bytes:", "token_id:", "<|")):
        assert choice.text[offset:].startswith(token)


def test_every_token_has_a_text_of_its_own(reference):
    texts = [token_text(reference.tokenizer, token) for token in range(1000)]
    assert len(set(texts)) == 1000 and texts[-1] == "token_id:999"


# ---------------------------------------------------------------------------- the small endpoints


def test_models_and_health(client, http):
    from openai import NotFoundError

    (model,) = client.models.list().data
    assert model.id == "tiny" and client.models.retrieve("tiny") == model
    with pytest.raises(NotFoundError, match="'org/large' is not served"):
        client.models.retrieve("org/large")
    assert http.get("/health").status_code == http.head("/health").status_code == 200


def test_metrics_count_what_happened(own):
    _, http = own

    def read():
        families = text_string_to_metric_families(http.get("/metrics").text)
        return {s.name: s.value for f in families for s in f.samples if "le" not in s.labels}

    sent = {"prompt": "Once upon a time", "max_tokens": 5, "ignore_eos": True}
    usage = [post(http, **sent)["usage"] for _ in range(3)]
    found = read()
    assert found["yaie_generation_tokens_total"] == 15
    assert found["yaie_prompt_tokens_total"] == sum(u["prompt_tokens"] for u in usage)
    assert found["yaie_request_finished_total"] == 3
    assert found["yaie_time_to_first_token_seconds_count"] == 3
    assert found["yaie_inter_token_latency_seconds_count"] == 12
    assert found["yaie_num_requests_running"] == found["yaie_num_requests_waiting"] == 0
    assert found["yaie_kv_blocks_in_use"] == found["yaie_kv_blocks_cached"]
    assert found["yaie_kv_cache_usage"] == 0


# What the dashboard asks for that vLLM's repository has among its examples.
DASHBOARD = """
    e2e_request_latency_seconds_bucket e2e_request_latency_seconds_sum prompt_tokens_total
    generation_tokens_total time_per_output_token_seconds_bucket num_requests_running
    num_requests_waiting time_to_first_token_seconds_bucket gpu_cache_usage_perc
    request_prompt_tokens_bucket request_generation_tokens_bucket request_success_total
    request_queue_time_seconds_sum request_prefill_time_seconds_sum request_decode_time_seconds_sum
    request_max_num_generation_tokens_bucket kv_cache_usage_perc prefix_cache_queries_total
    prefix_cache_hits_total num_preemptions_total inter_token_latency_seconds_bucket
"""


def test_dashboards_made_for_vllm_find_their_metrics(own):
    _, http = own
    post(http, prompt="Once upon a time", max_tokens=5, ignore_eos=True)
    families = text_string_to_metric_families(http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    found = {sample.name: sample for sample in samples if sample.name.startswith("vllm:")}
    for name in DASHBOARD.split():
        sample = found[f"vllm:{name}"]
        assert (sample.labels["model_name"], sample.labels["engine"]) == ("tiny", "0")
    assert found["vllm:request_success_total"].labels["finished_reason"] == "length"
    value = {name.removeprefix("vllm:"): sample.value for name, sample in found.items()}
    assert value["generation_tokens_total"] == value["request_generation_tokens_sum"] == 5
    parts = (value[f"request_{part}_time_seconds_sum"] for part in ("queue", "prefill", "decode"))
    assert sum(parts) == pytest.approx(value["e2e_request_latency_seconds_sum"])


# ---------------------------------------------------------------------------- bad requests


def body(**fields):
    return {"model": "tiny", "prompt": "a"} | fields


def post(http, status=200, **fields) -> dict:
    """Ask for a completion, which must end with a status."""
    answer = http.post("/v1/completions", json=body(**fields))
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "sent, status, param, words",
    [
        ({}, 400, "prompt", "required"),
        (body(model="gpt"), 404, "model", "not served"),
        (body(prompt=[]), 400, "prompt", "at least 1"),
        (body(prompt=""), 400, "prompt", "must not be empty"),
        (body(prompt=[10**6]), 400, "prompt", "token id 1000000"),
        (body(prompt=[True]), 400, "prompt", "valid"),
        (body(prompt="a " * 2000), 400, "prompt", "at most 512 fit"),
        (body(max_tokens=600), 400, "max_tokens", "exceed"),
        (body(max_tokens=-1), 400, "max_tokens", "greater than"),
        (body(max_tokens=0), 400, "max_tokens", "0 only with echo"),
        (body(min_tokens=9, max_tokens=8), 400, "min_tokens", "must be from 0 to max_tokens"),
        (body(logit_bias={"x": 1}), 400, "logit_bias", "match pattern"),
        (body(logit_bias={"5": 101}), 400, "logit_bias", "less than or equal to 100"),
        (body(logit_bias={"999": 1}), 400, "logit_bias", "logit_bias has token id 999"),
        (body(skip_special_tokens=False), 400, "skip_special_tokens", "not supported"),
        (body(modalities=["text", "audio"]), 400, "modalities", "not supported"),
        (body(stream_options={"chunks": True}), 400, "stream_options.chunks", "not supported"),
        (body(temperature=-1), 400, "temperature", "greater than"),
        (body(temperature="1"), 400, "temperature", "number"),
        (body(top_p=0), 400, "top_p", "greater than 0"),
        (body(stop=[""]), 400, "stop", "at least 1 character"),
        (body(n=0), 400, "n", "greater than"),
        (body(tools=[{"type": "function"}]), 400, "tools", "not supported"),
        (body(n=64, prompt=["a"] * 256), 400, "n", "one call may ask for 264 answers"),
        (body(frequency_penalty=2.1), 400, "frequency_penalty", "less than or equal to 2"),
        (body(logprobs=21), 400, "logprobs", "20"),
        (body(stop_token_ids=[999]), 400, "stop_token_ids", "stop_token_ids has token id 999"),
    ],
)
def test_bad_requests_say_what_is_wrong(http, sent, status, param, words):
    answer = http.post("/v1/completions", json=sent)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert error["param"].startswith(param)
    assert words in error["message"] and "params" not in error["message"]
    assert error["type"] in ("invalid_request_error", "not_found_error")


def test_a_misspelled_field_of_a_message_is_named(http):
    sent = {"messages": [{"role": "user", "contnt": "Hi"}]}
    error = http.post("/v1/chat/completions", json=sent).json()["error"]
    assert error["param"] == "messages.0.contnt"
    assert error["message"] == "messages.0.contnt is not supported by this server"


@pytest.mark.parametrize("model", [None, "tiny"])
def test_a_request_need_not_name_the_only_model(http, model):
    chat = {"model": model, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    for path, sent in (("/v1/completions", body(model=model)), ("/v1/chat/completions", chat)):
        answer = http.post(path, json=sent)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "tiny"


def test_a_body_that_comes_in_many_pieces_is_read_whole(http):
    answer = http.post("/v1/completions", json={"model": "tiny", "prompt": [5] * 30_000})
    assert answer.status_code == 400
    assert "prompt has 30000 tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content, status, code",
    [
        (b"{", 400, "invalid_json"),
        (b"\xff\xfe", 400, "invalid_json"),
        (b"[" * 90_000, 400, "invalid_json"),
        (b'{"seed": ' + b"9" * 5000 + b"}", 400, "invalid_json"),
        (b'{"model": "tiny", "prompt": "\\ud800"}', 400, None),
        (b'{"model": "tiny", "prompt": "a", "temperature": NaN}', 400, None),
        (b"x" * 200_000, 413, None),
    ],
)
def test_bodies_that_are_no_request(http, content, status, code):
    for sent in (content, iter([content[:7], content[7:]])):
        headers = {"Content-Type": "application/json"}
        answer = http.post("/v1/completions", content=sent, headers=headers)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert error["message"] and (code is None or error["code"] == code)


@pytest.mark.parametrize(
    "content_type, mark",
    [
        ("application/json; charset=utf-8", b""),
        ("Application/JSON", b""),
        ("application/json", b"\xef\xbb\xbf"),
    ],
)
def test_json_in_other_forms_is_answered_with_a_stream(http, content_type, mark):
    content = mark + json.dumps(body(stream=True, max_tokens=4)).encode()
    answer = http.post("/v1/completions", content=content, headers={"content-type": content_type})
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_what_cannot_be_shown_ends_its_own_call():
    job = Job([None])
    job.handle = lambda: 1 / 0

    async def wait():
        job.tell()  # returns, so that other calls are told
        await job.changed()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(wait())


def test_the_last_piece_does_not_wait_for_the_calls_task():
    """Many tasks may be ready to run before it. It sends only what follows the last piece."""
    job, written = Job([None]), []
    job.handle = lambda: written.append("piece") or True
    job.is_over = True
    job.tell()
    assert written == ["piece"]
    asyncio.run(job.changed())


class Piece(str):
    """A text that counts the characters that additions copy."""

    copied = 0

    def __add__(self, after):
        Piece.copied += len(self)
        return Piece(str.__add__(self, after))

    def __radd__(self, before):
        return Piece(before) + str(self)


def test_an_answer_that_is_not_read_takes_as_long_for_each_token():
    """Such as one that is not streamed, or one whose client is slow."""
    request = EngineRequest("r", [1], SamplingParams())
    worker = Worker(mock.MagicMock(), mock.Mock(max_num_seqs=1), 1, Metrics("tiny"))
    job = worker.submit([request])
    for _ in range(100):
        worker._add(wire.Step([request.number], [5], [Piece("word ")], {}, {}, []), {})
    assert Piece.copied == 0
    assert [update.text for update in job.news()] == ["word " * 100]
    worker._add(wire.Step([request.number], [5], ["end"], {}, {}, []), {})
    [update] = job.added
    assert [(update.text, update.num_tokens) for update in job.news()] == [("end", 1)]
    worker._add(wire.Step([request.number], [5], [""], {}, {}, []), {})
    assert list(job.news()) == [] == update.pieces  # nothing to join again with the next


def test_a_form_is_told_that_json_is_wanted(http):
    for content in (b"{}", json.dumps(body()).encode(), b"a=b"):  # as curl -d sends it
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = http.post("/v1/completions", content=content, headers=headers)
        assert answer.status_code == 400
        assert "Content-Type: application/json" in answer.json()["error"]["message"]


def half_a_request(server):
    """A connection that has sent half of a body."""
    connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 60)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {server.url[7:]}\r\nContent-Length: 500\r\n\r\n"
    connection.sendall(head.encode() + b"{")
    return connection


def answer_on(connection):
    """All that is answered: the status, and the error."""
    with connection, connection.makefile("rb") as file:
        head, _, sent = file.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(sent)["error"]


def test_half_a_body_is_not_waited_for_without_end(untied_model):
    with serving(LLM(untied_model, num_blocks=16), body_timeout=0.1) as server:
        status, error = answer_on(half_a_request(server))
    assert (status, error["code"]) == (408, "request_timeout")
    assert error["message"] == "the body must be here within 0.1 s"


@pytest.mark.parametrize("end", ["time limit", "second Ctrl-C"])
def test_half_a_body_does_not_hold_up_the_end(untied_model, capsys, end):
    with serving(LLM(untied_model, num_blocks=16)) as server:
        connection = half_a_request(server)
        wait_until(lambda: server.server.server_state.tasks)
        if end == "time limit":
            server.server.patience = 0
        else:
            server.server.force_exit = True
    status, error = answer_on(connection)
    assert (status, error["message"]) == (503, "the server is shutting down")
    assert not capsys.readouterr().err
    assert server.worker.engine.join(60)


def test_a_second_interrupt_ends_a_stream_with_an_error(untied_model, capsys):
    with serving(LLM(untied_model, num_blocks=64)) as server, server.client() as http:
        ending = server.server
        first = iter([True])  # one step, so that the stream begins
        server.hold(until=lambda: ending.force_exit or next(first, False))
        sent = {"model": "tiny", "messages": MESSAGES, "max_tokens": 400, "stream": True}
        sent["ignore_eos"] = True  # else it may be over before it is broken off
        with http.stream("POST", "/v1/chat/completions", json=sent) as answer:
            lines = answer.iter_lines()
            next(lines)  # says who speaks, whatever the first token is
            ending.should_exit = True
            said = []
            wait_until(lambda: said.append(capsys.readouterr().out) or "Ctrl-C" in "".join(said))
            ending.force_exit = True
            events = [line for line in lines if line]
    assert "the server is shutting down" in events[-2] and events[-1] == "data: [DONE]"
    assert "(under way: 1; Ctrl-C now breaks off)" in "".join(said)
    rest = capsys.readouterr()
    assert rest.out == "broken off: 1 that had no whole answer yet\n" and not rest.err
    assert server.worker.engine.join(60)


def test_who_is_cut_off_leaves_no_traceback(untied_model, capsys):
    with serving(LLM(untied_model, num_blocks=16)) as server, half_a_request(server):
        wait_until(lambda: server.server.server_state.tasks)
        server.server.config.timeout_graceful_shutdown = 0
        server.server.should_exit = True
        wait_until(lambda: not server.worker.is_alive)
    said = capsys.readouterr().err
    assert "Cancel 1 running task(s)" in said and "Traceback" not in said


def test_websockets_are_not_spoken_of(untied_model, capsys):
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    with serving(LLM(untied_model, num_blocks=16)) as server, server.client() as http:
        answer = http.get("/health", headers=upgrade | {"Sec-WebSocket-Key": "eA=="})
    assert answer.status_code == 200
    assert not capsys.readouterr().err


def test_chat_refuses_what_it_lacks(http):
    for messages, words in (
        ([], "at least 1"),
        ([{"role": "tool", "content": "a"}], "'system', 'developer', 'user' or 'assistant'"),
        ([{"role": "user"}], "required"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'text'"),
    ):
        answer = http.post("/v1/chat/completions", json={"model": "tiny", "messages": messages})
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    sent = {"model": "tiny", "messages": parts, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=sent).status_code == 200


def test_other_paths_are_told_what_there_is(http):
    for method, path in (("GET", "/"), ("GET", "/v1"), ("POST", "/v1/v1/completions")):
        answer = http.request(method, path)
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["type"] == "not_found_error"
        for word in (path, "/v1/models", "/v1/completions", "/v1/chat/completions", "/health",
                     "/metrics"):  # fmt: skip
            assert word in error["message"]
        told = error["message"].partition("ask for ")[2].split(", ")
        assert len(told) == len(set(told)) and "/v1/models/{name}" in told


def test_other_methods_are_refused(http):
    for method, path, allowed in ("PUT", "/health", "GET"), ("GET", "/v1/completions", "POST"):
        answer = http.request(method, path)
        assert answer.status_code == 405 and answer.headers["allow"] == allowed
        error = answer.json()["error"]
        assert error["message"] == f"{path!r} takes {allowed}, not {method}"
        assert error["type"] == "invalid_request_error"


def test_a_key_is_demanded_where_one_is_set(untied_model):
    """One whose last byte, A0, is a blank in Latin-1."""
    with (
        serving(LLM(untied_model, num_blocks=16), api_key="voilà") as server,
        server.client() as http,
    ):
        for value in (None, "Bearer wrong", "voilà", "Bearer", "Basic voilà", "Bearer voil"):
            headers = {} if value is None else {"Authorization": value.encode()}
            answer = http.get("/v1/models", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key"
        headers = {"Authorization": "Bearer voilà".encode()}
        assert http.get("/v1/models", headers=headers).status_code == 200
        assert http.get("/health").status_code == 200


def test_a_key_that_no_header_can_carry_is_refused():
    for key in ("", " "):
        with pytest.raises(ValueError, match="api_key must not be empty"):
            Settings("tiny", api_key=key)
    for key in ("key ", " key", "a\nkey", "key\0", "\udcff"):
        with pytest.raises(ValueError, match="api_key must be printable and have no blank"):
            Settings("tiny", api_key=key)


def test_other_names_for_this_machine_are_refused(untied_model):
    """A page whose name was given the address 127.0.0.1 must not use the server."""
    hosts = ("localhost", "127.0.0.1")
    llm = LLM(untied_model, num_blocks=16)
    with serving(llm, allowed_hosts=hosts) as server, server.client() as http:
        assert http.get("/v1/models").status_code == 200
        assert http.get("/v1/models", headers={"Host": "LocalHost:80"}).status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
                answer = http.get(path, headers={"Host": host})
                assert answer.status_code in (400, 421)
                assert "data" not in answer.text


def test_fields_that_ask_for_nothing_are_taken(http):
    neutral = {"tools": None, "logit_bias": {}, "store": False, "suffix": None, "metadata": None}
    neutral |= {"response_format": {"type": "text"}, "temperature": None, "max_tokens": None}
    neutral |= {"service_tier": "auto", "prompt_cache_key": "a", "safety_identifier": "b"}
    neutral |= {"verbosity": "low", "modalities": ["text"], "skip_special_tokens": True}
    neutral |= {"add_generation_prompt": True, "top_k": -1, "tool_choice": "none"}
    neutral |= {"stream_options": {"include_obfuscation": False}}
    assert post(http, **neutral)["usage"]["completion_tokens"] <= 16


def test_without_max_tokens_an_answer_takes_the_room_there_is(untied_model):
    with serving(LLM(untied_model, num_blocks=64), max_tokens=8) as server, server.client() as http:
        for prompt, wanted in ("a", 8), ([5] * 508, 4):
            usage = post(http, prompt=prompt, ignore_eos=True)["usage"]
            assert usage["completion_tokens"] == wanted


def test_too_many_tokens_are_called_as_the_client_calls_them(untied_model):
    with serving(LLM(untied_model, num_blocks=64), max_tokens=8) as server, server.client() as http:
        for name in ("max_tokens", "max_completion_tokens"):
            sent = {"messages": [{"role": "user", "content": "a"}], name: 9}
            error = http.post("/v1/chat/completions", json=sent).json()["error"]
            assert error["param"] == name and error["message"] == f"{name} must be at most 8, got 9"
    with serving(LLM(untied_model, num_blocks=64)) as server, server.client() as http:
        error = http.post("/v1/chat/completions", json=sent | {name: 9999}).json()["error"]
        assert error["param"] == name and f"tokens and {name} 9999 exceed" in error["message"]


def test_chunks_have_every_field_of_a_choice(http):
    """However many tokens a chunk took along, which is a matter of who was faster."""
    call = body(stream=True, max_tokens=3, ignore_eos=True)
    text = http.post("/v1/completions", json=call).text
    lines = [line[6:] for line in text.split("\n") if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert not any("usage" in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["logprobs"] for choice in choices] == [None] * len(choices)
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(choices) - 1) + ["length"]


# ---------------------------------------------------------------------------- load and endings


def ask(server, answers):
    """For a thread: ask for 50 tokens, and note the answer."""
    with server.client() as http:
        sent = body(max_tokens=50, ignore_eos=True)
        answers.append(http.post("/v1/completions", json=sent))


def test_no_answer_is_lost_or_mixed_up(untied_model, reference):
    """64 connections, a tenth of which leave early; every other answer is the engine's own."""
    number = 2000 if LONG else 150
    want = wanted_answers(reference)
    llm = LLM(untied_model, num_blocks=96, max_num_seqs=16)  # tight: some are preempted
    with serving(llm) as server:
        is_right = ask_many(server.url, want, number)
        server.wait_until_idle()
    assert len(is_right) == number and sum(is_right) >= 0.85 * number
    check_whole(llm.engine)


def test_a_full_cache_is_refused_and_a_small_one_preempts(untied_model):
    with serving(LLM(untied_model, num_blocks=4)) as server, server.client() as http:
        too_long = post(http, 400, prompt="a " * 100)
        assert "cache 4 blocks of 16" in too_long["error"]["message"]
        many = post(http, max_tokens=40, n=8, seed=0, ignore_eos=True)  # each needs three blocks
        assert many["usage"]["completion_tokens"] == 8 * 40


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_blocks(own, stream):
    server, http = own
    # Some steps, so that a stream begins: a first token may have no text to show.
    left, steps = threading.Event(), iter([True] * 16)
    server.hold(until=lambda: left.is_set() or next(steps, False))
    sent = body(max_tokens=400, ignore_eos=True, stream=stream, n=3, temperature=0)
    with pytest.raises(httpx.ReadTimeout):
        if stream:
            with http.stream("POST", "/v1/completions", json=sent) as answer:
                next(answer.iter_lines())
                raise httpx.ReadTimeout("leave")
        http.post("/v1/completions", json=sent, timeout=0.5)
    wait_until(lambda: not server.worker.num_requests)  # the server has noticed
    left.set()
    ended = 'yaie_request_finished_total{reason="abort"} 3.0'
    wait_until(lambda: ended in http.get("/metrics").text)
    server.wait_until_idle()
    pool = server.llm.engine.kv.pool
    assert pool.num_free + server.llm.engine.cache.num_cached == pool.num_blocks


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 counts no cancellations")
@pytest.mark.parametrize("comes", ["event", "event cancel", "cancel event", "cancel"])
def test_a_cancellation_that_comes_with_the_event_is_not_lost(comes):
    """Both in one iteration of the event loop, in either order."""

    async def end():
        loop, event = asyncio.get_running_loop(), asyncio.Future()
        why = partial(ApiError, 499, "the client left")
        task = loop.create_task(unless(event, why, asyncio.Event().wait(), 60.0))
        await asyncio.sleep(0)  # it has begun
        actions = {
            "event": lambda: event.set_result(None),
            "cancel": lambda: loop.call_soon(task.cancel),
        }
        for action in comes.split():
            actions[action]()
        with pytest.raises(asyncio.CancelledError if "cancel" in comes else ApiError):
            await task
        assert task.cancelling() == comes.count("cancel")

    asyncio.run(end())


def test_a_client_that_leaves_before_its_stream_begins_frees_its_blocks(untied_model):
    """It reads nothing, so that not even the head of the answer is sent."""
    sent = body(max_tokens=400, ignore_eos=True, stream=True)
    app, connection = app_of(LLM(untied_model, num_blocks=64)), mock.Mock()
    connection.answering.more_body, connection.flow.write_paused = False, True

    async def receive():
        return {"body": json.dumps(sent).encode(), "more_body": False}

    async def ask():
        scope = {"type": "http", "method": "POST", "client": None, "server": None}
        scope |= {"path": "/v1/completions", "raw_path": b"/v1/completions", "query_string": b""}
        scope |= {"headers": [(b"content-type", b"application/json")]}
        scope["state"] = {"connection": connection}
        async with app.app.router.lifespan_context(app.app):
            task = asyncio.create_task(app(scope, receive, None))
            while not connection.begin.called:
                await asyncio.sleep(0)
            assert app.worker.num_requests == 1
            task.cancel()  # as a connection that is lost does
            with pytest.raises(asyncio.CancelledError):
                await task
            assert app.worker.num_requests == 0 and not connection.write.called

    asyncio.run(ask())


def test_a_full_queue_is_answered_429(untied_model):
    with serving(LLM(untied_model, num_blocks=64, max_num_seqs=2), max_queued=2) as server:
        statuses = []
        server.hold(until=lambda: statuses.count((429, "1")) == 4)

        def ask():
            with server.client() as http:
                answer = http.post("/v1/completions", json=body(max_tokens=3, ignore_eos=True))
            statuses.append((answer.status_code, answer.headers.get("Retry-After")))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses, key=str) == [(200, None)] * 4 + [(429, "1")] * 4
        with server.client() as http:  # and goes on afterwards
            post(http)


def test_a_step_that_fails_ends_its_requests_and_no_others(own):
    server, http = own
    engine, step = server.llm.engine, server.llm.engine.step

    def fail():
        raise RuntimeError("a kernel crashed")

    engine.step = fail
    assert post(http, 500)["error"]["code"] == "engine_error"
    streamed = http.post("/v1/completions", json=body(stream=True)).text
    assert '"error"' in streamed
    assert streamed.endswith("data: [DONE]\n\n")
    engine.step = step
    post(http)
    assert not engine.requests


def test_a_request_that_cannot_be_added_ends_alone(own, monkeypatch):
    server, http = own
    add = server.llm.engine.scheduler.add
    monkeypatch.setattr(server.llm.engine.scheduler, "add", lambda request: 1 / 0)
    post(http, 500)
    monkeypatch.setattr(server.llm.engine.scheduler, "add", add)
    assert not server.llm.engine.requests
    post(http)


def test_the_engines_pipe_is_waited_for(own):
    """uvloop makes the pipe non-blocking. A write to a full pipe would then fail, and part of a
    long prompt or a whole request would be lost."""
    server, http = own
    post(http, max_tokens=1)
    assert os.get_blocking(server.worker.engine.pipe.fileno())


def test_what_was_known_before_a_step_failed_is_told(own):
    """As when steps overlap: one is launched, the tokens of another are read, the next fails."""
    server, http = own
    engine, step = server.llm.engine, server.llm.engine.step

    def fail_at_the_end():
        engine._outputs = step()
        if any(output.finish_reason for output in engine._outputs):
            raise RuntimeError("a kernel crashed")
        return engine.take_outputs()

    engine.step = fail_at_the_end
    for _ in range(2):
        assert post(http, max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
    counted = http.get("/metrics").text
    assert 'yaie_request_finished_total{reason="length"} 2.0' in counted
    assert 'reason="error"' not in counted
    assert not server.worker.num_requests


def test_an_engine_that_cannot_go_on_says_so(own, monkeypatch):
    """Also to a call that comes while it is dying."""
    server, http = own
    engine, asked, first, answers = server.llm.engine, threading.Event(), iter([True]), []

    def broken(*_):
        raise RuntimeError("the scheduler is broken")

    def step():
        if not next(first, False):  # no request is left that could be to blame
            wait_until(asked.is_set)
        broken()

    monkeypatch.setattr(engine.scheduler, "finish", broken)
    monkeypatch.setattr(engine, "step", step)
    thread = threading.Thread(target=ask, args=(server, answers))
    post(http, 500)
    thread.start()
    wait_until(lambda: server.worker.num_requests)
    asked.set()
    thread.join()
    assert answers[0].status_code == 500
    assert answers[0].json()["error"]["message"] == "the engine has stopped"
    assert http.get("/health").status_code == 503
    error = post(http, 503)["error"]
    assert "the engine has stopped" in error["message"] and error["code"] == "engine_error"


def test_a_gpu_that_computes_no_more_is_said_by_health(own, monkeypatch):
    """As after an illegal address: every call of the process gives that error, until it ends."""
    error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch")
    sticks = iter([False, True])

    def fail(*_):
        raise error

    def synchronize(device):
        if next(sticks):
            raise error

    server, http = own
    monkeypatch.setattr(server.llm.engine, "device", torch.device("cuda", 0))
    monkeypatch.setattr(server.llm.engine, "step", fail)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    post(http, 500)
    assert http.get("/health").status_code == 200  # the next step may succeed
    post(http, 500)
    health = http.get("/health")
    assert health.status_code == 503
    assert health.json()["error"]["message"] == (
        "the engine does not run: torch.AcceleratorError: CUDA error: an illegal memory access "
        "was encountered"
    )
    post(http, 503)


def test_the_log_says_why_an_engine_has_stopped(own, monkeypatch, caplog):
    server, http = own
    monkeypatch.setattr(server.llm.engine, "step", sys.exit)  # as a learner's code may
    post(http, 500)
    health = http.get("/health")
    assert health.status_code == 503
    assert "SystemExit" in health.text and "SystemExit" in caplog.text


def test_logits_that_are_not_finite_end_one_request(own):
    server, http = own
    with torch.no_grad():
        server.llm.engine.runner.model.embed[5] = float("nan")
    assert "NaN" in post(http, 500, prompt=[5, 5])["error"]["message"]


def test_the_end_waits_for_answers_under_way(untied_model):
    answers = []
    with serving(LLM(untied_model, num_blocks=64)) as server:
        server.hold(until=lambda: server.server.should_exit)
        thread = threading.Thread(target=ask, args=(server, answers))
        thread.start()
        wait_until(lambda: server.worker.num_requests)
    thread.join()
    assert answers[0].status_code == 200
    assert answers[0].json()["usage"]["completion_tokens"] == 50


def test_the_end_does_not_wait_for_a_step_that_does_not_end(untied_model, monkeypatch):
    monkeypatch.setattr("yaie.server.worker.PATIENCE", 0.0)
    answers, ended = [], threading.Event()
    with serving(LLM(untied_model, num_blocks=64)) as server:
        server.server.patience = 0
        server.hold(until=ended.is_set)
        thread = threading.Thread(target=ask, args=(server, answers))
        thread.start()
        wait_until(lambda: server.worker.num_requests)
    thread.join()
    assert "shutting down" in answers[0].json()["error"]["message"]
    assert not server.worker.is_alive
    ended.set()
    assert server.worker.engine.join(60)
    assert not server.llm.engine.requests
