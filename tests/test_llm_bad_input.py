"""Bad input: an error that names the argument, and an engine that goes on as before."""

import re
import sys

import pytest
from engines import check_whole
from tiny import make_tiny_model

from yaie import LLM, SamplingParams
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.parts import Parts
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

USER = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", max_position_embeddings=64)


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, num_blocks=64, block_size=4)


@pytest.fixture(autouse=True)
def nothing_is_left(llm):
    """After every refusal the pool is whole, and a good request is served."""
    yield
    check_whole(llm.engine)
    assert llm.generate("Hi", SamplingParams(max_tokens=2, ignore_eos=True))[0].token_ids


# ------------------------------------------------------------------------------------ prompts

BAD_PROMPTS = [
    ("", ValueError, "prompts must not be empty"),
    ([], ValueError, "prompts must not be empty"),
    ([""], ValueError, r"prompts\[0\] must not be empty: a str or a list of token ids"),
    (["fine", []], ValueError, r"prompts\[1\] must not be empty"),
    ([384], ValueError, r"prompts\[0\] has token id 384, outside 0 to 383"),
    ([5, -1], ValueError, r"prompts\[0\] has token id -1"),
    ([[5], [5, 10**12]], ValueError, r"prompts\[1\] has token id 1000000000000"),
    ([5, True], TypeError, r"prompts\[0\] must have ints as token ids, got True"),
    ([True, 5], TypeError, r"prompts\[0\] must have ints"),
    ([5, "6"], TypeError, r"prompts\[0\] must have ints as token ids, got '6'"),
    ([[5, "6"]], TypeError, r"prompts\[0\] must have ints"),
    (["text", 5], TypeError, r"prompts\[1\] must be a str or a list of token ids, got int"),
    ([0.5], TypeError, r"prompts\[0\] must be a str or a list of token ids, got float"),
    ([None], TypeError, r"prompts\[0\] must be a str or a list of token ids, got NoneType"),
    ([USER], TypeError, r"prompts\[0\] must be a str .*, got messages: for .* use `llm.chat`"),
    (["text", [USER]], TypeError, r"prompts\[1\] .* got messages: for messages use `llm.chat`"),
    (b"bytes", TypeError, "prompts must be a str, a list of token ids"),
    (None, TypeError, "prompts must be"),
    (5, TypeError, "prompts must be"),
    ({"a": 1}, TypeError, "prompts must be"),
    ([5] * 64, ValueError, r"prompts\[0\] has 64 tokens; .* at most 64 fit"),
    (["fine", "far too long " * 40], ValueError, r"prompts\[1\] has \d+ tokens"),
]


@pytest.mark.parametrize("prompts, error, message", BAD_PROMPTS, ids=repr)
def test_bad_prompts(llm, prompts, error, message):
    with pytest.raises(error, match=message):
        llm.generate(prompts)
    assert not llm.engine.has_work, "none is served if one is bad"


@pytest.mark.parametrize(
    "prompt, error, message",
    [
        ("", ValueError, "prompt must not be empty"),
        ([], ValueError, "prompt must not be empty"),
        (None, TypeError, "prompt must be"),
        ([384], ValueError, "prompt has token id 384"),
        (["one", "two"], TypeError, "prompt must have ints as token ids, got 'one'"),
        ([5] * 64, ValueError, "prompt has 64 tokens"),
        ([{"role": "user"}], ValueError, r"messages\[0\]"),
    ],
    ids=repr,
)
def test_bad_prompts_of_a_stream(llm, prompt, error, message):
    with pytest.raises(error, match=message):
        llm.stream(prompt)  # at the call, not at the first piece


def test_the_engine_takes_no_text(llm):
    with pytest.raises(TypeError, match="prompt must be a list of token ids, got str"):
        llm.engine.add_request("hello")


@pytest.mark.parametrize(
    "messages, error, message",
    [
        ([], ValueError, "messages must not be empty"),
        ([[]], ValueError, "messages"),
        (None, TypeError, "messages must be a list"),
        (USER, TypeError, "messages must be a list of messages, .* got dict"),
        ("Hi", TypeError, "messages must be a list of messages, .* got str"),
        ([5], ValueError, "messages"),
        ([{"role": "user"}], ValueError, r"messages\[0\] must be .* role and content"),
        ([{"content": "Hi"}], ValueError, r"messages\[0\]"),
        ([USER, "Hi"], ValueError, r"messages\[1\]"),
        ([[USER], [USER, 5]], ValueError, r"messages\[1\]\[1\] must be a dictionary"),
        ([[USER], []], ValueError, r"messages\[1\] must be a non-empty list of dictionaries"),
        ([{"role": "user", "content": 5}], TypeError, r"messages\[0\]\['content'\] must be a str"),
        ([{"role": "user", "content": None}], TypeError, r"messages\[0\]\['content'\]"),
        ([{"role": "user", "content": "word " * 99}], ValueError, r"messages has \d+ tokens"),
        (
            [[USER], [{"role": "user", "content": "word " * 99}]],
            ValueError,
            r"messages\[1\] has \d+ tokens",
        ),
    ],
    ids=repr,
)
def test_bad_messages(llm, messages, error, message):
    with pytest.raises(error, match=message):
        llm.chat(messages)


