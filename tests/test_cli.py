"""The `yaie` command: what it prints, how it ends, and a conversation with a pretended model."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import yaie
from yaie import chat as chatting
from yaie import cli
from yaie.bench import commands
from yaie.chat import HELP, Chat
from yaie.course.core import doctor
from yaie.engine.params import SamplingParams
from yaie.model.download import PullError
from yaie.model.manifest import DamagedModel, write_manifest
from yaie.ops import registry

COMMANDS = {
    *("doctor", "pull", "chat", "serve", "bench"),
    *("check", "hint", "solution", "reset", "status", "watch"),
}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "yaie", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", **env},
        timeout=120,
    )


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, arguments)


def test_help_and_version(invoke):
    assert set(get_command(cli.app).commands) == COMMANDS
    shown = invoke("--help")
    assert shown.exit_code == 0 and all(command in shown.output for command in COMMANDS)
    assert invoke("--version").output == f"yaie {yaie.__version__}\n"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            "import yaie.cli as c; c.app(['--help'], standalone_mode=False)",
            "torch numpy matplotlib huggingface_hub IPython yaie.engine.llm",
        ),
        ("from yaie import LLM", "triton fastapi uvicorn matplotlib yaie.emulator.rewrite"),
        ("import yaie.chat; from yaie import LLM, SamplingParams", "fastapi yaie.bench"),
        ("import yaie.server.run", "torch numpy triton transformers yaie.bench yaie.course"),
    ],
)
def test_a_start_imports_only_what_it_needs(code, heavy):
    """In place of a time: what takes seconds to import, or is another command's, is not there."""
    heavy = ["transformers", "jupyter_client", *heavy.split()]
    check = f"import sys; {code}; print([n for n in {heavy} if n in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.stderr == "[]\n" and done.returncode == 0


@pytest.mark.usefixtures("warm_python")
def test_an_error_is_one_line_and_debug_shows_where(tmp_path):
    done = run("chat", "no-such-model", YAIE_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("yaie: unknown model 'no-such-model'")
    assert done.stderr.count("\n") == 1
    done = run("--debug", "chat", "no-such-model", YAIE_CACHE=str(tmp_path))
    assert done.returncode == 1 and "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("by nought"),
         "yaie: by nought\n(ZeroDivisionError; `yaie --debug ...` shows where)\n"),
        (PullError("no network:\n  try later"), "yaie: no network: try later\n"),
    ],
)  # fmt: skip
def test_an_unforeseen_error_says_how_to_see_more(monkeypatch, capsys, error, told):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(type(cli.app), "__call__", broken)
    monkeypatch.setattr(sys, "argv", ["yaie", "status"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1 and capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bench engine --only matrix,speed", "--only must name some of transformers, matrix, "),
        ("bench kernels --ladder x --case y", "a ladder has cases of its own: no --case y"),
        ("chat --max-tokens 0", "--max-tokens must be 1 or more, got 0"),
        ("chat --backend =x", "--backend must be one name, or OPERATOR=NAME "),
        ("chat --backend x", "--backend must be 'auto' or 'cpp' or 'cuda' or 'cuda_hopper' or "
         "'reference' or 'triton', or OPERATOR=NAME for one, got 'x'"),
        ("chat --backend sample=x", "--backend of sample must be 'reference' or 'cuda', got 'x'"),
        ("chat --exercises --device x", '--device must be "auto", "cpu", '),
        ("chat --dtype x", "--dtype must be one of float32, "),
        ("chat --kv-cache-dtype x", '--kv-cache-dtype must be "auto" or "fp8", got '),
        ("serve --max-num-batched-tokens 3",
         "--max-num-batched-tokens must be at least --max-num-seqs (64), so that "),
        ("serve --policy first",
         '--policy must be "fcfs" or "lpm" or "longest", got \'first\''),
        ("serve --api-key x --api-key-file LICENSE", "--api-key: give it, or --api-key-file"),
    ],
)  # fmt: skip
def test_an_error_names_the_option_that_was_typed(monkeypatch, capsys, words, told):
    own = {name for names in registry.ORDER.values() for name in names}  # of no other test
    for operator, row in registry._FUNCTIONS.items():
        kept = {name: function for name, function in row.items() if name in own}
        monkeypatch.setitem(registry._FUNCTIONS, operator, kept)
    monkeypatch.setattr(sys, "argv", ["yaie", *words.split()])
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1].startswith(f"yaie: {told}")
    assert not shown.out  # nothing was loaded before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("statsu", "'statsu'; the commands are doctor, .*, watch. Did you mean 'status'\\?"),
        ("bench x", "'x'; the commands are engine, serve, jit, radix, kernels"),
    ],
)
def test_a_command_that_there_is_not(invoke, words, told):
    done = invoke(*words.split())
    assert done.exit_code == 2 and re.search(f"Error: there is no command {told}\n$", done.output)


