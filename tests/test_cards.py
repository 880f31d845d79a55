"""Every card says what is at hand: nothing that the solution needs is to be guessed."""

import ast
import re

import pytest

from yaie.course.core import render, tell
from yaie.course.core.manifest import Exercise, exercises

WORD = re.compile(r"[A-Za-z_]\w*")
# What C++ and CUDA give everywhere. Members (`.x`) are named with what they belong to.
EVERYWHERE = {
    *WORD.findall(
        "auto bool break const constexpr continue else float for if int long reinterpret_cast "
        "return static_cast template typename unsigned void while int64_t size_t uint8_t uint32_t "
        "threadIdx blockIdx blockDim gridDim x y T __global__ false true"
    )
}
DECLARED = re.compile(
    r"\b(?:int|float|bool|size_t|int64_t|uint8_t|uint32_t|unsigned|auto|T|__half2|float4|Mass|Stats|"
    r"Best|Floats|Ints|long long|Tensor|cudaError_t)[ *]+(\w+)|,\s*(\w+)(?:\[\w+\])* = "
)


def bare(text: str) -> str:
    """C++ without comments, strings, directives and numbers."""
    return re.sub(r'//[^\n]*|"[^"\n]*"|#[a-z]+[^\n]*|\b\d[\w.]*', "", text)


def of_cpp(exercise: Exercise) -> set[str]:
    """Names in the regions of a solution that the rest of its file has, too.

    Where a draft is repaired, its lines show what they use.
    """
    number = re.escape(exercise.id)
    region = rf"// exercise {number} begin[^\n]*\n(.*?)[ \t]*// exercise {number} end"
    solution = render.solution(exercise)
    inside = bare("\n".join(re.findall(region, solution, re.DOTALL)))
    outside = bare(re.sub(region, "", solution, flags=re.DOTALL))
    declared = {name for pair in DECLARED.findall(inside) for name in pair}
    known = EVERYWHERE | declared | {*WORD.findall(exercise.draft)}
    return {*WORD.findall(inside)} & {*WORD.findall(outside)} - known


def of_python(exercise: Exercise) -> set[str]:
    """What the bodies of a solution import, and what they take from `self`."""
    tree = ast.parse(render.solution(exercise))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    imported = {alias.asname or alias.name for node in imports for alias in node.names} - {"Any"}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    used: set[str] = set()
    for node in (
        node for function in functions for line in function.body for node in ast.walk(line)
    ):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in imported:
            used.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used |= {node.attr} if node.value.id == "self" else set()
    return used


@pytest.mark.parametrize("exercise", [pytest.param(e, id=e.id) for e in exercises()])
def test_a_card_names_what_its_solution_needs(exercise: Exercise) -> None:
    assert exercise.have, "its page has no section 'You have'"
    for names, what in exercise.have:
        assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", names), names
        assert what.strip() and what[-1] not in ".;,", what
    needed = of_python(exercise) if exercise.file.suffix == ".py" else of_cpp(exercise)
    told = {*WORD.findall(" ".join([exercise.task, *(f"{a} {b}" for a, b in exercise.have)]))}
    assert not needed - told, f"its solution needs {sorted(needed - told)}"
    assert "| You have |" in tell.card(exercise)
