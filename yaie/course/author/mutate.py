"""Systematic mistakes: a solution changed by rule, one place at a time.

People invent the mistakes that they think of; rules do not think. Python and Triton are changed
along their syntax tree, CUDA C++ along its tokens, inside the exercise's region only. Each mutant
has to fail the exercise's cases, or stand in its `.mistakes` as `[equal]`, with the reason why it
behaves like the reference.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaie.course.core import render
from yaie.course.core.judge import entries
from yaie.course.core.manifest import Exercise
from yaie.course.core.mistakes import BadMistake, apply

Span = tuple[int, int, str]  # from and to in the text, and what comes instead


@dataclass(frozen=True)
class Mutant:
    """A solution with one change.

    Attributes:
        rule: the name of the rule that made it.
        line: of the change in the solution, from 1.
    """

    rule: str
    line: int
    text: str

    def edit(self, solution: str) -> list[str]:
        """The change in the lines of a `.mistakes` file, with as much around it as makes it
        unique."""
        old, new = solution.splitlines(), self.text.splitlines()
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        changes = [op for op in matcher.get_opcodes() if op[0] != "equal"]
        first, last = changes[0][1], changes[-1][2]
        low, high = first, max(last, first)
        if low == high:
            low -= 1
        bare = [line.strip() for line in old]
        while _count(bare, bare[low:high]) > 1:
            low = _before(bare, low)
        middle = new[first : len(new) - (len(old) - last)]
        indent = min(_indent(line) for line in old[low:high] + middle if line.strip())
        lines = [("=", line) for line in old[low:first]]
        lines += [("-", line) for line in old[first:last]] + [("+", line) for line in middle]
        return [f"{sign} {line[indent:]}" for sign, line in lines if line.strip()]


def mutants(exercise: Exercise) -> list[Mutant]:
    """Every mutant of an exercise's solution, in the order of its lines; each text once."""
    text = render.solution(exercise)
    spans = _cuda_spans(exercise, text) if exercise.is_cuda else _python_spans(exercise, text)
    found: dict[str, Mutant] = {}
    for rule, (begin, end, instead) in spans:
        mutated = text[:begin] + instead + text[end:]
        if mutated != text and mutated not in found and _parses(exercise, mutated):
            found[mutated] = Mutant(rule, text.count("\n", 0, begin) + 1, mutated)
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.rule, mutant.text))


def equal_texts(exercise: Exercise) -> dict[str, str]:
    """What the `[equal]` entries make of the solution, each with its entry's name.

    Raises BadMistake if an entry does not apply.
    """
    text = render.solution(exercise)
    found = {}
    for entry in entries(exercise):
        if "equal" in entry.flags:
            try:
                found[normal(apply(text, entry.edit, exercise.is_cuda))] = entry.name
            except BadMistake as error:
                raise BadMistake(f"{exercise.id} {entry.name}: {error}") from None
    return found


