"""The finale: the model computes with what learners wrote, one exercise at a time."""

import shutil

import pytest
import torch
from tiny import make_tiny_model

from yaie import SamplingParams
from yaie.course.core.exercise import lacks_triton, load_reference
from yaie.course.core.judge import Versions, mistakes
from yaie.course.core.manifest import exercises, find
from yaie.course.core.paths import ROOT
from yaie.course.core.triton import HAS_TRITON, can_watch
from yaie.engine.llm import LLM
from yaie.ops.interpreter import interpreted
from yaie.ops.registry import register, resolve

pytestmark = pytest.mark.usefixtures("warm_python")  # an exercise is judged in another process
OF_OPERATORS = [e.id for e in exercises() if e.operator]
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 1], [40]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose answer depends on its prompt: with tied weights it repeats its last token."""
    return make_tiny_model(tmp_path_factory.mktemp("untied"), tie_word_embeddings=False)


@pytest.fixture(scope="module", autouse=True)
def solved(tmp_path_factory):
    """A folder with every exercise solved, in which verdicts are kept."""
    root = tmp_path_factory.mktemp("solved")
    shutil.copytree(ROOT / "solutions", root / "exercises")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YAIE_EXERCISES_DIR", str(root / "exercises"))
        patch.setenv("YAIE_STATE", str(root / "state"))
        yield


@pytest.fixture(scope="module")
def wanted(folder, solved):
    """What the reference answers."""
    return answers(folder, exercises=False)


def answers(folder, **options):
    llm = LLM(folder, num_blocks=64, block_size=4, **options)
    return [output.token_ids for output in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("exercise_id", OF_OPERATORS)
def test_the_model_answers_the_same(folder, wanted, exercise_id, capsys):
    exercise = next(e for e in exercises() if e.id == exercise_id)
    if exercise.is_triton and (lacks_triton(exercise) or not interpreted()):
        pytest.skip("needs Triton's interpreter")
    assert answers(folder, exercises=[exercise_id]) == wanted
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{exercise_id} {exercise.what}: yours, it computes {exercise.operator}.",
        "Everything else: the course's own code.",
    ]


@pytest.mark.skipif(not interpreted(), reason="needs Triton's interpreter")
def test_all_of_them_together(folder, wanted, capsys):
    assert answers(folder, exercises=True) == wanted
    said = capsys.readouterr().out
    for operator in {e.operator for e in exercises() if e.operator}:
        assert f"yours, it computes {operator}." in said


def test_all_parts_of_the_engine_together(folder, wanted, capsys):
    """The sampler, too, in whose place a kernel chooses the tokens above."""
    parts = [exercise for exercise in exercises() if exercise.part]
    assert answers(folder, exercises=[exercise.id for exercise in parts]) == wanted
    mine = [f"{exercise.id} {exercise.what}: yours, it passes its check." for exercise in parts]
    assert capsys.readouterr().out.splitlines()[:-1] == sorted(mine)


def test_what_is_computed_shows_in_the_answers(folder, wanted):
    """Else the tests above would prove nothing."""
    register("reshape_and_cache", "lost", lambda *arguments: None)
    register("rotary", "noise", lambda x, *tables: torch.rand_like(x))
    register("silu_and_mul", "zeros", lambda x: torch.zeros_like(x[:, : x.shape[1] // 2]))
    register("sample", "first", lambda logits, *_: torch.zeros(len(logits), dtype=torch.int64))
    for operator, name in (
        ("sample", "first"),
        ("reshape_and_cache", "lost"),
        ("rotary", "noise"),
        ("silu_and_mul", "zeros"),
    ):
        assert answers(folder, exercises=False, backend={operator: name}) != wanted


WRONG = {  # a mistake of each exercise whose operator is made of more than the learner's code
    "13.1": "scale_forgotten_in_the_weights",
    "13.2": "one_key_short",
    "13.3": "no_offset",
    "13.4": "equal_weights",
    "13.5": "hides_the_own_key",
    "18.1": "no_scale",
    "18.2": "not_divided",
    "21.1": "counted_twice",
    "21.2": "same_for_every_token",
    "21.3": "drops_the_token_that_crosses",
}


def attended() -> tuple:
    """Three queries of a prompt of 70 tokens, and one of a sequence of 9, in blocks of 16."""
    generator = torch.Generator().manual_seed(0)
    q, *pools = (torch.randn(n, 2, 16, generator=generator) for n in (4, 96, 96))
    tables = torch.tensor([[4, 2, 0, 5, 1], [3, 0, 0, 0, 0]], dtype=torch.int32)
    lengths, starts = (torch.tensor(x, dtype=torch.int32) for x in ([70, 9], [0, 3, 4]))
    return q, *(pool.view(6, 16, 2, 16) for pool in pools), tables, lengths, starts, None


def drawn() -> tuple:
    """A row of logits 256 times, with as many numbers from 0 to 1; top-p keeps two tokens."""
    full = torch.full((3, 256), 1.0)
    logits = torch.tensor([2.0, 1.5, 1.0, -10.0, -10.0]).expand(256, -1).contiguous()
    uniform = torch.arange(0.5, 256, dtype=torch.float64) / 256
    return logits, full[0], full[1].int() * 0, full[2] * 0.8, full[0] * 0, uniform


@pytest.mark.parametrize(("exercise_id", "mistake"), WRONG.items())
def test_the_operator_is_computed_by_the_learners_kernel(exercise_id, mistake):
    exercise = find(exercise_id)
    if exercise.is_triton and (lacks_triton(exercise) or not interpreted()):
        pytest.skip("needs Triton's interpreter")
    given, most = (drawn(), 0.15) if exercise.operator == "sample" else (attended(), 1e-4)
    wrong = Versions(exercise).load(next(m for m in mistakes(exercise) if m.name == mistake))
    functions = (
        resolve(exercise.operator, "reference"),
        *(exercise.fit(version) for version in (load_reference(exercise), wrong)),
    )
    results = [function(*given) for function in functions]
    if exercise.operator == "sample":
        results = [(tokens.bincount(minlength=5) / 256, None) for tokens in results]
    wanted, right, wrong = (result for result, _ in results)
    assert (right - wanted).abs().max() < most < (wrong - wanted).abs().max()


def test_every_operator_of_an_exercise_is_the_models():
    from yaie.model.llama import STEP_OPERATORS

    assert {e.operator for e in exercises() if e.operator} == set(STEP_OPERATORS)
    assert all((ROOT / e.source).is_file() for e in exercises())


@pytest.mark.skipif(not (HAS_TRITON and can_watch()), reason="kernels are not interpreted here")
def test_what_a_learner_wrote_runs_in_the_attention_kernels(monkeypatch):
    from yaie.course.lessons.measure import plug_in
    from yaie.course.lessons.ops.triton.attention import attention
    from yaie.ops.triton import flash, online, paged

    names = {
        online: ("online_step", "finish"),
        flash: ("online_step", "finish", "seen_keys", "attend"),
        paged: ("online_step", "finish", "find_queries", "find_slots", "merge_kernel"),
    }
    kept = {(module, name): getattr(module, name) for module in names for name in names[module]}
    for (module, name), function in kept.items():
        monkeypatch.setattr(module, name, function)  # put back at the end
    operators = plug_in("13.1", "13.2", "13.3", "13.4", "13.5")
    assert operators == ["ragged_attention", "paged_attention"]
    for (module, name), function in kept.items():
        assert getattr(module, name) is not function
    assert flash.online_step is paged.online_step is online.online_step
    q = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))
    out, _ = attention(q, q, q, True, None)
    torch.testing.assert_close(out[0], q[0])
