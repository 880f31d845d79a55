"""LLM: text in, text out; stop strings, streams, chats, interruptions."""

import dataclasses
import gc
import threading
import time
from collections import deque
from contextlib import nullcontext
from itertools import count
from unittest.mock import Mock, patch

import pytest
from engines import check_whole, follow, interfere, leave_alone, recompute
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie import LLM, SamplingParams
from yaie.engine import llm as llm_module
from yaie.engine.config import EngineConfig
from yaie.engine.request import Request
from yaie.engine.text import OutputText

GREEDY = SamplingParams(temperature=0.0, max_tokens=200)
FIRST = [5]  # the prompt of a scripted request: one token that names the script
MIXED = "Grüße! 世界 😀👨‍👩‍👧 done\n"


@pytest.fixture
def llm(untied_model):
    return LLM(untied_model, num_blocks=200, block_size=4, exercises=False)


def say(llm: LLM, text: str, first: int = FIRST[0], end: bool = True) -> list[int]:
    """Let the model answer the prompt `[first]` with `text`; returns its tokens."""
    tokens = llm.tokenizer.encode(text)
    model = llm.engine.runner.model
    scripts = {**getattr(model, "scripts", {}), first: tokens + [2] * 300 * end}
    follow(llm.engine, scripts)
    return tokens


# ------------------------------------------------------------------------------------ generate


def test_generate_takes_texts_and_tokens(llm):
    model, encode = llm.engine.runner.model, llm.tokenizer.encode
    params = SamplingParams(temperature=0.0, max_tokens=8)
    texts = ["Once upon a time", "What is the capital of France?"]
    wanted = [recompute(model, encode(text), params) for text in texts]
    assert [o.token_ids for o in llm.generate(texts, params)] == wanted
    assert [o.token_ids for o in llm.generate(texts[0], params)] == wanted[:1]
    assert [o.token_ids for o in llm.generate(encode(texts[0]), params)] == wanted[:1]
    assert [o.token_ids for o in llm.generate(tuple(encode(texts[0])), params)] == wanted[:1]
    mixed = llm.generate([texts[0], encode(texts[1])], params)
    assert [o.token_ids for o in mixed] == wanted
    assert [o.text for o in mixed] == [llm.tokenizer.decode(tokens) for tokens in wanted]
    assert len({o.request_id for o in mixed}) == 2
    check_whole(llm.engine)


def test_parameters_for_each_prompt(llm):
    outputs = llm.generate(["a", "b", "c"], [SamplingParams(max_tokens=n) for n in (1, 2, 3)])
    assert [len(o.token_ids) for o in outputs] <= [1, 2, 3]
    [output] = llm.generate("a", None)
    assert len(output.token_ids) <= SamplingParams().max_tokens


@pytest.mark.parametrize(("lab", "seconds"), [(True, 1.5), (True, 0.0), (False, 1.5)])
def test_a_slow_start_is_explained_where_a_person_waits(lab, seconds, monkeypatch, capsys):
    monkeypatch.setattr(llm_module, "start_engine", lambda *_: time.sleep(seconds) or Mock())
    if lab:
        monkeypatch.setenv("YAIE_LAB", "1")
    LLM("a model")
    said = capsys.readouterr()
    assert ("loading a model" in said.out) == (lab and seconds > 1) and not said.err


def test_a_start_that_fails_says_nothing_later(monkeypatch, capsys):
    monkeypatch.setattr(llm_module, "start_engine", Mock(side_effect=ValueError))
    monkeypatch.setenv("YAIE_LAB", "1")
    with pytest.raises(ValueError):
        LLM("a model")
    time.sleep(1.2)
    assert not capsys.readouterr().out


def test_options_are_those_of_the_config(monkeypatch):
    """By the same names, with the same defaults; another name is told."""
    seen = []
    monkeypatch.setattr(llm_module, "start_engine", lambda *given: seen.append(given) or Mock())
    LLM("a model", block_size=4, patience=3, exercises=["05.2"])
    assert seen == [("a model", EngineConfig(block_size=4, patience=3), ["05.2"])]
    with pytest.raises(TypeError, match="no option 'blocksize'; did you mean 'block_size'\\?"):
        LLM("a model", blocksize=4)


# ------------------------------------------------------------------------------------ endings