def test_what_a_peer_does_not_take_is_not_ignored(invoke):
    for peer, more in ("spinning", "dtype=bfloat16"), ("llama.cpp", "quick"):
        done = invoke("bench", "engine", f"--peer={peer}", f"--{more}")
        assert str(done.exception) == f"{more[:5]} cannot be given beside --peer {peer}"


def test_only_options_of_the_command_are_named():
    told = 'device="cuda" needs a GPU: pass device="cpu"; see /a/max_tokens and the only device'
    option = told.replace("device=", "--device=")
    for words, wanted in ("chat", option), ("bench engine", option), ("bench radix", told):
        assert commands.name_options(told, cli.app, words.split()) == wanted
    told = commands.name_options("unknown model '15.4': not one of", cli.app, ["chat", "15.4"])
    assert told.endswith("not one of; to run a model with your exercise, pass --exercise 15.4")


def test_sigterm_ends_a_command_as_an_exception_does(monkeypatch):
    ended = []

    def app(**_):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:  # where a benchmark ends its server
            ended.append("its server")

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["yaie", "bench"])
    with pytest.raises(SystemExit) as status:
        cli.main()
    assert status.value.code == 143 and ended == ["its server"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_that_a_command_sets_is_left_alone(monkeypatch):
    heard, seen = [], []

    def theirs(number, frame):
        heard.append(number)

    def serve(**_):
        signal.signal(signal.SIGTERM, theirs)
        signal.raise_signal(signal.SIGTERM)

    def look(**_):
        seen.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(sys, "argv", ["yaie", "serve"])
    try:
        monkeypatch.setattr(cli, "app", serve)
        cli.main()  # which sets its own over that of `main`
        assert heard == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is theirs
        monkeypatch.setattr(cli, "app", look)
        cli.main()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    thread = threading.Thread(target=cli.main)
    thread.start()
    thread.join()
    assert seen == [theirs, signal.SIG_DFL]


def test_pull_prints_the_folder(invoke, monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(
        "yaie.model.pull.pull", lambda name, **options: asked.update(options, name=name) or tmp_path
    )
    shown = invoke("pull", "--from-hub", "some/model", "--cache-dir", str(tmp_path))
    assert shown.output == f"model: {tmp_path}\n"
    assert asked["from_hub"] == "some/model" and asked["cache_dir"] == str(tmp_path)
    assert asked["name"] is None


def test_pull_verifies_every_byte(invoke, monkeypatch, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_manifest(tmp_path, "a test")
    monkeypatch.setattr("yaie.model.pull.pull", lambda name, **options: tmp_path)
    assert "verified: 1 files are as they were fetched" in invoke("pull", "--verify").output
    stat = (tmp_path / "model.safetensors").stat()
    (tmp_path / "model.safetensors").write_bytes(b"Weights")
    os.utime(tmp_path / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "model:" in invoke("pull").output
    result = invoke("pull", "--verify")
    assert isinstance(result.exception, DamagedModel)


def test_doctor_ends_with_a_status(invoke, monkeypatch):
    for verdict, status in (doctor.OK, 0), ("note", 0), ("problem", 1):
        monkeypatch.setattr(doctor, "PROBES", {"thing": lambda v=verdict: (v, "so", "do this")})
        shown = invoke("doctor")
        assert shown.exit_code == status and "-> do this" in shown.output
        assert json.loads(invoke("doctor", "--json").output)["ok"] is (status == 0)


# A conversation with a pretended model.


class Stream:
    """Like `LLM.stream`'s: pieces, then `output`."""

    def __init__(self, pieces, cached=0, interrupt_after=None, error=None, finish="stop"):
        self.pieces, self.interrupt_after, self.given = pieces, interrupt_after, []
        self.cached, self.error, self.finish = cached, error, finish
        self.closed = False
        self.note()

    def __iter__(self):
        for piece in self.pieces:
            if len(self.given) == self.interrupt_after:
                raise KeyboardInterrupt
            self.given.append(piece)
            self.note()
            yield piece

    def note(self):
        self.output = SimpleNamespace(
            text="".join(self.given),
            token_ids=list(range(len(self.given))),
            prompt_token_ids=list(range(40)),
            metrics=SimpleNamespace(num_cached_tokens=self.cached),
            error=self.error,
            finish_reason=self.finish,
        )

    def close(self):
        self.closed = True


class PretendedLLM:
    def __init__(self, *streams):
        self.streams, self.asked, self.params = list(streams), [], None

    def stream(self, messages, params):
        self.asked.append([dict(message) for message in messages])
        self.params = params
        stream = self.streams.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return stream


CTRL_C = "Ctrl-C at the prompt"


def talk(llm, *lines, max_tokens=256, system=None):
    lines, params = iter(lines), SamplingParams(temperature=0.0, max_tokens=max_tokens)

    def ask(_):
        if (line := next(lines, None)) is None:
            raise EOFError
        if line is CTRL_C:
            raise KeyboardInterrupt
        return line if isinstance(line, str) else line.decode()

    chat = Chat(llm, params, system, ask)
    chat.run()
    return chat


def test_a_conversation_is_sent_whole_and_its_cost_is_told(capsys):
    llm = PretendedLLM(Stream(["Par", "is"]), Stream(["Rome"], cached=32))
    talk(llm, "France?", "", "Italy?", "/exit", "never asked", system="Be brief.", max_tokens=9)
    assert llm.asked == [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "France?"}],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "France?"},
            {"role": "assistant", "content": "Paris"},
            {"role": "user", "content": "Italy?"},
        ],
    ]
    assert llm.params == SamplingParams(temperature=0.0, max_tokens=9)
    shown = capsys.readouterr().out
    assert "Paris\n" in shown and "Rome\n" in shown
    assert "prompt 40 tokens, 0 cached; answer 2" in shown
    assert "prompt 40 tokens, 32 cached; answer 1" in shown