def test_a_prompt_longer_than_the_pool(folder):
    llm = LLM(folder, num_blocks=3, block_size=4)
    with pytest.raises(ValueError, match=r"prompts\[0\] has 12 tokens.*cache 3 blocks of 4"):
        llm.generate([5] * 12)
    assert llm.generate([5] * 11)[0].finish_reason == "length"


def test_texts_that_are_no_unicode(llm):
    wanted = re.escape(
        "text must be Unicode, got half a surrogate pair ('\\ud83d') at character 13"
    )
    with pytest.raises(ValueError, match=wanted):
        llm.generate("half a pair: \ud83d")
    with pytest.raises(ValueError, match="half a surrogate pair"):
        llm.chat([{"role": "user", "content": "\udcff"}])  # a byte that is not UTF-8


# ------------------------------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"temperature": 0.0}, TypeError, "sampling_params"),
        (5, TypeError, "sampling_params"),
        ([], ValueError, "sampling_params"),
        ([SamplingParams()] * 3, ValueError, "one for each of the 2 prompts, got 3"),
        ([SamplingParams(), 0.5], TypeError, r"sampling_params\[1\] must be SamplingParams"),
        (SamplingParams(stop_token_ids=[384]), ValueError, r"stop_token_ids has token id 384"),
        (SamplingParams(stop_token_ids=["a"]), TypeError, r"stop_token_ids must have ints"),
    ],
    ids=repr,
)
def test_parameters_of_the_wrong_kind(llm, params, error, message):
    with pytest.raises(error, match=message):
        llm.generate(["a", "b"], params)


@pytest.mark.parametrize("method", ["generate", "chat", "stream"])
def test_parameters_beside_sampling_params(llm, method):
    call = getattr(llm, method)
    told = "pass SamplingParams(max_tokens=4, stop='.') as sampling_params, not max_tokens=4, "
    with pytest.raises(TypeError, match=re.escape(told)):
        call([USER], max_tokens=4, stop=".")
    with pytest.raises(TypeError, match="there is no argument 'params'; sampling_params has"):
        call([USER], params=SamplingParams())


def test_a_stop_that_is_no_text():
    for stop in 3, b".":
        with pytest.raises(TypeError, match=f"stop must be a str or a list of them, got {stop!r}"):
            SamplingParams(stop=stop)


def test_parameters_of_a_stream(llm):
    with pytest.raises(TypeError, match="sampling_params must be SamplingParams, got dict"):
        llm.stream("a", {"temperature": 0.0})


# ------------------------------------------------------------------------------------ the engine


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"block_size": 0}, ValueError, "block_size must be at least 1, got 0"),
        ({"block_size": "16"}, TypeError, "block_size must be an int"),
        ({"block_size": True}, TypeError, "block_size"),
        ({"num_blocks": 0}, ValueError, "num_blocks must be at least 1, got 0"),
        ({"num_blocks": 2.5}, TypeError, "num_blocks"),
        ({"num_blocks": 1, "block_size": 1}, ValueError, "num_blocks must make room"),
        ({"num_blocks": 99, "block_size": 10**10}, RuntimeError, "out of memory: .* num_blocks"),
        ({"kv_cache_memory_bytes": 100}, ValueError, "kv_cache_memory_bytes must hold"),
        ({"kv_cache_memory_bytes": 1e9}, TypeError, "kv_cache_memory_bytes"),
        ({"max_num_seqs": 0}, ValueError, "max_num_seqs"),
        ({"max_num_seqs": 2.0}, TypeError, "max_num_seqs"),
        ({"max_num_seqs": True}, TypeError, "max_num_seqs"),
        ({"device": "gpu"}, ValueError, "device must be .* got .gpu."),
        ({"device": 7}, ValueError, "device must be"),
        ({"gpu_memory_utilization": 1.5}, ValueError, "gpu_memory_utilization must be"),
        ({"gpu_memory_utilization": "x"}, TypeError, "gpu_memory_utilization must be a number"),
        ({"enforce_eager": "no"}, TypeError, "enforce_eager must be True or False, got 'no'"),
        ({"enable_prefix_caching": "false"}, TypeError, "enable_prefix_caching must be True or"),
        ({"enable_chunked_prefill": 0}, TypeError, "enable_chunked_prefill must be True or False"),
        ({"chunked_prefill_size": 0}, ValueError, "chunked_prefill_size must be at least 1, got 0"),
        ({"exercises": 5}, TypeError, "exercises must be True, False or a list of ids, got 5"),
        ({"max_num_batched_tokens": 8}, ValueError, "max_num_batched_tokens"),
        ({"max_num_batched_tokens": "2048"}, TypeError, "max_num_batched_tokens"),
        ({"policy": "best"}, ValueError, "policy"),
        ({"tensor_parallel_size": 0}, ValueError, "tensor_parallel_size must be at least 1, got 0"),
        ({"dtype": "float33"}, ValueError, "dtype must be one of .*got 'float33'"),
        ({"dtype": 32}, ValueError, "dtype"),
        ({"backend": None}, TypeError, "backend must be a name or a mapping .* got None"),
        ({"backend": ["cpp"]}, TypeError, r"backend must be a name or a mapping .*\['cpp'\]"),
        ({"backend": {"norm": "cpp"}}, ValueError, "backend: operators are .*, got 'norm'"),
        ({"backend": {"rotary": ["cpp"]}}, ValueError, r"backend of rotary must .*\['cpp'\]"),
        ({"backend": "x"}, ValueError, r"or a mapping, such as {'rms_norm': 'cuda'}, got 'x'"),
        ({"backends": {}}, TypeError, "^LLM has no option 'backends'; did you mean 'backend'\\?$"),
        ({"x": 1}, TypeError, "^LLM has no option 'x'; it has backend, .* tensor_parallel_size$"),
        ({"temperature": 0.5}, TypeError, r"^LLM has .* belongs in SamplingParams\(temperature="),
        ({"device": 2**70}, ValueError, "device must be .* got 1180591620717411303424"),
    ],
    ids=repr,
)
def test_bad_options(folder, options, error, message):
    with pytest.raises(error, match=message):
        LLM(folder, **options)


