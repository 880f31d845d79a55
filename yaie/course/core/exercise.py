"""The learner's file: where it is, what it defines, and how its errors are told."""

import ast
import importlib.util
import linecache
import sys
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace, TracebackType
from typing import Any

from yaie.course.core import cuda_text, render
from yaie.course.core.compare import short
from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import UNSOLVED, calls_of
from yaie.course.core.paths import ROOT, exercises_dir


class Broken(Exception):
    """The learner's file cannot be used at all; the message says why and what to do."""


def learner_path(exercise: Exercise) -> Path:
    return exercises_dir() / exercise.file


def load_reference(exercise: Exercise) -> Any:
    """The reference, as the exercise's check takes it."""
    if exercise.is_cuda:
        return ROOT / exercise.source
    if lacks_triton(exercise):
        from yaie.course.core.triton import Absent

        return Absent()
    return pick(exercise, importlib.import_module(exercise.module))


def lacks_triton(exercise: Exercise) -> bool:
    """Whether the exercise needs Triton, and there is none."""
    return exercise.is_triton and importlib.util.find_spec("triton") is None


def load(exercise: Exercise, path: Path) -> Any:
    """Load a file of the shape of `exercise`: a class, a function, functions or a `.cu` path.

    Raises Broken if it is missing, does not run, or no longer defines what it should, ValueError if
    the whole folder is missing.
    """
    text = read(exercise, path)
    if exercise.is_cuda:
        _require_kernels(exercise, path, text)
        return path
    try:
        module = _run(exercise, path, text)
    except Exception as error:
        raise Broken(f"The file does not run.\n{describe(error, exercise, path)}") from error
    _require_definitions(exercise, module)
    return pick(exercise, module)


