"""The text of an exercise's stub and of its solution, cut out of the reference's source.

Both have the same shape, so that they can be compared line by line: a header, the imports that
the solution needs, and the target alone, as a function or as a subclass of the reference class.
What comes out is formatted as ruff would format it, if the reference is.
"""

import ast
import builtins
import re
import symtable
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path

from yaie.course.core.manifest import Exercise
from yaie.course.core.paths import ROOT

WIDTH = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


def stub(exercise: Exercise) -> str:
    """What the learner starts from."""
    return _render(exercise, solved=False)


def solution(exercise: Exercise) -> str:
    """The same file with the reference's lines in it."""
    return _render(exercise, solved=True)


def shown_solution(exercise: Exercise) -> str:
    """The solution as a learner is shown it: without the lines that tell an author what to do."""
    text = solution(exercise)
    mark = "// " if exercise.is_cuda else ""
    blank = mark.rstrip() + "\n"
    for_authors = "".join(f"{mark}{line}\n" for line in _for_authors(exercise))
    return text.replace(blank + for_authors, "", 1)


def _render(exercise: Exercise, solved: bool) -> str:
    path = ROOT / exercise.source
    return _cached(exercise, path, path.stat().st_mtime_ns, solved)


@lru_cache(maxsize=256)
def _cached(exercise: Exercise, path: Path, _mtime: int, solved: bool) -> str:
    source = path.read_text(encoding="utf-8")
    if exercise.is_cuda:
        return _cuda(exercise, source, solved)
    return _python(exercise, source, solved)


def _python(exercise: Exercise, source: str, solved: bool) -> str:
    tree = ast.parse(source)
    functions = [_target(exercise, tree, name) for name in exercise.names]
    used = set().union(*(_names_used(source, name) for name in exercise.names))
    for function in functions:
        used |= _names_in_signature(function)
    if not solved:  # such as `Status.RUNNING`, which the reference may do without
        used |= set(re.findall(r"`([A-Z]\w*)\.", " ".join(chain(*exercise.have))))
    used -= {exercise.class_name or name for name in exercise.names}
    imports = _imports(exercise, tree, used)
    lines = source.splitlines()
    bodies = [_cut(exercise, function, lines, solved) for function in functions]
    if exercise.class_name:
        head = f"class {exercise.class_name}(reference.{exercise.class_name}):\n"
        code = head + "\n\n".join(bodies)
    else:
        code = "\n\n\n".join(bodies)
    doc = "\n".join(_header(exercise, solved))
    return f'"""{doc}\n"""\n\n{imports}\n\n\n{code}\n'


def _header(exercise: Exercise, solved: bool) -> Iterator[str]:
    solving = "Solution of exercise" if solved else "Exercise"
    yield f"{solving} {exercise.id}: {exercise.title}."
    yield ""
    yield from textwrap.wrap(exercise.task, WIDTH - 2)
    yield ""
    if solved:
        yield from _for_authors(exercise)
        return
    if exercise.have:
        yield "You have"
        for names, what in exercise.have:
            yield from textwrap.wrap(f"- {names}: {what}", WIDTH - 2, subsequent_indent="  ")
        yield ""
    commands = ", ".join(f"yaie {verb} {exercise.id}" for verb in ("check", "hint", "reset"))
    yield f"In a terminal: {commands}."
    if exercise.class_name:
        yield f"What this file does not define is inherited from {exercise.source}."


def _for_authors(exercise: Exercise) -> Iterator[str]:
    yield from textwrap.wrap(f"Generated from {exercise.what} in {exercise.source}.", WIDTH - 2)
    yield "Edit it there, and run `python -m yaie.course build`."


def find(tree: ast.Module, name: str) -> Function | None:
    """The function or method that a module's code defines under a dotted name."""
    scope: ast.AST | None = tree
    for part in name.split("."):
        named = (n for n in getattr(scope, "body", []) if getattr(n, "name", None) == part)
        scope = next(named, None)
    return scope if isinstance(scope, Function) else None


def _target(exercise: Exercise, tree: ast.Module, name: str) -> Function:
    function = find(tree, name)
    if function is None:
        raise ValueError(f"{exercise.id}: {exercise.source} does not define {name} as a function")
    if ast.get_docstring(function) is None:
        raise ValueError(f"{exercise.id}: {name} needs a docstring, which the stub keeps")
    if any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(function)):
        raise ValueError(f"{exercise.id}: {name} uses super(), which a subclass changes")
    return function