def test_how_an_answer_ends(llm):
    tokens = say(llm, "One two three four")
    stop, at = tokens[-1], tokens.index(tokens[-1])
    for options, kept, reason in (
        ({}, [*tokens, 2], "stop"),
        ({"ignore_eos": True, "max_tokens": 30}, [*tokens, *[2] * (30 - len(tokens))], "length"),
        ({"max_tokens": len(tokens) - 1}, tokens[:-1], "length"),
        # The end token comes where max_tokens would end it: it stopped of its own accord.
        ({"max_tokens": len(tokens) + 1}, [*tokens, 2], "stop"),
        ({"stop_token_ids": [stop]}, tokens[: at + 1], "stop"),
        ({"stop_token_ids": [stop], "ignore_eos": True}, tokens[: at + 1], "stop"),
    ):
        [output] = llm.generate(FIRST, dataclasses.replace(GREEDY, **options))
        assert (output.token_ids, output.finish_reason) == (kept, reason)
        shown = kept[:-1] if "stop_token_ids" in options else kept
        assert output.text == llm.tokenizer.decode(shown)  # special tokens have no text


@pytest.mark.parametrize(
    "text, stop, wanted",
    [
        ("Hello world, how are you", "world", "Hello "),
        ("Hello world, how are you", ["you", "how"], "Hello world, "),
        ("abcabcd", ["abcd", "zzz"], "abc"),
        ("no such thing", "xyz", "no such thing"),
        ("ends with the beginning of sto", "stop", "ends with the beginning of sto"),
        ("Stop at once", "Stop", ""),
        ("Grüße 😀 weiter", "😀", "Grüße "),
    ],
)
def test_stop_strings(llm, text, stop, wanted):
    # One token per byte: stop strings span tokens, and characters do.
    tokens = [llm.tokenizer.encode(char) for char in text]
    tokens = [token for char in tokens for token in char]
    follow(llm.engine, {FIRST[0]: tokens + [2] * 9})
    params = SamplingParams(temperature=0.0, max_tokens=200, stop=stop)
    stream = llm.stream(FIRST, params)
    pieces = list(stream)
    assert "".join(pieces) == stream.output.text == wanted
    assert stream.output.finish_reason == "stop"
    [output] = llm.generate(FIRST, params)
    assert (output.text, output.token_ids) == (wanted, stream.output.token_ids)
    if wanted != text:  # nothing is computed past a stop string
        assert len(output.token_ids) <= len(tokens)
    check_whole(llm.engine)


letters = st.text(alphabet="ab世😀\n", max_size=30)


@settings(max_examples=300, deadline=None)
@given(text=letters, stops=st.lists(st.text("ab世😀\n", min_size=1, max_size=4), max_size=3))
def test_text_grows_up_to_the_first_stop_string(tokenizer, text, stops):
    """Against an oracle that decodes everything anew after every token."""
    output, shown = OutputText(tokenizer, stops), ""
    tokens = tokenizer.encode(text)
    for n, token in enumerate(tokens, start=1):
        output.push(token)
        whole = tokenizer.decode(tokens[:n]).rstrip("\ufffd")
        found = [at for stop in stops if (at := whole.find(stop)) >= 0]
        assert output.stopped == bool(found)
        assert output.text.startswith(shown), "text was taken back"
        assert whole.startswith(output.text)
        assert "\ufffd" not in output.text
        shown = output.text
        if found:
            assert output.text == whole[: min(found)]
            break
        # No more is held back than could yet become a stop string.
        held = whole[len(output.text) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)
    output.finish()
    if not output.stopped:
        assert output.text == text


@settings(max_examples=300, deadline=None)
@given(text=letters, stops=st.lists(st.text("ab世", min_size=1), max_size=3), data=st.data())
def test_a_stop_string_counts_that_ends_after_min_tokens(tokenizer, text, stops, data):
    """Even if it begins before; one that ends before is part of the text."""
    tokens, wanted = tokenizer.encode(text), text
    least, stops_at = data.draw(st.integers(1, len(tokens) + 1)), None
    ends = [len(tokenizer.decode(tokens[:n]).rstrip("\ufffd")) for n in range(len(tokens) + 1)]
    for n in range(least, len(tokens) + 1):
        places = [text.find(stop, max(0, ends[n - 1] - len(stop) + 1), ends[n]) for stop in stops]
        if found := [at for at in places if at >= 0]:
            wanted, stops_at = text[: min(found)], n
            break
    output = OutputText(tokenizer, stops, (), least)
    for n, token in enumerate(tokens[:stops_at], start=1):
        output.push(token)
        assert output.stopped == (n == stops_at)
    output.finish()
    assert output.text == wanted


# ------------------------------------------------------------------------------------ streams


def test_pieces_are_whole_characters_and_make_up_the_text(llm):
    tokens = say(llm, MIXED)
    stream = llm.stream(FIRST, GREEDY)
    pieces = list(stream)
    assert "".join(pieces) == MIXED == stream.output.text
    assert len(pieces) > 10
    assert not any("\ufffd" in piece or piece == "" for piece in pieces)
    assert stream.output.token_ids == [*tokens, 2]
    assert list(stream) == []  # it stays at its end
    check_whole(llm.engine)


