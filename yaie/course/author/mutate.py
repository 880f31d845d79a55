"""Systematic mistakes: a solution changed by rule, one place at a time.

People invent the mistakes that they think of; rules do not think. Python and Triton are changed
along their syntax tree, CUDA C++ along its tokens, inside the exercise's region only. Each mutant
has to fail the exercise's cases, or stand in its `.mistakes` as `[equal]`, with the reason why it
behaves like the reference.
"""

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from yaie.course.core import render
from yaie.course.core.judge import entries
from yaie.course.core.manifest import Exercise
from yaie.course.core.mistakes import BadMistake, apply

Span = tuple[int, int, str]  # from and to in the text, and the replacement


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


class _Source:
    """A Python text, and where the nodes of its syntax tree stand in it."""

    def __init__(self, text: str) -> None:
        self.text, self.tree, self._bytes = text, ast.parse(text), text.encode()
        lengths = (len(line) for line in self._bytes.splitlines(keepends=True))
        self._starts = [0, *accumulate(lengths)]

    def at(self, line: int, column: int) -> int:
        return len(self._bytes[: self._starts[line - 1] + column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        begin = self.at(node.lineno, node.col_offset)
        return begin, self.at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def operand(self, node: ast.AST) -> str:
        is_compound = isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp))
        return f"({self.of(node)})" if is_compound else self.of(node)

    def between(self, left: ast.AST, right: ast.AST) -> tuple[int, int]:
        return self.span(left)[1], self.span(right)[0]

    def operator(self, left: ast.AST, right: ast.AST, sign: str) -> Span:
        """The text between two operands, with another sign in it."""
        begin, end = self.between(left, right)
        gap = self.text[begin:end]
        new = re.sub(r"[^\s()\\]+(?:[ ]+(?:in|not))?", lambda _: sign, gap, count=1)
        return begin, end, new


def _python_spans(exercise: Exercise, text: str) -> Iterator[tuple[str, Span]]:
    source = _Source(text)
    for name in exercise.names:
        function = render.find(source.tree, name)
        body = function.body[1:] if ast.get_docstring(function) else function.body
        yield from _ignored_parameters(function, body, source)
        for node in _nodes(body):
            yield from _expressions(node, source)
            yield from _statements(node, source)


def _expressions(node: ast.AST, source: _Source) -> Iterator[tuple[str, Span]]:
    match node:
        case ast.Compare(left=first, ops=signs, comparators=others):
            for left, sign, right in zip([first, *others], signs, others, strict=False):
                is_one = isinstance(sign, (ast.Is, ast.IsNot)) and _is_single(right)
                for other in [] if is_one else _COMPARE[type(sign)]:
                    yield "compare", source.operator(left, right, other)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            yield "operator", source.operator(left, right, _BINARY[type(sign)])
        case ast.BoolOp(op=sign, values=values):
            other = "or" if isinstance(sign, ast.And) else "and"
            for left, right in pairwise(values):
                yield "and or", source.operator(left, right, other)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", (*source.span(node), source.operand(operand))
        case ast.Constant(value=value):
            for other in _constants(value):
                yield "constant", (*source.span(node), other)
        case ast.Call():
            yield from _calls(node, source)
        case ast.Attribute(attr=name) if name in _NARROWER:
            _, end = source.span(node)
            yield "narrower", (end - len(name), end, _NARROWER[name])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            for value in ("True", "False"):
                if not (isinstance(node, ast.While) and value == "True"):
                    yield "condition", (*source.span(test), value)


def _statements(node: ast.AST, source: _Source) -> Iterator[tuple[str, Span]]:
    match node:
        case ast.For(body=body) | ast.While(body=body):
            _, end = source.span(body[-1])
            yield "once", (end, end, "\n" + " " * body[0].col_offset + "break")
        case ast.AugAssign(target=target, op=sign, value=value):
            for other in ("-=" if isinstance(sign, ast.Add) else "+=", "="):
                yield "assign", (*source.between(target, value), f" {other} ")
        case ast.Break() | ast.Continue():
            other = "continue" if isinstance(node, ast.Break) else "break"
            yield "jump", (*source.span(node), other)
        case ast.Return(value=ast.expr()):
            yield "returned", (*source.span(node), "return None")
    match node:
        case ast.Expr(value=ast.Constant()):  # a text
            pass
        case (
            ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Raise() | ast.Break()
            | ast.Continue() | ast.Delete() | ast.Assert()
        ):  # fmt: skip
            yield "dropped", (*source.span(node), "pass")


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
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # of zip: only a caller's mistake shows it
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            waiting += list(reversed(node.body)) if isinstance(node.body, list) else [node.body]
        elif not isinstance(node, ast.JoinedStr):
            waiting += list(ast.iter_child_nodes(node))