def test_reset_keeps_the_system_prompt(capsys):
    llm = PretendedLLM(Stream(["one"]), Stream(["two"]))
    chat = talk(llm, "a", "/reset", "b", system="S")
    assert [message["content"] for message in llm.asked[1]] == ["S", "b"]
    assert [message["content"] for message in chat.messages] == ["S", "b", "two"]


def test_what_is_remembered_of_an_answer_that_did_not_end_well(capsys):
    stopped = Stream(["one ", "two ", "three"], interrupt_after=2)
    reset = "prompt is too long. /reset starts over."
    for stream, kept, told in [
        (stopped, ["ask", "one two "], "two \n"),
        (Stream(["one"], interrupt_after=0), [], ""),
        (Stream(["o"], error="logits hold NaN"), [], "logits hold NaN"),
        (ValueError("prompt is too long"), [], reset),
    ]:
        before = Stream(["ok"])
        chat = talk(PretendedLLM(before, stream), "short", "ask")
        assert [message["content"] for message in chat.messages] == ["short", "ok", *kept]
        assert told in capsys.readouterr().out
    assert stopped.closed


def test_a_line_that_is_no_text_is_told(capsys):
    llm = PretendedLLM(Stream(["ok"]))
    talk(llm, b"hi \xff", b"there")
    assert llm.asked == [[{"role": "user", "content": "there"}]]
    assert "A question must be text: 'utf-8' codec can't decode byte" in capsys.readouterr().out