def test_a_text_cut_inside_a_character_says_so(llm):
    tokens = say(llm, "a😀")
    stream = llm.stream(FIRST, SamplingParams(temperature=0, max_tokens=len(tokens) - 1))
    assert list(stream) == ["a", "\ufffd"]
    assert stream.output.finish_reason == "length"


def test_a_stream_of_a_chat(llm):
    messages = [{"role": "user", "content": "Hi"}]
    params = SamplingParams(temperature=0.0, max_tokens=10)
    assert "".join(llm.stream(messages, params)) == llm.chat(messages, params)[0].text


def test_a_stream_left_early_frees_its_blocks(llm):
    say(llm, MIXED)
    stream = llm.stream(FIRST, GREEDY)
    start = next(stream) + next(stream)
    stream.close()
    stream.close()
    check_whole(llm.engine)
    assert stream.output.finish_reason == "abort"
    rest = "".join(stream)  # what was held back, if anything
    assert MIXED.startswith(start + rest)

    for piece in llm.stream(FIRST, GREEDY):
        assert piece
        break
    gc.collect()
    check_whole(llm.engine)


def test_a_stream_is_over_at_the_end_of_a_with(llm):
    say(llm, MIXED)
    with pytest.raises(Fault), llm.stream(FIRST, GREEDY) as stream:
        assert MIXED.startswith(next(stream))
        raise Fault
    check_whole(llm.engine)
    assert stream.output.finish_reason == "abort"
    with llm.stream(FIRST, GREEDY) as stream:
        assert "".join(stream) == MIXED
    assert stream.output.finish_reason == "stop"


def test_a_stream_never_begun_frees_its_request(llm):
    stream = llm.stream(FIRST, GREEDY)
    assert llm.engine.has_work
    assert stream.output.token_ids == []
    del stream
    gc.collect()
    check_whole(llm.engine)


@pytest.mark.parametrize("order", ["5" * 99, "6" * 99, "56" * 99, "6" + "5" * 99, "generate"])
def test_streams_that_are_read_in_any_order(llm, order):
    """In turns, one to its end before the other is read, or beside `generate`."""
    texts = {5: "Hi 😀", 6: "A much longer answer than the other one."}
    for first, text in texts.items():
        say(llm, text, first)
    streams = {first: llm.stream([first], GREEDY) for first in (5, 6)}
    heard = {5: next(streams[5]), 6: ""}
    if order == "generate":  # both end in its steps
        assert llm.generate([[6]], GREEDY)[0].text == texts[6]
        order = ""
    for first in map(int, order):
        heard[first] += next(streams[first], "")
    for first in (5, 6):
        assert heard[first] + "".join(streams[first]) == texts[first]
        assert streams[first].output.text == texts[first]
        assert streams[first].output.finish_reason == "stop"
    check_whole(llm.engine)


def test_a_stream_whose_logits_are_nan_ends_with_an_error(llm):
    say(llm, MIXED)
    count = iter(range(99))

    def after(step, logits):
        if next(count) == 5:
            logits[:] = float("nan")

    interfere(llm.engine, after=after)
    stream = llm.stream(FIRST, GREEDY)
    assert MIXED.startswith("".join(stream).rstrip("\ufffd"))
    assert stream.output.finish_reason == "error"
    assert "NaN" in stream.output.error
    check_whole(llm.engine)


# ------------------------------------------------------------------------------------ chat


def test_chat_answers_one_conversation_or_several(llm):
    params = SamplingParams(temperature=0.0, max_tokens=6)
    one = [{"role": "user", "content": "Hi"}]
    two = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    [output] = llm.chat(one, params)
    assert output.prompt_token_ids == llm.tokenizer.apply_chat_template(one)
    both = llm.chat([one, two], params)
    assert both[0].token_ids == output.token_ids
    assert both[1].prompt_token_ids == llm.tokenizer.apply_chat_template(two)


# ------------------------------------------------------------------------------------ interruptions


class Fault(Exception):
    pass


@pytest.mark.parametrize("error", [Fault, KeyboardInterrupt])
@pytest.mark.parametrize("at", [0, 1, 2, 7])
def test_an_interrupt_leaves_the_engine_usable(llm, error, at):
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    prompts = [[7] * 9, [8] * 3, [9] * 30]
    wanted = [o.token_ids for o in llm.generate(prompts, params)]
    llm.engine.reset_prefix_cache()
    count = iter(range(99))

    def before(step):
        if next(count) == at:
            raise error

    def stream_all():
        streams.append(llm.stream([7] * 9, params))
        list(streams[0])

    streams = []  # kept, so that nothing but the stream itself ends its request
    for use in (lambda: llm.generate(prompts, params), stream_all):
        count = iter(range(99))
        interfere(llm.engine, before=before)
        with pytest.raises(error):
            use()
        check_whole(llm.engine)
        leave_alone(llm.engine)
    assert streams[0].output.finish_reason == "abort"
    assert [o.token_ids for o in llm.generate(prompts, params)] == wanted


