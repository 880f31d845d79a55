"""What is checked in the text of a `.cu` or `.cpp` file before it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from yaie.course.core.cuda import module_of
from yaie.emulator.text import without_comments

if TYPE_CHECKING:
    from yaie.course.core.manifest import Exercise
    from yaie.emulator.signature import Launcher


def same_code(text: str, other: str) -> bool:
    """Whether two files differ at most in comments and white space."""
    return without_comments(text).split() == without_comments(other).split()


def changed_launcher(text: str, reference: str, result: str = "cudaError_t") -> str | None:
    """Which of the reference's launchers, or of its functions with another result, a file lacks or
    has with other parameters."""
    from yaie.emulator.signature import find_launchers

    try:
        found = find_launchers(text, result)
    except TypeError as error:
        return str(error)
    for name, launcher in find_launchers(reference, result).items():
        if name not in found:
            return f"{name} is gone"
        if _types(found[name]) != _types(launcher):
            return f"{name} has other parameters"
    return None


def _types(launcher: Launcher) -> list[tuple[str, bool]]:
    return [(p.kind, p.pointer) for p in launcher.parameters]


def compile_errors(text: str, path: Path, exercise: Exercise) -> str | None:
    """What the compiler says against a learner's file; None if it accepts it."""
    from yaie.emulator import CompileError, compile
    from yaie.emulator.signature import find_launchers

    try:
        first = next(iter(find_launchers(text)), "")
    except TypeError:  # a type that Python cannot pass: `changed_launcher` tells
        first = ""
    try:
        if first:  # as the check will want it
            module_of(text, path, checked=True).prepare(first, exercise.launches)
        else:
            compile(text, path, checked=False)
    except (CompileError, SyntaxError) as error:
        return first_error(str(error).replace(str(path), exercise.shown), "template" in text)
    return None


# What g++ says of an unknown name in a template.
_UNKNOWN = re.compile(r"there are no arguments to ('\w+') that .* must be available( \S+)?")
_NO_HELP = re.compile(r": In |use '-fpermissive'")
_PYTHON_LOOP = re.compile(r"^ *\d+ \| *for\b[^;\n]*\bin\b", re.MULTILINE)
# What g++ and clang say where types have no operator or no conversion, and the types.
_NO_OPERATOR = re.compile(
    r"ambiguous|no match for|no viable|invalid operands|does not provide|non-scalar|"
    r"operands to '\?:'"
)
_HALF = re.compile(r"'(?:const )?(__half|__nv_bfloat16)\b")
_VECTOR = re.compile(
    r"'(?:const )?(u?(?:char|short|int|long|longlong)[234]|(?:float|double)[234])'"
)


def first_error(said: str, has_template: bool = False) -> str:
    """What a compiler says of the first error: many of those after it are its consequences.
    `has_template`: whether the source has templates, whose T may be a half."""
    said = _UNKNOWN.sub(r"\1 was not declared in this scope", said)
    lines = [line for line in said.splitlines() if not _NO_HELP.search(line)]
    errors = [number for number, line in enumerate(lines) if ": error: " in line]
    if (more := len(errors) - 1) > 0:
        lines[errors[1] :] = [f"and {more} more error{'s' * (more > 1)}, perhaps because of this."]
    if _PYTHON_LOOP.search("\n".join(lines)):
        lines.append("This is C++: for (int i = 0; i < n; ++i)")
    if told := _way_out(said, has_template):
        lines.append(told)
    return "\n".join(lines)


def _way_out(said: str, has_template: bool) -> str:
    """What to write where the first error is an operator that a type of CUDA does not have."""
    first = next((line for line in said.splitlines() if ": error: " in line), "")
    if not _NO_OPERATOR.search(first):
        return ""
    if half := _HALF.search(first):
        name, short = half[1], half[1].replace("__nv_", "").strip("_")
        read, write = f"__{short}2float(...)", f"__float2{short}(...)"
        if has_template:
            read, write = "to_float(...)", "from_float<T>(...)"
        return (
            f"{f'T is {name} for one of the launchers, and ' * has_template}C++ has no operator "
            f"between {name} and other numbers. Compute in float: write {read} around what you "
            f"read, and {write} around what you write."
        )
    if vector := _VECTOR.search(first):
        name, members = vector[1], list("xyzw"[: int(vector[1][-1])])
        return (
            f"{name} has no operators. Compute with each of its members "
            f"{', '.join(members[:-1])} and {members[-1]}, as in a.x + b.x, and make a {name} of "
            f"the results: make_{name}({', '.join(['…'] * len(members))})."
        )
    return ""