def test_one_ctrl_c_at_the_prompt_keeps_the_conversation(capsys):
    llm = PretendedLLM(Stream(["one"]), Stream(["two"]))
    chat = talk(llm, "a", CTRL_C, "b", CTRL_C, CTRL_C, "never asked")
    assert [message["content"] for message in chat.messages] == ["a", "one", "b", "two"]
    assert capsys.readouterr().out.count("Ctrl-C once more ends the conversation.") == 2


def test_kernels_of_exercises_are_compiled_before_the_first_question(monkeypatch):
    calls = []

    class Pretended:
        def __init__(self, model, exercises=None, **options):
            self.engine = SimpleNamespace(about="all")

        def generate(self, prompt, params):
            calls.append(params.max_tokens)

    monkeypatch.setattr("yaie.engine.llm.LLM", Pretended)
    chatting.load("model")
    assert calls == []
    chatting.load("model", exercises=True)
    assert calls == [2]  # one step of prefill, one of decode


def test_commands_are_not_sent_to_the_model(capsys):
    llm = PretendedLLM()
    talk(llm, "/help me")
    assert llm.asked == [] and "/reset" in capsys.readouterr().out
    talk(llm, "/help", "/quit", "never asked")
    assert llm.asked == [] and capsys.readouterr().out == f"{HELP}.\n"


def test_an_answer_that_was_cut_says_so(capsys):
    """An answer ends by length at --max-tokens, or where the context is full."""
    for finish, max_tokens, told in [
        ("length", 2, "two\n(stopped at --max-tokens 2)\n"),
        ("length", 9, "two\n(the context is full, /reset starts over)\n"),
        ("stop", 2, "two\n[prompt"),
    ]:
        talk(PretendedLLM(Stream(["one", "two"], finish=finish)), "count", max_tokens=max_tokens)
        assert told in capsys.readouterr().out


def test_the_command_has_the_defaults_of_the_conversation(invoke, monkeypatch):
    llm = PretendedLLM(Stream(["ok"]))
    monkeypatch.setattr("yaie.chat.load", lambda model, **options: llm)
    assert CliRunner().invoke(cli.app, ["chat"], input="hello\n").exit_code == 0
    assert llm.params == SamplingParams(temperature=0.0, top_p=0.9, max_tokens=256)
    monkeypatch.setattr("yaie.chat.load", lambda model, **options: pytest.fail("loaded before"))
    for option, value in ("temperature", "-1"), ("exercise", "99.9"):
        refused = invoke("chat", f"--{option}", value)
        assert isinstance(refused.exception, ValueError) and option in str(refused.exception)


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_a_model_given_as_an_option_is_said_to_be_an_argument(invoke, command):
    for words in ["--model", "org/name"], ["other", "--model=org/name"]:
        told = invoke(command, *words)
        assert told.exit_code == 2 and "--model" not in invoke(command, "--help").output
        assert told.output.endswith(f"argument, not an option: root {command} org/name\n")


def test_the_command_knows_the_sections_of_the_benchmark():
    from yaie.bench.sections import SECTIONS

    assert tuple(SECTIONS) == commands.ENGINE_SECTIONS


def test_a_benchmark_says_first_that_the_machine_is_busy(monkeypatch, capsys):
    for cores, load, told in (2, 0.5, False), (2, 0.6, True), (64, 12.0, False), (8, 3.44, True):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 50.0, 50.0))
        with commands.measuring():
            said = capsys.readouterr().err
        words = (
            f"programs used this CPU in the last minute (load {load:.1f}): times may be too long\n"
        )
        assert said == (words if told else "")
        with commands.measuring(alone=False):
            assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["engine"], "nothing was kept without --output"),
        (["engine", "--output", "kept.json"], "results so far are in kept.json"),
        (["serve", "--output", "new.json"], "there were no results yet to keep in new.json"),
        (["serve", "--soak", "1"], "nothing was kept without --output"),
        (["kernels"], "nothing was kept without --output"),
        (["radix"], "nothing was kept"),
    ],
)
def test_ctrl_c_in_a_benchmark_says_what_was_kept(invoke, monkeypatch, tmp_path, options, told):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.json").touch()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    module = "soak" if "--soak" in options else options[0]
    monkeypatch.setattr(f"yaie.bench.{module}.run", stopped)
    done = invoke("bench", *options)
    assert done.exit_code == 130
    assert done.stderr == f"stopped; {told}\n"


