"""Tensor parallelism: the parts of a model, and the same tokens from any number of ranks."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engines import check_whole, interfere, leave_alone
from safetensors.torch import load_file
from servers import serving
from tiny import QWEN2, make_batch, make_pools, make_tiny_model, tiny_config
from torch import distributed as dist
from torch.nn.functional import linear

from yaie.course.lessons.split_linear import column_parallel, row_parallel
from yaie.engine.llm import LLM
from yaie.engine.parallel import _check_gpus
from yaie.engine.params import SamplingParams
from yaie.engine.ranks import RankFailed, Ranks
from yaie.model.config import ModelConfig
from yaie.model.shards import Shard, heads_of, piece_of
from yaie.model.weights import load_model
from yaie.ops import operators

pytestmark = pytest.mark.usefixtures("warm_python")
PROMPTS = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
VARIANTS = {
    "one_kv_head_each": ({}, 2),
    "a_kv_head_for_two_ranks": ({}, 4),
    "untied": ({"tie_word_embeddings": False}, 2),
    "qwen2": (QWEN2, 2),
    "three": (dict(zip(SIZES, (96, 144, 6, 3), strict=True)), 3),
}


# ----------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(("num_heads", "num_kv"), [(9, 3), (32, 8), (8, 8), (12, 4), (8, 1)])
def test_heads_are_all_computed_and_find_their_keys(num_heads, num_kv):
    sizes = [s for s in range(1, num_heads + 1) if num_heads % s == 0]
    for size in (s for s in sizes if num_kv % s == 0 or s % num_kv == 0):
        shares = [heads_of(rank, size, num_heads, num_kv) for rank in range(size)]
        assert [h for queries, _ in shares for h in queries] == list(range(num_heads))
        for queries, keys in shares:
            assert {h // (num_heads // num_kv) for h in queries} == set(keys)
            assert len(keys) == max(1, num_kv // size)
            # A rank's model numbers its heads from 0: they must find the same KV head.
            group = len(queries) // len(keys)
            for own, head in enumerate(queries):
                assert keys[own // group] == head // (num_heads // num_kv)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pieces_put_together_are_the_checkpoint(variant, tmp_path):
    overrides, size = VARIANTS[variant]
    folder = make_tiny_model(tmp_path / "model", **overrides)
    config = ModelConfig.from_folder(folder)
    for name, tensor in load_file(folder / "model.safetensors").items():
        covered = torch.zeros(tensor.shape, dtype=torch.int64)
        for rank in range(size):
            piece = piece_of(name, tensor.shape, config, rank, size)
            assert len(piece) == tensor.ndim
            covered[piece] += 1
        copies = {1} if "_proj" in name or "lm_head" in name else {size}
        if any(word in name for word in ("k_proj", "v_proj")):
            copies = {max(1, size // config.num_key_value_heads)}
        assert set(covered.unique().tolist()) == copies, name


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_columns_then_rows_are_the_product(size, bias):
    draw = torch.Generator().manual_seed(size)
    up, down = (
        torch.randn(n, m, generator=draw, dtype=torch.float64) for n, m in ((12, 5), (7, 12))
    )
    biases = [torch.randn(n, generator=draw, dtype=torch.float64) for n in (12, 7)]
    first, second = biases if bias else (None, None)
    x = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    want = linear(linear(x, up, first).relu(), down, second)
    parts = [column_parallel(x, up, first, rank, size).relu() for rank in range(size)]
    summands: list[torch.Tensor] = []
    for rank, own in enumerate(parts):
        row_parallel(own, down, second, rank, size, lambda t: summands.append(t) or t)
    got = sum(summands) + (0 if second is None else second)
    torch.testing.assert_close(got, want)
    last = row_parallel(parts[0], down, second, 0, size, lambda _: sum(summands))
    torch.testing.assert_close(last, want)


@pytest.mark.parametrize(
    ("size", "overrides", "said"),
    [
        (3, {}, "num_attention_heads, 4, got 3"),
        (2, {"intermediate_size": 129}, "intermediate_size, 129, got 2"),
        (2, {"vocab_size": 385}, "vocab_size, 385, got 2"),
        (
            4,
            {"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 16},
            "num_key_value_heads, 6, or be a multiple of it, got 4",
        ),
    ],
)
def test_a_model_that_does_not_divide(size, overrides, said):
    with pytest.raises(ValueError, match=said):
        Shard(0, size).check(ModelConfig.from_dict(tiny_config(**overrides)))


def test_a_rank_holds_its_part_only(tmp_path):
    tied = make_tiny_model(tmp_path)
    whole = load_model(tied, "float64")
    parts = [load_model(tied, "float64", shard=Shard(rank, 2)) for rank in range(2)]
    for layer, *own in zip(whole.layers, *(p.layers for p in parts), strict=True):
        for name in ("qkv", "output", "gate_up", "down"):
            sizes = {getattr(part, name).weight.numel() for part in own}
            assert sizes == {getattr(layer, name).weight.numel() // 2}
    head = torch.cat([part.lm_head.weight for part in parts])
    assert torch.equal(head, whole.lm_head.weight)
    assert parts[0].lm_head.weight.data_ptr() == parts[0].embed.data_ptr()  # no second copy


@pytest.mark.parametrize(
    ("backend", "replaced", "normalizes"),
    [
        *(("auto", (), True), ({"add_rms_norm": "cuda"}, (), True)),
        *(("reference", (), False), ("auto", ("add_rms_norm",), False)),
    ],
)
def test_a_norm_that_is_asked_for_is_not_left_out(
    tiny_model, monkeypatch, backend, replaced, normalizes
):
    """The kernel that adds up what the ranks have computes the norm too, but no one else's."""
    model, computed = load_model(tiny_model, shard=Shard(1, 2)), []
    model.backends |= load_model(tiny_model, backends="reference").backends
    model.backends |= {"add_rms_norm": backend} if isinstance(backend, str) else backend

    def all_reduce(x, *norm):
        computed.append(len(norm))
        return operators.add_rms_norm(x, *norm, backend="reference") if norm else None

    monkeypatch.setattr("yaie.model.llama.all_reduce", all_reduce)
    monkeypatch.setattr("yaie.model.llama.are_ours", {*replaced}.isdisjoint)
    batch = make_batch([([5, 6, 7], 0, [0]), ([8], 0, [1])], 16)
    found = model.hidden(batch, *make_pools(model.config, 2, 16))
    assert computed == [3 * normalizes] * 2 * len(model.layers)
    assert found.shape == (2, model.config.hidden_size) and found.isfinite().all()