def _ignored_parameters(
    function: render.Function, body: list[ast.stmt], source: _Source
) -> Iterator[tuple[str, Span]]:
    """A parameter that has its default always."""
    named = function.args
    plain = [*named.posonlyargs, *named.args]
    with_default = [
        *zip(plain[len(plain) - len(named.defaults) :], named.defaults, strict=True),
        *zip(named.kwonlyargs, named.kw_defaults, strict=True),
    ]
    begin, indent = source.at(body[0].lineno, 0), " " * body[0].col_offset
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


def _calls(node: ast.Call, source: _Source) -> Iterator[tuple[str, Span]]:
    begin, end = source.span(node)
    inner = [source.of(argument) for argument in (*node.args, *node.keywords)]
    for number, keyword in enumerate(node.keywords, len(node.args)):
        if keyword.arg != "strict":  # of zip: only a caller's mistake shows it
            rest = ", ".join(inner[:number] + inner[number + 1 :])
            yield "keyword", (begin, end, f"{source.of(node.func)}({rest})")
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    for left, right in [] if name in _SYMMETRIC else pairwise(node.args):
        if all(isinstance(a, (ast.Name, ast.Attribute, ast.Subscript)) for a in (left, right)):
            pair = source.of(right) + ", " + source.of(left)
            yield "swapped", (source.span(left)[0], source.span(right)[1], pair)
    last = source.span(node.func)[1]
    if name in _SWAPPED:
        yield "function", (last - len(name), last, _SWAPPED[name])
    if isinstance(node.func, ast.Attribute):
        # A `to` with int64 is for a narrower dtype.
        if (name in _COPIES and not inner) or (name == "to" and not inner[0].endswith("int64")):
            yield "no copy", (begin, end, source.operand(node.func.value))
        if name in _IN_PLACE:
            yield "in place", (last, last, "_")
    elif name in _MAKERS and len(node.args) == 1 and not node.keywords:
        yield "no copy", (begin, end, f"({inner[0]})")


# ------------------------------------------------------------------------------------------ CUDA

_BETWEEN_BLANKS = {
    "compare": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "operator": {"+": "-", "-": "+", "%": "/", "<<": ">>", ">>": "<<"},
}
_ANYWHERE = {
    "and or": {"&&": "||", "||": "&&"},
    "assign": {"+=": "=", "*=": "=", "/=": "*="},
    "jump": {"break;": "continue;", "continue;": "break;"},
    "function": {"fmaxf": "fminf", "fminf": "fmaxf", "min(": "max(", "max(": "min(",
                 "expf": "exp2f"},
    "narrower": {"int64_t": "int", "size_t": "int", "long long": "int"},
    "index": {"threadIdx.x": "threadIdx.y", "blockIdx.x": "blockIdx.y"},
}  # fmt: skip
_TOKENS: list[tuple[str, str, str]] = [  # rule, pattern, replacement
    *((rule, rf"(?<=\s){re.escape(old)}(?=\s)", new)
      for rule, pairs in _BETWEEN_BLANKS.items() for old, new in pairs.items()),
    *((rule, rf"(?<!\w){re.escape(old)}(?!(?<=\w)\w)", new)
      for rule, pairs in _ANYWHERE.items() for old, new in pairs.items()),
    ("operator", r"(?<=[\w)\]] )\*(?=\s)", "/"),  # a product, not a pointer
    ("operator", r"(?<=[\w)\]] )/(?=\s)", "*"),
    ("sign", r"(?<=[(\s])!(?=[\w(])", ""),
    ("assign", r"\+=", "-="),
]  # fmt: skip
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
    for rule, pattern, instead in _TOKENS:
        for found in re.finditer(pattern, code):
            yield rule, place(found, instead)
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