def _cut(exercise: Exercise, function: Function, lines: list[str], solved: bool) -> str:
    begin = min([function.lineno, *(d.lineno for d in function.decorator_list)]) - 1
    if solved:
        return "\n".join(lines[begin : function.end_lineno])
    docstring = function.body[0]
    instead = f'raise NotImplementedError("Exercise {exercise.id}: {exercise.title}")'
    if exercise.is_triton:  # which cannot compile `raise`
        instead = f"pass  # Exercise {exercise.id}: {exercise.title}"
    body = " " * docstring.col_offset + instead
    return "\n".join([*lines[begin : docstring.end_lineno], body])


# ------------------------------------------------------------------------------------- imports


def _names_used(source: str, name: str) -> set[str]:
    """The global names that a function's code uses, nested functions included."""
    table = symtable.symtable(source, "reference", "exec")
    for part in name.split("."):
        table = next(t for t in table.get_children() if t.get_name() == part)
    used: set[str] = set()
    tables = [table]
    for table in tables:
        used.update(s.get_name() for s in table.get_symbols() if s.is_global())
        tables.extend(table.get_children())
    return used


def _names_in_signature(function: Function) -> set[str]:
    """The names in decorators, defaults and annotations, which symbol tables leave out."""
    parts: list[ast.AST | None] = [function.args, function.returns, *function.decorator_list]
    for node in ast.walk(function):
        if isinstance(node, (ast.AnnAssign, ast.arg)):
            parts.append(node.annotation)
        elif isinstance(node, Function):
            parts.append(node.returns)
    trees = [ast.walk(part) for part in parts if part is not None]
    return {n.id for walk in trees for n in walk if isinstance(n, ast.Name)}


def _imports(exercise: Exercise, tree: ast.Module, used: set[str]) -> str:
    """The imports that make `used` mean what it means in the reference's module."""
    package = exercise.module.rpartition(".")[0]
    plain: set[str] = set()  # whole `import a.b as c` lines
    members: dict[str, set[str]] = defaultdict(set)  # module → what is imported from it
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) in used:
                    plain.add(f"import {_as(alias)}")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*above, node.module or ""]).strip(".") if node.level else node.module
            for alias in node.names:
                if (alias.asname or alias.name) in used or module == "__future__":
                    members[module].add(_as(alias))
        else:
            members[exercise.module] |= used & set(_defined(node))
    if exercise.class_name:
        parent, _, name = exercise.module.rpartition(".")
        members[parent].add(f"{name} as reference")
    return _sorted_imports(plain, {m: names for m, names in members.items() if names})


def with_imports(exercise: Exercise, text: str) -> str:
    """A solution that was edited, with imports of what it uses by now.

    A name means what it means in the reference's module, or a module of the same name.

    Raises ValueError for a name that means nothing.
    """
    tree = ast.parse(text)
    used = set().union(*(_names_used(text, name) for name in exercise.names))
    bound = {name for node in _statements(tree) for name in _defined(node)}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    missing = used - bound - set(dir(builtins))
    if not missing:
        return text
    module = ast.parse((ROOT / exercise.source).read_text(encoding="utf-8"))
    lines = _imports(exercise, module, missing).splitlines()
    lines = [line for line in lines if "__future__" not in line and " as reference" not in line]
    found = {name for name in missing if re.search(rf"\b{name}\b", "\n".join(lines))}
    modules = {n for n in missing - found if n in sys.stdlib_module_names or n == "torch"}
    if unknown := missing - found - modules:
        raise ValueError(f"{exercise.id}: {', '.join(sorted(unknown))} means nothing here")
    lines += [f"import {name}" for name in sorted(modules)]
    first = next(n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr)))
    above = min([first.lineno, *(d.lineno for d in first.decorator_list)]) - 1
    old = text.splitlines()
    return "\n".join([*old[:above], *lines, *old[above:]]) + "\n"


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The module's own statements, those under `if TYPE_CHECKING` included."""
    for node in tree.body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from node.body
        else:
            yield node


def _as(alias: ast.alias) -> str:
    """The import of a name; `x as x` only exports it, which a learner's file need not."""
    return (
        f"{alias.name} as {alias.asname}" if alias.asname not in (None, alias.name) else alias.name
    )


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in (n for target in targets for n in ast.walk(target)):
            if isinstance(name, ast.Name):
                yield name.id