# ----------------------------------------------------------------------------------- processes


def logits_of_a_rank(folder, dtype, prompts):
    """In a rank: the last logits of each prompt, by this rank's part of the model."""
    from tiny import make_batch, make_pools

    from yaie.model.parallel import own_shard
    from yaie.model.weights import load_model

    model = load_model(folder, dtype, shard=own_shard())
    pools = make_pools(model.config, 20, 16, model.dtype)
    blocks = iter(range(20))
    tables = [[next(blocks) for _ in range(0, len(p), 16)] for p in prompts]
    sequences = [(p, 0, table) for p, table in zip(prompts, tables, strict=True)]
    none = model(make_batch(sequences, 16, []), *pools)
    assert none.shape == (0, model.config.vocab_size)
    return model(make_batch(sequences, 16), *pools)


@pytest.mark.parametrize("size", [2, 4])  # three: see the real model
def test_logits_are_those_of_one_device_and_the_same_on_all_ranks(size, tmp_path):
    with Ranks(size) as ranks:
        for variant in (name for name, (_, fits) in VARIANTS.items() if fits == size):
            folder = make_tiny_model(tmp_path / variant, **VARIANTS[variant][0])
            want = logits_of_a_rank(folder, "float64", PROMPTS)
            for dtype in ("float64", "bfloat16"):
                logits = ranks.run(logits_of_a_rank, folder, dtype, PROMPTS)
                assert all(torch.equal(logits[0], other) for other in logits)
                if dtype == "float64":
                    torch.testing.assert_close(logits[0], want, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def shared(untied_model):
    """One engine for the tests that leave it as they found it; it is made when it is needed."""
    engines = []
    yield engines
    for llm in engines:
        llm.close()


@pytest.fixture
def pair(untied_model, shared):
    if not shared:
        shared.append(LLM(untied_model, num_blocks=64, tensor_parallel_size=2))
    return shared[0]


@pytest.fixture
def alone(shared):
    """For tests that make an engine of their own."""
    while shared:
        shared.pop().close()


@pytest.fixture(scope="module")
def single(untied_model):
    return LLM(untied_model, num_blocks=64)


def token_ids(outputs):
    return [output.token_ids for output in outputs]


def test_the_same_greedy_tokens(pair, single):
    assert token_ids(pair.generate(PROMPTS, GREEDY)) == token_ids(single.generate(PROMPTS, GREEDY))
    again = pair.generate(PROMPTS, GREEDY)  # from the prefix cache
    assert token_ids(again) == token_ids(single.generate(PROMPTS, GREEDY))
    assert again[4].metrics.num_cached_tokens > 0


def test_the_same_edits_and_scores(pair, single):
    """Some of the prompts in the prefix cache, some in chunks: the ranks agree on the rows."""
    params = [
        SamplingParams(**edits, max_tokens=9, min_tokens=8, seed=i, temperature=0.5)
        for i, edits in enumerate(({"prompt_logprobs": 2}, {"prompt_logprobs": 0},
            {"frequency_penalty": 1.5}, {"logit_bias": {7: 5.0}}, {"prompt_logprobs": 1}))
    ]  # fmt: skip
    got, want = pair.generate(PROMPTS, params), single.generate(PROMPTS, params)
    assert token_ids(got) == token_ids(want)
    for ours, theirs in zip(got, want, strict=True):
        for mine, other in zip(ours.prompt_logprobs, theirs.prompt_logprobs, strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_ranks_agree_where_no_seed_is_given(pair):
    """If they did not, lengths or blocks would differ, and sooner or later a step's shapes."""
    params = SamplingParams(max_tokens=40, temperature=1.5)
    for _ in range(3):
        pair.generate(PROMPTS * 4, params)
    pair.engine.ranks.check()


def test_streams_and_aborts(pair, single):
    stream = pair.stream("Once upon a time", GREEDY)
    pieces = [next(stream), next(stream)]
    stream.close()
    assert pieces
    texts = [list(llm.stream("Once upon a time", GREEDY)) for llm in (pair, single)]
    assert texts[0] == texts[1]
    assert pair.engine.reset_prefix_cache() > 0
    assert token_ids(pair.generate(PROMPTS, GREEDY)) == token_ids(single.generate(PROMPTS, GREEDY))


def test_ranks_that_run_ahead_of_the_tokens_agree(alone, untied_model):
    """With chunks of prompts, shared ones, too few blocks, and aborts of what is not read yet."""
    options = dict(num_blocks=44, block_size=4, max_num_seqs=8, max_num_batched_tokens=32)
    single = LLM(untied_model, **options)
    llm = LLM(untied_model, tensor_parallel_size=2, overlap=True, **options)
    engine, prompts, read = llm.engine, [*PROMPTS, PROMPTS[4][:60], [9] * 40 + [8]], []
    try:
        wanted = token_ids(single.generate(prompts, GREEDY))
        for gone in range(len(prompts)):
            ids = [engine.add_request(prompt, GREEDY) for prompt in prompts]
            requests = [engine.requests[name] for name in ids]
            while engine.has_work:
                engine.step()
                if requests[gone].is_unread:
                    engine.abort(ids[gone])
            read += [r for r in requests if r.finish_reason == "length"]
            for request, tokens in zip(requests, wanted, strict=True):
                assert request.finish_reason == "abort" or request.output_token_ids == tokens
        assert len(read) < len(prompts) ** 2  # some were aborted
        assert any(request.metrics.num_preemptions for request in read)
        engine.ranks.check()
        check_whole(engine)
    finally:
        llm.close()


def test_only_one_at_a_time(pair, untied_model):
    """A process is rank 0 of one group; a second engine would wait for ranks that do not come."""
    with pytest.raises(ValueError, match="has joined other ranks: close those first"):
        LLM(untied_model, tensor_parallel_size=2)


def test_an_error_before_a_step_changes_nothing(pair):
    with pytest.raises(ValueError, match="token id 999"):
        pair.generate([[999]])
    with pytest.raises(TypeError, match="SamplingParams"):
        pair.engine.add_request([1], {"temperature": 0})
    pair.generate(PROMPTS, GREEDY)


def test_a_refused_thread_ends_no_rank(pair):
    def before(step):
        with pytest.raises(RuntimeError, match="a step is under way"):
            pair.engine.step()
        with pytest.raises(RuntimeError, match="a step is under way"):
            pair.engine.add_request([5])

    interfere(pair.engine, before=before)
    pair.generate(PROMPTS, GREEDY)
    leave_alone(pair.engine)
    pair.engine.ranks.check()
    check_whole(pair.engine)


def test_a_post_that_fails_leaves_no_request(pair, monkeypatch):
    def fail(*_):
        raise RankFailed("the ranks have ended")

    monkeypatch.setattr(pair.engine.ranks, "post", fail)
    with pytest.raises(RankFailed):
        pair.engine.add_request([1, 2])
    assert not pair.engine.requests


def test_a_pool_that_is_too_small(alone, untied_model):
    """Preemption and eviction happen alike on all ranks."""
    prompts = [[10 + i] * 30 for i in range(8)]
    options = {"num_blocks": 12, "block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 16}
    want = token_ids(LLM(untied_model, **options).generate(prompts, GREEDY))
    llm = LLM(untied_model, **options, tensor_parallel_size=2)
    try:
        assert token_ids(llm.generate(prompts, GREEDY)) == want
        reset = []
        graph = SimpleNamespace(reset=lambda: reset.append(dist.is_initialized()))
        llm.engine.runner.graphs = [SimpleNamespace(graph=graph)]
        llm.engine.ranks.close()
        assert reset == [True]  # NCCL would wait for them
    finally:
        llm.close()


def test_a_rank_that_dies_is_an_error(alone, untied_model):
    llm = LLM(untied_model, num_blocks=64, tensor_parallel_size=2)
    llm.generate(PROMPTS, GREEDY)
    stream = llm.stream("Once upon a time", GREEDY)
    next(stream)
    llm.engine.ranks.post(os._exit, 9)
    with pytest.raises(RankFailed, match=r"(?s)rank 1 failed.*exit code 9"):
        llm.generate(PROMPTS, GREEDY)
    assert not llm.engine.is_usable
    assert len(llm.engine.requests) == 1  # the others are aborted
    stream.close()
    assert not llm.engine.requests
    with pytest.raises(RankFailed, match="start them again"):
        llm.generate(PROMPTS, GREEDY)
    llm.close()


def test_a_server_whose_rank_dies_says_that_it_does_not_run(alone, untied_model):
    """A supervisor has to start it again: no other request can be answered."""
    llm = LLM(untied_model, num_blocks=64, tensor_parallel_size=2)
    sent = {"model": "tiny", "prompt": "a", "max_tokens": 3}
    with serving(llm) as server, server.client() as http:
        assert http.post("/v1/completions", json=sent).status_code == 200
        llm.engine.ranks._ranks[0]._process.kill()
        llm.engine.ranks._ranks[0]._process.wait()
        assert http.post("/v1/completions", json=sent).status_code == 500
        assert http.get("/health").status_code == 503
        assert http.post("/v1/completions", json=sent).status_code == 503
    assert not llm.engine.requests
    llm.close()


def test_an_interrupt_ends_the_ranks(alone, untied_model, monkeypatch):
    llm = LLM(untied_model, num_blocks=64, tensor_parallel_size=2)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(llm.engine.runner, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, GREEDY)
    assert not llm.engine.ranks.is_open
    assert not llm.engine.requests


def test_ranks_take_the_gpus_from_the_first(monkeypatch):
    with pytest.raises(ValueError, match=r'"cuda:0", or "cuda" where that is .* got "cuda:1"'):
        _check_gpus(2, "cuda:1")  # what "cuda" is where GPU 1 is the current one
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="at most 1, the number of GPUs here, got 2"):
        _check_gpus(2, "cuda:0")


def test_errors_while_it_is_made(alone, untied_model):
    with pytest.raises(ValueError, match="num_attention_heads, 4, got 3"):
        LLM(untied_model, tensor_parallel_size=3)
    with pytest.raises(ValueError, match="tensor_parallel_size"):
        LLM(untied_model, tensor_parallel_size=0)
    with pytest.raises(
        ValueError, match="kv_cache_memory_bytes"
    ):  # the others were started by then
        LLM(untied_model, tensor_parallel_size=2, kv_cache_memory_bytes=8)
    LLM(untied_model, num_blocks=8, tensor_parallel_size=2).close()  # so nothing was left behind


SCRIPT = """
import sys
from yaie import LLM, SamplingParams
from test_parallel import GREEDY, PROMPTS

llm = LLM(sys.argv[1], num_blocks=64, tensor_parallel_size=2, device="cpu")
drawn = SamplingParams(temperature=1.5, seed=7, max_tokens=8)
outputs = [output for params in (GREEDY, drawn) for output in llm.generate(PROMPTS, params)]
print([output.token_ids for output in outputs], flush=True)
llm.generate(PROMPTS, SamplingParams(temperature=1.5, max_tokens=8))  # a seed for all ranks
if "dies" in sys.argv:
    import os
    llm.engine.ranks.post(os._exit, 9)
    llm.generate(PROMPTS, GREEDY)
llm.close()
"""


def torchrun(tmp_path, *command: str) -> list[tuple[int, str, str]]:
    """Run a command by two torchruns, as if on two nodes with one rank each; returns the exit
    status of each torchrun and what it printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    tests = Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    nodes = []
    for node in ("0", "1"):
        start = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "2",
            "--node-rank",
            node,
        ]
        start += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        nodes.append(subprocess.Popen([*start, *command], env=environment, cwd=tmp_path, **streams))
    try:
        said = [node.communicate(timeout=240) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    return [(node.returncode, *texts) for node, texts in zip(nodes, said, strict=True)]


def test_two_nodes_started_by_torchrun(untied_model, single, tmp_path):
    """Rank 0 runs the script; the other rank computes with rank 0's engine, and ends with it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (code, out, said), (other, elsewhere, _) = torchrun(tmp_path, "script.py", str(untied_model))
    assert (code, other, elsewhere) == (0, 0, ""), said
    drawn = SamplingParams(temperature=1.5, seed=7, max_tokens=8)
    wanted = [ids for p in (GREEDY, drawn) for ids in token_ids(single.generate(PROMPTS, p))]
    assert json.loads(out) == wanted


def test_a_node_that_dies_is_told(untied_model, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    nodes = torchrun(tmp_path, "script.py", str(untied_model), "dies")
    assert all(code for code, *_ in nodes)
    assert "RankFailed: rank 1 failed." in nodes[0][2]
    assert "exitcode  : 9" in nodes[1][2]  # as torchrun tells it


def test_torchrun_has_started_as_many_as_share_the_model(alone, untied_model, monkeypatch):
    for name, value in (("WORLD_SIZE", "4"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"tensor_parallel_size must be 4, the number .* got 2"):
        LLM(untied_model, tensor_parallel_size=2)


@pytest.mark.real_model
@pytest.mark.slow
def test_the_real_model_on_three_ranks(alone, real_model):
    """Its 9 query heads and 3 KV heads can be split in three, and not in two."""
    params = SamplingParams(temperature=0.0, max_tokens=14)
    prompts = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time"]
    want = token_ids(LLM(real_model, num_blocks=32).generate(prompts, params))
    with pytest.raises(ValueError, match="num_attention_heads, 9, got 2"):
        LLM(real_model, tensor_parallel_size=2)
    llm = LLM(real_model, num_blocks=32, tensor_parallel_size=3)
    try:
        assert token_ids(llm.generate(prompts, params)) == want
    finally:
        llm.close()
