"""Inline PTX as C++: `asm volatile("add.u32 %0, %1, 1;" : "=r"(x) : "r"(y))`.

Each instruction becomes a statement on registers, most of them a call of include/emulator/ptx.h,
where their meaning is. They are those of sm_80 and earlier; NVIDIA's "PTX ISA" defines them.
"""

import re
from collections.abc import Iterator

from yaie.emulator.ptx_instructions import instruction
from yaie.emulator.ptx_operands import LITERAL, PTX, Assembly, Unknown, parts, plain, split

_OPERAND = re.compile(r'\s*"([^"]*)"\s*\((.*)\)\s*', re.S)
_CLUSTER_SYNC = re.compile(
    r"barrier\.cluster\.arrive(?:\.release)?(?:\.aligned)?\s*;\s*"
    r"barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?\s*;"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def translate(statement: str) -> str:
    """C++ for what stands in the brackets of an `asm` statement, on one line.

    Raises Unknown, with the end of a sentence that names what is not emulated.
    """
    sections = parts(statement, ":")  # template, outputs, inputs, clobbers
    literals = LITERAL.findall(sections[0])
    if LITERAL.sub("", sections[0]).strip():
        raise Unknown("whose text is not a string is not emulated")
    text = "".join(literals).encode().decode("unicode_escape")
    assembly, before, after = Assembly(), [], []
    outputs = _operands(sections[1]) if len(sections) > 1 else []
    inputs = _operands(sections[2]) if len(sections) > 2 else []
    for number, (kind, value) in enumerate([*outputs, *inputs]):
        if "wgmma.mma_async" in text and kind in (
            "+f",
            "r",
        ):  # read and written after the statement
            assembly.operands[f"%{number}"] = f"({value})"
            continue
        variable = assembly.operands[f"%{number}"] = f"ptx_{number}"
        read = number >= len(outputs) or kind.startswith("+")
        initial = f"{PTX}bits({value})" if read else f"{PTX}undefined"
        before.append(f"uint64_t {variable} = {initial};")
        if number < len(outputs):
            after.append(f"{PTX}put({value}, {variable});")
    text = _CLUSTER_SYNC.sub("barrier.cluster.sync;", text)
    body = list(_statements(assembly, _COMMENT.sub("", text)))
    body = body or ['__asm__ __volatile__("" ::: "memory");']  # a barrier for the compiler only
    registers = [f"uint64_t reg_{plain(name)} = {PTX}undefined;" for name in assembly.registers]
    labels = [f"__label__ {', '.join(assembly.labels)};"] if assembly.labels else []
    return " ".join(["{", *labels, *before, *registers, *body, *after, "}"])


def _operands(section: str) -> list[tuple[str, str]]:
    """(constraint, expression) of each operand."""
    found = [_OPERAND.fullmatch(part) for part in split(section)]
    if not all(found):
        raise Unknown(f"with operands `{' '.join(section.split())}` is not emulated")
    return [(one[1], " ".join(one[2].split())) for one in found]


def _statements(assembly: Assembly, text: str) -> Iterator[str]:
    # %% is a percent sign, %= a number of the statement's own: labels here are its own anyway.
    text = text.replace("%=", "_").replace("%%", "%")
    text = re.sub(r"(?:^|(?<=[;:{}]))\s*([{}])(?=\s*(?:[.@\w%{}]|$))", r" \1;", text)
    labels = re.compile(r"\s*([$\w]+):\s*")
    for statement in text.split(";"):
        statement = statement.strip()
        while found := labels.match(statement):
            yield f"{assembly.label(found[1])}:;"
            statement = statement[found.end() :]
        if statement in ("", "{", "}"):
            continue  # registers of inner blocks are the statement's own
        if statement.startswith(".reg"):
            _declare(assembly, statement)
            continue
        found = re.fullmatch(r"(?:@(!?)\s*([\w%]+)\s+)?([\w.:]+)\s*(.*)", statement, re.S)
        if not found:
            raise Unknown(f"`{statement}` cannot be read")
        negated, guard, operation, rest = found.groups()
        try:
            code = instruction(assembly, operation.split("."), split(rest))
        except (IndexError, KeyError, ValueError) as problem:  # a number of operands
            raise Unknown(f"`{statement}` cannot be read") from problem
        condition = f"if ({'!' * bool(negated)}{assembly.place(guard)}) " if guard else ""
        yield f"{condition}{{ {code}; }}"


def _declare(assembly: Assembly, statement: str) -> None:
    """`.reg .pred p, q;` or `.reg .b32 r<4>;`"""
    names = []
    for name in split(re.sub(r"\.reg\s+\.\w+\s*", "", statement)):
        name = name.strip()
        if several := re.fullmatch(r"(.*)<(\d+)>", name):
            names += [f"{several[1]}{i}" for i in range(int(several[2]))]
        else:
            names.append(name)
    assembly.registers += [name for name in names if name not in assembly.registers]
    if ".pred" in statement:
        assembly.predicates.update(names)