def interrupted(method: str) -> type[deque]:
    """An interrupt comes before something is added to it, or when something was taken out."""

    def interrupt(self, *_):
        if method == "popleft":
            deque.popleft(self)
        raise KeyboardInterrupt

    return type("Interrupted", (deque,), {method: interrupt})


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("where", ["push", "expect", "append", "popleft"])
def test_an_error_in_the_middle_of_a_step_loses_no_token_silently(untied_model, overlap, where):
    llm = LLM(untied_model, num_blocks=200, block_size=4, exercises=False, overlap=overlap)
    say(llm, "The first is interrupted.", first=5)
    say(llm, "The second has come as far.", first=6)
    first, second = llm.stream([5], GREEDY), llm.stream([6], GREEDY)
    next(first)
    engine = llm.engine
    owner = {"push": OutputText, "expect": Request}.get(where)
    broken = owner and patch.object(owner, where, side_effect=(Fault, KeyboardInterrupt)[overlap])
    if owner is None:
        engine._in_flight = interrupted(where)(engine._in_flight)
    with broken or nullcontext(), pytest.raises((Fault, KeyboardInterrupt)):
        next(first)
    engine._in_flight = deque(engine._in_flight)
    assert "The second has come as far.".startswith("".join(second))
    assert second.output.finish_reason == "error" and "a step failed" in second.output.error
    check_whole(engine)
    assert "".join(llm.stream([6], GREEDY)) == "The second has come as far."


def test_the_work_of_generate_does_not_grow_with_the_number_of_prompts(llm, monkeypatch):
    """A step looks at few requests, however many have ended."""
    looks, engine, step = count(), llm.engine, llm.engine.step
    reads = property(lambda self: (next(looks), vars(self).get("reason"))[1])
    reads = reads.setter(lambda self, reason: vars(self).update(reason=reason))
    monkeypatch.setattr(Request, "finish_reason", reads, raising=False)
    steps = count()
    monkeypatch.setattr(engine, "step", lambda: (next(steps), step())[1])
    lengths = [1] * 199 + [100]
    llm.generate(
        [[5 + i] for i in range(200)],
        [dataclasses.replace(GREEDY, max_tokens=n, ignore_eos=True) for n in lengths],
    )
    assert next(looks) < 10 * (200 + next(steps))


def test_an_interrupt_of_generate_leaves_open_streams_alone(llm):
    say(llm, "A stream that goes on.", first=5)
    say(llm, "Never said", first=6)
    stream = llm.stream([5], GREEDY)
    start = next(stream)

    def before(step):
        raise KeyboardInterrupt

    interfere(llm.engine, before=before)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([6], GREEDY)
    leave_alone(llm.engine)
    assert len(llm.engine.requests) == 1
    assert start + "".join(stream) == "A stream that goes on."
    check_whole(llm.engine)


def test_another_thread_is_refused_while_a_step_is_under_way(llm):
    say(llm, MIXED)
    uses = [lambda: llm.generate([7], GREEDY), lambda: llm.stream([7], GREEDY)]
    uses += [llm.engine.step, llm.engine.reset_prefix_cache]
    refused = []

    def use(function):
        with pytest.raises(RuntimeError, match="one thread at a time may use an engine"):
            function()
        refused.append(function)

    def before(step):
        for function in uses:
            thread = threading.Thread(target=use, args=[function])
            thread.start()
            thread.join()

    interfere(llm.engine, before=before)
    [output] = llm.generate(FIRST, GREEDY)
    assert output.text == MIXED
    assert refused == uses * len(output.token_ids)
    check_whole(llm.engine)


def test_a_closed_llm_says_so(llm):
    stream = llm.stream("a", GREEDY)
    for _ in range(2):
        llm.close()
    for use in (
        llm.generate,
        llm.stream,
        lambda text: llm.chat([{"role": "user", "content": text}]),
    ):
        with pytest.raises(RuntimeError, match="this LLM is closed"):
            use("a")
    stream.close()
    check_whole(llm.engine)


def test_the_text_is_read_after_its_prompt(llm, monkeypatch):
    """Some tokenizers drop the first space of what they decode; the prompt's end keeps it."""
    import yaie.engine.text as module

    seen = []

    class Decoder(module.StreamDecoder):
        def __init__(self, tokenizer, **options):
            seen.append(list(options["context"]))
            super().__init__(tokenizer, **options)

    monkeypatch.setattr(module, "StreamDecoder", Decoder)
    llm.generate([[5, 6], list(range(5, 25))], SamplingParams(max_tokens=1))
    assert seen == [[5, 6], list(range(19, 25))]