def test_patience_is_counted_from_0():
    with pytest.raises(ValueError, match="patience must be at least 0, got -1"):
        EngineConfig(patience=-1)


@pytest.mark.parametrize("name", ["gpu", "cuda:99"])
def test_a_bad_device_of_the_environment(folder, monkeypatch, name):
    monkeypatch.setenv("YAIE_DEVICE", name)
    with pytest.raises(ValueError, match=f"^YAIE_DEVICE.*{name}"):
        LLM(folder)


def test_the_environment_names_the_device(folder, monkeypatch):
    monkeypatch.setenv("YAIE_DEVICE", "cpu")
    assert LLM(folder, num_blocks=8).engine.device.type == "cpu"


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        ("cpp", ""),
        ({"rms_norm": "cuda"}, "cuda runs in the emulator, far slower than on a GPU\n"),
        ("triton", "triton runs in Triton's interpreter, far slower than on a GPU\n"),
    ],
)
def test_what_stands_in_for_a_gpu_is_told_on_a_terminal(folder, capsys, monkeypatch, backend, told):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    llm = LLM(folder, device="cpu", num_blocks=8, backend=backend)
    assert capsys.readouterr() == ("", told)
    where = told.partition(" runs ")[2].strip()
    assert where in llm.engine.about.splitlines()[0] and (where or "slow" not in llm.engine.about)


@pytest.mark.parametrize("model", [None, 3, b"tiny"])
def test_a_model_that_is_no_name(model):
    with pytest.raises(TypeError, match="model must be a name or a path, got "):
        LLM(model)


def test_request_ids_in_use(folder):
    engine = Engine(
        load_model(folder), Tokenizer(folder), EngineConfig(num_blocks=64, block_size=4)
    )
    engine.add_request([5], request_id="mine")
    with pytest.raises(ValueError, match="request_id 'mine' is in use"):
        engine.add_request([6], request_id="mine")
    assert len(engine.requests) == len(engine.scheduler.waiting) == 1
    engine.abort("mine")
    engine.add_request([6], request_id="mine")  # free again
    engine.add_request([6], request_id="request-0")
    assert engine.add_request([6]) not in ("mine", "request-0")
    for request_id in list(engine.requests):
        engine.abort(request_id)
    check_whole(engine)


def test_the_switch_for_exercises(folder, monkeypatch):

    asked = []

    def learner_parts(ids):
        asked.append(ids)
        return Parts()

    monkeypatch.setattr("yaie.course.core.plug.learner_parts", learner_parts)
    for word in ("1", "true", "Yes"):
        monkeypatch.setenv("YAIE_USE_EXERCISES", word)
        LLM(folder, num_blocks=8)
    assert asked == [None] * 3
    for ids in (["01.2"], "01.2"):
        LLM(folder, num_blocks=8, exercises=ids)
        assert asked.pop() == ["01.2"]
    for word in ("0", "false", "No", ""):
        monkeypatch.setenv("YAIE_USE_EXERCISES", word)
        LLM(folder, num_blocks=8)
    assert len(asked) == 3
    monkeypatch.setenv("YAIE_USE_EXERCISES", "on")
    with pytest.raises(ValueError, match=r"YAIE_USE_EXERCISES must be 1, true, yes, .* got 'on'"):
        LLM(folder, num_blocks=8)
