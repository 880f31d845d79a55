"""Launches, `kernel<<<…>>>(…)`, and what is said of a kernel where it is declared."""

import re
from pathlib import Path

from yaie.emulator.text import CLOSE, OPEN, closing, find, functions, hide, without_comments

_BOUNDS = r"\s*__(?:launch_bounds|block_size|cluster_dims|maxnreg)__\s*\((?:[^()]|\([^()]*\))*\)"
KERNEL = re.compile(
    rf"__global__\b(?:\s*(?:static|inline)|{_BOUNDS})*\s*\bvoid\b(?:{_BOUNDS})*\s*(\w+)\s*\("
)
_CHECKED_BOUNDS = re.compile(r"__(launch_bounds|cluster_dims)__\s*\(")
_NAME = re.compile(  # of the kernel, past other attributes
    r"\s*(?:(?:void|inline|static|__global__)\s+|__\w+__\s*\((?:[^()]|\([^()]*\))*\)\s*)*\w+\s*\("
)
_BODY = re.compile(r"\)\s*\{")
_NULL = re.compile(r"(?<![^\s,])NULL(?=\s*(?:,|$))")


def refuse_calls(source: str, path: Path, first_line: int) -> None:
    """Refuse `kernel(arguments)`, which C++ would take and nvcc does not.

    Left alone are names that mean something else as well: a function or a variable.
    """
    hidden = hide(source)
    in_function = functions(hidden)
    kernels = {found.start(1): found[1] for found in KERNEL.finditer(hidden)}
    for kernel in dict.fromkeys(kernels.values()):
        calls = []
        for found in re.finditer(rf"\b{kernel}\s*(?:<[\w\s,:]*>\s*)?\(", hidden):
            if found.start() in kernels:
                continue
            before = hidden[: found.start()].rstrip()
            if not before.endswith((";", "{", "}", ")")) or not in_function(found.start()):
                break
            calls.append(found)
        else:
            if calls and not re.search(rf"\bauto\W+{kernel}\b", hidden):
                line = first_line + hidden.count("\n", 0, calls[0].start())
                raise SyntaxError(
                    f"{path}:{line}: {kernel} is a __global__ function, which needs a launch: "
                    f"{kernel}<<<thread_blocks, threads, 0, stream>>>(arguments)"
                )


def begin_kernels(source: str) -> str:
    """Let the body of a kernel begin with what it tells the runtime: which instance of a template
    it is, then its `__launch_bounds__` and `__cluster_dims__`."""
    return _begin_with_instance(_begin_with_bounds(source))


def _begin_with_instance(source: str) -> str:
    hidden, pieces, end = hide(source), [], 0
    for found in KERNEL.finditer(hidden):
        if body := _BODY.match(hidden, closing(hidden, found.end())):
            pieces += [source[end : body.end()], " EMULATOR_KERNEL;"]
            end = body.end()
    return "".join([*pieces, source[end:]])


def _begin_with_bounds(source: str) -> str:
    hidden, pieces, end = hide(source), [], 0
    for found in _CHECKED_BOUNDS.finditer(hidden):
        last = closing(hidden, found.end())
        name = _NAME.match(hidden, last + 1)
        body = name and _BODY.match(hidden, closing(hidden, name.end()))
        if body:
            given = " ".join(hidden[found.end() : last].split())
            pieces += [source[end : body.end()], f" ::emulator::{found[1]}({given});"]
            end = body.end()
    return "".join([*pieces, source[end:]])


def replace_launches(source: str, path: Path, first_line: int) -> str:
    hidden = hide(source)
    pieces, end = [], 0
    while (start := hidden.find("<<<", end)) >= 0:
        line = first_line + hidden.count("\n", 0, start)
        begin = _start_of_name(hidden, start)
        close = find(hidden, start + 3, ">>>")
        opening = re.compile(r"\s*\(").match(hidden, close + 3) if close >= 0 else None
        last = find(hidden, opening.end(), ")") if opening else -1
        if begin == start or last < 0:
            raise SyntaxError(
                f"{path}:{line}: a kernel launch is written "
                "kernel<<<grid, thread_block>>>(arguments)"
            )
        written = without_comments(source[begin:start])
        kernel = written.strip()
        lines = "\n" * (written.count("\n") - kernel.count("\n"))
        arguments = replace_launches(source[opening.end() : last], path, line)
        arguments = _NULL.sub("nullptr", arguments)  # an argument alone is no pointer constant
        comma = ", " if hidden[opening.end() : last].strip() else ""
        pieces += [
            source[end:begin],
            f"::emulator::configure(EMULATOR_NAME({' '.join(kernel.split())}), ",
            source[start + 3 : close],
            f").run([=](auto... emulator_arguments) {{ {kernel}(emulator_arguments...); }}{comma}",
            lines + arguments,
            ")",
        ]
        end = last + 1
    return "".join([*pieces, source[end:]])


def _start_of_name(hidden: str, end: int) -> int:
    """Where `name`, `space::name` or `name<T, 4>` begins that ends at `end`."""
    position = end
    while position and hidden[position - 1].isspace():
        position -= 1
    if position and hidden[position - 1] == ">":
        depth = bracket = 0
        while position:
            position -= 1
            character = hidden[position]
            bracket += (character in CLOSE) - (character in OPEN)
            if hidden[position - 1 : position + 1] == "<<":  # a shift; to the right needs brackets
                position -= 1
            elif not bracket:  # in brackets these may compare
                depth += {">": 1, "<": -1}.get(character, 0)
            if depth == 0:
                break
        while position and hidden[position - 1].isspace():
            position -= 1
    name = re.search(r"[\w:]+$", hidden[:position])
    return name.start() if name else end