def read(exercise: Exercise, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # a byte-order mark may come first
    except FileNotFoundError:
        if not exercises_dir().is_dir():
            raise ValueError(
                f"there is no folder {exercises_dir()} (YAIE_EXERCISES_DIR can name another): "
                f"`yaie reset {exercise.id}` makes it"
            ) from None
        restore = f"`yaie reset {exercise.id}` restores it."
        raise Broken(f"{exercise.shown} is missing. {restore}") from None
    except UnicodeDecodeError as error:
        raise Broken(f"{exercise.shown} is not UTF-8 text: {error}") from None


def is_untouched(exercise: Exercise, text: str) -> bool:
    """Whether every target still is what its stub is: a docstring, and the error that it raises.

    In Triton it is a docstring and `pass`. CUDA C++ has none of these: there it is the stub's
    text, comments aside.
    """
    if exercise.is_cuda:
        return cuda_text.same_code(text, render.stub(exercise))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return all(_is_stub(render.find(tree, name), exercise.is_triton) for name in exercise.names)


def _is_stub(function: ast.AST | None, is_triton: bool) -> bool:
    if function is None or ast.get_docstring(function) is None or len(function.body) != 2:
        return False
    line = function.body[1]
    if is_triton:
        return isinstance(line, ast.Pass)
    return isinstance(line, ast.Raise) and UNSOLVED in ast.dump(line)


def pick(exercise: Exercise, module: ModuleType) -> Any:
    """From a module, take what the exercise is about, as its check takes it."""
    if exercise.class_name:
        return getattr(module, exercise.class_name)
    found = {name: getattr(module, name) for name in exercise.names}
    return next(iter(found.values())) if len(found) == 1 else SimpleNamespace(**found)


def _run(exercise: Exercise, path: Path, text: str) -> ModuleType:
    """Execute the file's text as a module.

    The import system is avoided: it would reuse byte code if the file changed twice in one
    second. The line cache gets the text that runs, so that tracebacks and `inspect` show it.
    """
    name = f"exercise_{exercise.id.replace('.', '_')}"
    module = ModuleType(name)
    module.__file__ = str(path)
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    code = compile(text, str(path), "exec", dont_inherit=True)
    sys.modules[name] = module  # where dataclasses and pickle look for it
    exec(code, module.__dict__)
    return module


def _require_definitions(exercise: Exercise, module: ModuleType) -> None:
    """Refuse a file that would pass only because it uses the reference."""
    restore = f"`yaie reset {exercise.id}` restores the stub and keeps a copy of your file."
    owner = module
    if exercise.class_name:
        owner = vars(module).get(exercise.class_name)
        if not isinstance(owner, type) or owner.__module__ != module.__name__:
            raise Broken(f"{exercise.shown} no longer defines {exercise.class_name}. {restore}")
        if not issubclass(owner, load_reference(exercise)):
            base = f"reference.{exercise.class_name}"
            raise Broken(f"In {exercise.shown} {exercise.class_name} must derive from {base}.")
    for name in exercise.names:
        found = vars(owner).get(name.rpartition(".")[2])
        if exercise.is_triton:
            reference = getattr(importlib.import_module(exercise.module), name)
            if isinstance(found, FunctionType) and not isinstance(reference, FunctionType):
                raise Broken(f"In {exercise.shown} the line @triton.jit above {name} is gone.")
            found = getattr(found, "fn", found)  # what Triton was given
        imported = isinstance(found, FunctionType) and found.__module__ != module.__name__
        if found is None or imported:
            raise Broken(f"{exercise.shown} no longer defines {name}. {restore}")


def _require_kernels(exercise: Exercise, path: Path, text: str) -> None:
    """Refuse a file of C++ that does not compile or lacks a launcher, or a function."""
    from yaie.course.core import native

    language = native if exercise.is_native else cuda_text
    if said := language.compile_errors(text, path, exercise):
        raise Broken(f"The file does not compile.\n{said}")
    reference = (ROOT / exercise.source).read_text(encoding="utf-8")
    if changed := language.changed_launcher(text, reference):
        restore = f"`yaie reset {exercise.id}` restores the stub and keeps a copy of your file."
        what = "function" if exercise.is_native else "launcher"
        raise Broken(f"The {what} in {exercise.shown} is not what it was: {changed}. {restore}")


def describe(error: BaseException, exercise: Exercise, path: Path) -> str:
    """Tell an error by the learner's own line, where it was raised, and what the call was."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        place = f"{exercise.shown}, line {error.lineno}\n    {(error.text or '').strip()}"
        return f"{place}\n{type(error).__name__}: {error.msg}"
    calls = calls_of(error)
    own = _own(calls, path)
    lines = _line(own[-1], exercise.shown) if own else []
    if calls and not (own and own[-1] is calls[-1]):
        shown = "/".join(Path(calls[-1].tb_frame.f_code.co_filename).parts[-2:])
        lines.append("raised in" if own else "raised outside your file, in")
        lines += _line(calls[-1], shown)
    lines.append(f"{type(error).__name__}: {error}".rstrip(": "))
    if given := getattr(error, "given", None):
        lines.append(f"The check was at: {given}")
    elif own and (arguments := _arguments(own[0].tb_frame)):
        lines.append(f"The call had {arguments}")
    return "\n".join(lines)


def where(error: BaseException, exercise: Exercise, path: Path) -> list[str]:
    """The learner's own line nearest to the error, if it passed one."""
    own = _own(calls_of(error), path)
    return _line(own[-1], exercise.shown) if own else []


def _own(calls: list[TracebackType], path: Path) -> list[TracebackType]:
    return [call for call in calls if call.tb_frame.f_code.co_filename == str(path)]


def _line(call: TracebackType, shown: str) -> list[str]:
    code, line = call.tb_frame.f_code, call.tb_lineno
    text = linecache.getline(code.co_filename, line).strip()
    name = code.co_name
    return [f"{shown}, line {line}" + (f", in {name}" if name[0] != "<" else ""), f"    {text}"]


def _arguments(frame: Any) -> str:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = {n: frame.f_locals[n] for n in names if n != "self" and n in frame.f_locals}
    return ", ".join(f"{name}={short(value)}" for name, value in values.items())