def normal(text: str) -> str:
    """A text of which only what matters is left, to compare two by."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _parses(exercise: Exercise, text: str) -> bool:
    if exercise.is_cuda:
        return True
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _count(lines: list[str], block: list[str]) -> int:
    block = [line for line in block if line]
    lines = [line for line in lines if line]
    return sum(lines[i : i + len(block)] == block for i in range(len(lines)))


def _before(lines: list[str], number: int) -> int:
    number -= 1
    while number > 0 and not lines[number]:
        number -= 1
    return number


# ---------------------------------------------------------------------------------------- Python

_COMPARE = {
    ast.Lt: ["<="], ast.LtE: ["<"], ast.Gt: [">="], ast.GtE: [">"], ast.Eq: ["!="],
    ast.NotEq: ["=="], ast.Is: ["=="], ast.IsNot: ["!="], ast.In: ["not in"], ast.NotIn: ["in"],
}  # fmt: skip
_BINARY = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
_NARROWER = {"float64": "float32", "float32": "float16", "int64": "int32", "bfloat16": "float16"}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
            "maximum": "minimum", "argmax": "argmin", "ones": "zeros", "zeros": "ones"}  # fmt: skip
_COPIES = {"clone", "copy", "float", "double", "contiguous", "detach"}
_MAKERS = {"list", "tuple", "set", "sorted"}
_SYMMETRIC = {"min", "max", "minimum", "maximum", "promote_types"}
_IN_PLACE = {"add", "sub", "mul", "div", "masked_fill", "scatter", "exp", "sort", "index_fill"}


def _python_spans(exercise: Exercise, text: str) -> Iterator[tuple[str, Span]]:
    tree = ast.parse(text)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def at(line: int, column: int) -> int:
        return len(data[: starts[line - 1] + column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def source(node: ast.AST) -> str:
        begin, end = span(node)
        return text[begin:end]

    def operand(node: ast.AST) -> str:
        is_compound = isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp))
        return f"({source(node)})" if is_compound else source(node)

    def between(left: ast.AST, right: ast.AST) -> tuple[int, int]:
        return span(left)[1], span(right)[0]

    def operator(left: ast.AST, right: ast.AST, sign: str) -> Span:
        begin, end = between(left, right)
        gap = text[begin:end]
        new = re.sub(r"[^\s()\\]+(?:[ ]+(?:in|not))?", lambda _: sign, gap, count=1)
        return begin, end, new

    strict = {
        id(node.value) for node in ast.walk(tree) if getattr(node, "arg", "") == "strict"
    }  # the argument of zip, which only a caller's mistake shows
    for name in exercise.names:
        function = render.find(tree, name)
        body = function.body[1:] if ast.get_docstring(function) else function.body
        yield from _ignored_parameters(function, body, at)
        for node in _nodes(body):
            if isinstance(node, ast.Compare):
                operands = [node.left, *node.comparators]
                for left, sign, right in zip(operands, node.ops, operands[1:], strict=False):
                    is_one = isinstance(sign, (ast.Is, ast.IsNot)) and _is_single(right)
                    for other in [] if is_one else _COMPARE[type(sign)]:
                        yield "compare", operator(left, right, other)
            elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
                sign = _BINARY[type(node.op)]
                yield "operator", operator(node.left, node.right, sign)
            elif isinstance(node, ast.BoolOp):
                sign = "or" if isinstance(node.op, ast.And) else "and"
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield "and or", operator(left, right, sign)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
                yield "sign", (*span(node), operand(node.operand))
            elif isinstance(node, ast.Constant) and id(node) not in strict:
                for other in _constants(node.value):
                    yield "constant", (*span(node), other)
            elif isinstance(node, ast.Call):
                yield from _calls(node, span, source, operand)
            elif isinstance(node, ast.Attribute) and node.attr in _NARROWER:
                begin, end = span(node)
                yield "narrower", (end - len(node.attr), end, _NARROWER[node.attr])
            elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
                for value in ("True", "False"):
                    if not (isinstance(node, ast.While) and value == "True"):
                        yield "condition", (*span(node.test), value)
            if isinstance(node, (ast.For, ast.While)):
                end = span(node.body[-1])[1]
                yield "once", (end, end, "\n" + " " * node.body[0].col_offset + "break")
            if isinstance(node, ast.AugAssign):
                begin, end = between(node.target, node.value)
                sign = "-=" if isinstance(node.op, ast.Add) else "+="
                yield "assign", (begin, end, f" {sign} ")
                yield "assign", (begin, end, " = ")
            if isinstance(node, (ast.Break, ast.Continue)):
                other = "continue" if isinstance(node, ast.Break) else "break"
                yield "jump", (*span(node), other)
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Break,
                                 ast.Continue, ast.Delete, ast.Assert)):  # fmt: skip
                is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if not is_text:
                    yield "dropped", (*span(node), "pass")
            if isinstance(node, ast.Return) and node.value is not None:
                yield "returned", (*span(node), "return None")


def _is_single(node: ast.AST) -> bool:
    """Whether this is None, or a member of an enumeration: nothing else equals it."""
    is_member = isinstance(node, ast.Attribute) and node.attr.isupper()
    return isinstance(node, ast.Constant) or is_member


def _nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What computes: no annotations, and not the words of messages."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            waiting += list(reversed(node.body)) if isinstance(node.body, list) else [node.body]
        elif not isinstance(node, ast.JoinedStr):
            waiting += list(ast.iter_child_nodes(node))


def _ignored_parameters(
    function: render.Function, body: list[ast.stmt], at: object
) -> Iterator[tuple[str, Span]]:
    """A parameter that has its default always."""
    named = function.args
    plain = [*named.posonlyargs, *named.args]
    with_default = [
        *zip(plain[len(plain) - len(named.defaults) :], named.defaults, strict=True),
        *zip(named.kwonlyargs, named.kw_defaults, strict=True),
    ]
    first = body[0]
    begin = at(first.lineno, 0)
    indent = " " * first.col_offset
    for parameter, default in with_default:
        if default is not None and ast.unparse(default) != parameter.arg:
            yield "ignored", (begin, begin, f"{indent}{parameter.arg} = {ast.unparse(default)}\n")


def _constants(value: object) -> list[str]:
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, int):
        return [str(value + 1), str(value - 1)]
    if isinstance(value, float):
        return [str(value + 1.0), str(value * 2)] if value else ["1.0"]
    return []


def _calls(
    node: ast.Call, span: object, source: object, operand: object
) -> Iterator[tuple[str, Span]]:
    begin, end = span(node)
    callee = source(node.func)
    inner = [source(a) for a in node.args] + [source_of(k, source) for k in node.keywords]
    for number in range(len(node.args), len(inner)):
        if node.keywords[number - len(node.args)].arg == "strict":
            continue
        rest = ", ".join(inner[:number] + inner[number + 1 :])
        yield "keyword", (begin, end, f"{callee}({rest})")
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    pairs = [] if name in _SYMMETRIC else zip(node.args, node.args[1:], strict=False)
    for left, right in pairs:
        if all(isinstance(a, (ast.Name, ast.Attribute, ast.Subscript)) for a in (left, right)):
            pair = source(right) + ", " + source(left)
            yield "swapped", (span(left)[0], span(right)[1], pair)
    if isinstance(node.func, ast.Attribute):
        last = span(node.func)[1]
        if node.func.attr in _COPIES and not inner:
            yield "no copy", (begin, end, operand(node.func.value))
        if node.func.attr == "to" and not inner[0].endswith("int64"):  # that is a narrower one
            yield "no copy", (begin, end, operand(node.func.value))
        if node.func.attr in _IN_PLACE:
            yield "in place", (last, last, "_")
        if node.func.attr in _SWAPPED:
            yield "function", (last - len(node.func.attr), last, _SWAPPED[node.func.attr])
    elif isinstance(node.func, ast.Name):
        if node.func.id in _SWAPPED:
            yield "function", (*span(node.func), _SWAPPED[node.func.id])
        if node.func.id in _MAKERS and len(node.args) == 1 and not node.keywords:
            yield "no copy", (begin, end, f"({inner[0]})")


def source_of(keyword: ast.keyword, source: object) -> str:
    """`name=value`, or `**value`."""
    return (f"{keyword.arg}=" if keyword.arg else "**") + source(keyword.value)


# ------------------------------------------------------------------------------------------ CUDA

_TOKENS: list[tuple[str, str, list[str]]] = [
    ("compare", r"(?<=\s)<(?=\s)", ["<="]),
    ("compare", r"(?<=\s)<=(?=\s)", ["<"]),
    ("compare", r"(?<=\s)>(?=\s)", [">="]),
    ("compare", r"(?<=\s)>=(?=\s)", [">"]),
    ("compare", r"(?<=\s)==(?=\s)", ["!="]),
    ("compare", r"(?<=\s)!=(?=\s)", ["=="]),
    ("operator", r"(?<=\s)\+(?=\s)", ["-"]),
    ("operator", r"(?<=\s)-(?=\s)", ["+"]),
    ("operator", r"(?<=[\w)\]] )\*(?=\s)", ["/"]),
    ("operator", r"(?<=[\w)\]] )/(?=\s)", ["*"]),
    ("operator", r"(?<=\s)%(?=\s)", ["/"]),
    ("operator", r"(?<=\s)<<(?=\s)", [">>"]),
    ("operator", r"(?<=\s)>>(?=\s)", ["<<"]),
    ("and or", r"&&", ["||"]),
    ("and or", r"\|\|", ["&&"]),
    ("sign", r"(?<=[(\s])!(?=[\w(])", [""]),
    ("assign", r"\+=", ["-=", "="]),
    ("assign", r"\*=", ["="]),
    ("assign", r"(?<=\s)/=", ["*="]),
    ("jump", r"\bbreak;", ["continue;"]),
    ("jump", r"\bcontinue;", ["break;"]),
    ("function", r"\bfmaxf\b", ["fminf"]),
    ("function", r"\bfminf\b", ["fmaxf"]),
    ("function", r"\bmin\(", ["max("]),
    ("function", r"\bmax\(", ["min("]),
    ("function", r"\bexpf\b", ["exp2f"]),
    ("narrower", r"\bint64_t\b", ["int"]),
    ("narrower", r"\b(?:size_t|long long)\b", ["int"]),
    ("index", r"\bthreadIdx\.x\b", ["threadIdx.y"]),
    ("index", r"\bblockIdx\.x\b", ["blockIdx.y"]),
]
_NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.]|\s*(?:begin|end)\b|, stream>>>)")
_FLOAT = re.compile(r"(?<![\w.])(\d+\.\d*)f\b")
_STATEMENT = re.compile(r"(?!\s*(?:return|case|if)\b)[^;{}]*;\s*")  # an if: see "condition"
_DECLARES = re.compile(
    r"^\s*(?:const |constexpr |static |extern |__shared__ |volatile )*[A-Za-z_][\w:]*(?:<[^;=]*>)?"
    r"[\s*&]+[A-Za-z_]\w*\s*(?:=|\[|;|,|\(|\{)"
)


def _cuda_spans(exercise: Exercise, text: str) -> Iterator[tuple[str, Span]]:
    for begin, end in _regions(exercise, text):
        position = begin
        for line in text[begin:end].splitlines(keepends=True):
            code = line.partition("//")[0]
            yield from _line_spans(code.rstrip("\n"), position)
            position += len(line)


def _regions(exercise: Exercise, text: str) -> Iterator[tuple[int, int]]:
    mark = rf"^[ \t]*// exercise {re.escape(exercise.id)} "
    region = re.compile(rf"{mark}begin.*\n((?:.*\n)*?){mark}end", re.MULTILINE)
    for found in region.finditer(text):
        yield found.start(1), found.end(1)


def _line_spans(code: str, position: int) -> Iterator[tuple[str, Span]]:
    def place(found: re.Match, instead: str, group: int = 0) -> Span:
        return position + found.start(group), position + found.end(group), instead

    if not code.strip() or code.lstrip().startswith("#"):
        return
    for rule, pattern, others in _TOKENS:
        for found in re.finditer(pattern, code):
            for other in others:
                yield rule, place(found, other)
    for found in _NUMBER.finditer(code):
        for other in _constants(int(found[1])):
            if not other.startswith("-"):
                yield "constant", place(found, other)
    for found in _FLOAT.finditer(code):
        for other in _constants(float(found[1])):
            yield "constant", place(found, other + "f")
    if found := re.match(r"\s*(?:else )?if \(", code):
        begin, end = found.end(), _closing(code, found.end())
        for value in ("true", "false") if end else ():
            yield "condition", (position + begin, position + end, value)
    if _STATEMENT.fullmatch(code) and _balanced(code) and not _DECLARES.match(code):
        start = position + len(code) - len(code.lstrip())
        yield "dropped", (start, position + len(code.rstrip()), ";")
    if found := re.fullmatch(r"\s*(return;)\s*", code):
        yield "dropped", place(found, ";", 1)


def _closing(code: str, begin: int) -> int | None:
    """Where the parenthesis closes that is open at `begin`."""
    ends = (n for n in range(begin, len(code)) if code[n] == ")" and _balanced(code[begin:n]))
    return next(ends, None)


def _balanced(code: str) -> bool:
    return code.count("(") == code.count(")")