def test_a_server_has_all_options_of_the_engine(invoke, monkeypatch):
    from yaie.engine.config import OPTIONS, EngineConfig
    from yaie.server import run

    seen = []
    monkeypatch.setattr(run, "serve", lambda model, settings, config, **_: seen.append(config))
    options = {name.replace("_", "-") for name in OPTIONS - {"overlap", "patience"}}
    there = {option for p in get_command(cli.app).commands["serve"].params for option in p.opts}
    assert {f"--{name}" for name in options} <= there
    ablation = ("--block-size", "4", "--no-enable-prefix-caching", "--policy", "lpm")
    ablation += ("--kv-cache-dtype", "fp8")
    assert invoke("serve").exit_code == invoke("serve", *ablation).exit_code == 0
    changed = EngineConfig(
        block_size=4, enable_prefix_caching=False, policy="lpm", kv_cache_dtype="fp8"
    )
    assert seen == [EngineConfig(), changed]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--restart",), "restart: torchrun"),
        (("--tensor-parallel-size", "1"), "must be 2, .* got 1"),
    ],
)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_what_torchrun_does_not_go_with(invoke, monkeypatch, rank, options, said):
    from yaie.server import run

    for name, value in (("WORLD_SIZE", "2"), ("RANK", rank), ("LOCAL_RANK", rank)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(run, "serve", lambda *_, **__: pytest.fail("it serves"))
    done = invoke("serve", *options)
    assert isinstance(done.exception, ValueError)
    assert re.search(said, str(done.exception))


def test_a_server_has_the_size_of_torchrun(invoke, monkeypatch):
    """But a variable that is left over is no torchrun."""
    from yaie.server import run

    seen = []
    monkeypatch.setattr(run, "serve", lambda _, __, config, **o: seen.append(config))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert invoke("serve").exit_code == 0
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert invoke("serve").exit_code == 0
    assert [config.tensor_parallel_size for config in seen] == [1, 2]


def test_exercises_and_back_ends_are_passed_on(invoke, monkeypatch):
    from yaie import chat
    from yaie.server import run

    seen = []
    monkeypatch.setattr(chat, "load", lambda model, **options: seen.append(options) or object())
    monkeypatch.setattr(chat.Chat, "run", lambda self: None)
    monkeypatch.setattr(run, "serve", lambda _, __, config, **o: seen.append(vars(config) | o))
    for command in ("chat", "serve"):
        assert invoke(command, "--exercise", "15.4", "--exercise", "17.1").exit_code == 0
        assert seen.pop()["exercises"] == ["15.4", "17.1"]
        assert invoke(command, "--exercises", "--backend", "triton").exit_code == 0
        options = seen.pop()
        assert options["exercises"] is True and options["backend"] == "triton"
        assert invoke(command, "--kv-cache-dtype", "fp8").exit_code == 0
        assert seen.pop()["kv_cache_dtype"] == "fp8"
        pairs = "rotary=mine:rotate", "sample=cuda"
        assert invoke(command, "--backend", pairs[0], "--backend", pairs[1]).exit_code == 0
        assert seen.pop()["backend"] == {"rotary": "mine:rotate", "sample": "cuda"}
        assert invoke(command).exit_code == 0
        assert not seen.pop()["exercises"]


@pytest.mark.parametrize("words", [["=cuda"], ["rotary="], ["cuda", "triton"], ["x=a", "x=b"]])
def test_back_ends_that_cannot_be_read_are_refused(words):
    with pytest.raises(ValueError, match=f"backend must be one name, .* got {words[0]}"):
        commands.back_ends(words)


def test_the_command_shares_the_processors(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that it is put back
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    seen = []
    monkeypatch.setattr(cli, "app", lambda **_: seen.append(os.environ["GOMP_SPINCOUNT"]))
    cli.main()
    assert seen == ["5000"]