def _sorted_imports(plain: Iterable[str], members: dict[str, set[str]]) -> str:
    """In ruff's order: by section; in it `import` before `from`; members by kind of name."""
    sections: dict[int, list[str]] = defaultdict(list)
    for line in sorted(plain):
        sections[_section(line.split()[1])].append(line)
    for module in sorted(members):
        names = sorted(members[module], key=_member_order)
        line = f"from {module} import {', '.join(names)}"
        if len(line) > WIDTH:
            line = f"from {module} import (\n" + "".join(f"    {n},\n" for n in names) + ")"
        sections[_section(module)].append(line)
    return "\n\n".join("\n".join(sections[key]) for key in sorted(sections))


def _section(module: str) -> int:
    top = module.partition(".")[0]
    if top == "__future__":
        return 0
    if top in sys.stdlib_module_names:
        return 1
    return 3 if top == "yaie" else 2


def _member_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    bare = name.partition(" ")[0]
    if len(bare) > 1 and bare.isupper():
        return 0, name
    return (1, name) if bare[:1].isupper() else (2, name)


# ---------------------------------------------------------------------------------------- CUDA


def _cuda(exercise: Exercise, source: str, solved: bool) -> str:
    """The whole file, with its marked regions emptied unless solved.

    `// exercise 14.1 begin: the bound` may say what is to be written there. In place of another
    exercise's region the file includes its lines, which a learner may not have written yet.
    """
    seen: Counter[str] = Counter()

    def write(region: re.Match[str]) -> str:
        id = region["id"]
        seen[id] += 1
        if id != exercise.id:
            comment = f"{region['indent']}// exercise {id}{region['what']}\n"
            return f'{comment}#include "../{_part(exercise, id, seen[id])}"\n'
        hole = exercise.draft or f"{region['indent']}// your lines\n"
        return region["begin"] + (region["lines"] if solved else hole) + region["end"]

    source = _REGION.sub(write, source)
    if not seen[exercise.id]:
        wanted = f"// exercise {exercise.id} begin … end"
        raise ValueError(f"{exercise.id}: {exercise.source} has no region {wanted}")
    if not solved:
        source = _NOT_FOR_LEARNERS.sub("", source)
    header = [f"// {line}".rstrip() for line in _header(exercise, solved)]
    if not solved:
        header.insert(1, f"// {_where(exercise, source, len(header) + 2)}")
    return "\n".join(header) + f"\n\n{source}"


def _where(exercise: Exercise, source: str, above: int) -> str:
    """In which lines of a stub the learner's parts begin, if `above` lines come before `source`."""
    begin = f"// exercise {exercise.id} begin"
    lines = [str(n) for n, line in enumerate(source.splitlines(), above + 1) if begin in line]
    if len(lines) == 1:
        return f"Your part begins in line {lines[0]} of this file."
    return f"Your parts begin in lines {', '.join(lines[:-1])} and {lines[-1]} of this file."


_REGION = re.compile(
    r"^(?P<begin>(?P<indent>[ \t]*)// exercise (?P<id>\d\d\.\d) begin(?P<what>.*)\n)"
    r"(?P<lines>(?:.*\n)*?)(?P<end>[ \t]*// exercise (?P=id) end\n)",
    re.MULTILINE,
)


def parts(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """The regions of a CUDA exercise that others' stubs include: each one's file and lines."""
    source = (ROOT / exercise.source).read_text(encoding="utf-8") if exercise.is_cuda else ""
    regions = list(_REGION.finditer(source))
    if len({region["id"] for region in regions}) > 1:
        own = [region["lines"] for region in regions if region["id"] == exercise.id]
        for number, lines in enumerate(own, 1):
            yield _part(exercise, exercise.id, number), lines


def _part(exercise: Exercise, id: str, number: int) -> str:
    """Where a region lies, from the project's root: beside the solutions of the notebook."""
    return f"solutions/{exercise.notebook}/{id[3:]}_part_{number}.cuh"


# Of a kernel's header: a stub begins with what its lines need, and the notebook tells the rest.
_NOT_FOR_LEARNERS = re.compile(
    r"^// (?:Moves|Reaches|Oracle|Idea) .*\n(?://   .*\n)*", re.MULTILINE
)
