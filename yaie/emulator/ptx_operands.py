"""The operands of inline PTX: registers, numbers, addresses.

A register, whatever its type, is a `uint64_t` that holds its bits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
PTX = "::emulator::ptx::"

# C++ types of the types of PTX.
_TYPES = {
    **{f"{kind}{bits}": f"uint{bits}_t" for kind in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{"f32": "float", "f64": "double", "f16": "__half", "bf16": "__nv_bfloat16"},
    **{"f16x2": "__half2", "bf16x2": "__nv_bfloat162", "pred": "bool"},
}
_SPECIAL = {
    "laneid": f"{PTX}lane()",
    "warpid": f"{PTX}thread() / 32",
    "nwarpid": "(blockDim.x * blockDim.y * blockDim.z + 31) / 32",
    "smid": "0",
    "nsmid": "emulator_num_cores()",
    "clock": "(uint32_t)clock64()",
    "clock64": "clock64()",
    "globaltimer": "clock64()",
    "lanemask_eq": f"(1u << {PTX}lane())",
    "lanemask_lt": f"(1u << {PTX}lane()) - 1",
    "lanemask_le": f"(2u << {PTX}lane()) - 1",
    "lanemask_gt": f"~((2u << {PTX}lane()) - 1)",
    "lanemask_ge": f"~((1u << {PTX}lane()) - 1)",
    "cluster_ctarank": "::emulator::cluster_rank()",
    "cluster_nctarank": "::emulator::cluster_size()",
    **{
        f"{name}.{axis}": value.format(axis)
        for name, value in (
            ("cluster_ctaid", "::emulator::block_in_cluster().{}"),
            ("cluster_nctaid", "emulator_cluster_dim().{}"),
            ("clusterid", "blockIdx.{0} / emulator_cluster_dim().{0}"),
            ("nclusterid", "gridDim.{0} / emulator_cluster_dim().{0}"),
        )
        for axis in "xyz"
    },
    **{
        f"{name}.{axis}": f"{built_in}.{axis}"
        for name, built_in in (
            *(("tid", "threadIdx"), ("ntid", "blockDim")),
            *(("ctaid", "blockIdx"), ("nctaid", "gridDim")),
        )
        for axis in "xyz"
    },
}


class Unknown(Exception):
    """What is not emulated, or cannot be read; the message is the end of a sentence."""


@dataclass
class Assembly:
    """One `asm` statement while it is translated."""

    registers: list[str] = field(default_factory=list)
    predicates: set[str] = field(default_factory=set)
    labels: list[str] = field(default_factory=list)
    operands: dict[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        label = f"label_{plain(name)}"
        if label not in self.labels:
            self.labels.append(label)
        return label

    def value(self, text: str) -> str:
        """An operand that is read, as an expression for its bits."""
        text = text.strip()
        if text.startswith("!"):
            return f"(uint64_t)!({self.value(text[1:])})"
        if text.startswith("%") and text[1:] in _SPECIAL:
            return f"(uint64_t)({_SPECIAL[text[1:]]})"
        if _NUMBER.match(text):
            return f"(uint64_t)({text.rstrip('U')}ll)"
        if found := _FLOAT.match(text):
            return f"0x{found[1] or found[2]}ull"
        return self.place(text)

    def place(self, text: str) -> str:
        """An operand that is written, as a variable."""
        text = text.strip()
        if text in self.operands:
            return self.operands[text]
        if text == "_" and text not in self.registers:
            self.registers.append(text)
        if text in self.registers:
            return f"reg_{plain(text)}"
        raise Unknown(f"operand `{text}` is not emulated")

    def places(self, text: str) -> list[str]:
        text = text.strip()
        return [self.place(part) for part in split(text.strip("{}"))]

    def values(self, text: str) -> list[str]:
        return [self.value(part) for part in split(text.strip().strip("{}"))]

    def typed(self, text: str, kind: str) -> str:
        return f"{PTX}as<{type_of(kind)}>({self.value(text)})"

    def address(self, text: str, parts: list[str]) -> str:
        """`[register + 16]` as a pointer; an address in shared memory has 32 bits."""
        found = re.fullmatch(r"\s*\[\s*([^+]+?)\s*(?:(\+)\s*(-?\w+)\s*)?\]\s*", text)
        if not found:
            raise Unknown(f"address `{text.strip()}` cannot be read")
        base, sign, offset = found.groups()
        sum_ = f"{self.value(base)} + {offset}" if sign else self.value(base)
        shared = any(part.startswith("shared") for part in parts)
        return f"{PTX}{'shared' if shared else 'generic'}({sum_})"


Emit = Callable[[Assembly, list[str], list[str]], str]


def form(text: str) -> Emit:
    """An instruction that is one statement, with its operands in it.

    `{p0}` is the first operand as a variable, `{v0}` its value, `{u0}` its lower 32 bits, `{b0}`
    the mbarrier that it names.
    """

    def emit(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
        def filled(found: re.Match[str]) -> str:
            kind, operand = found[1], operands[int(found[2])]
            if kind == "b":
                return f"{PTX}barrier_at({assembly.address(operand, parts)})"
            if kind == "p":
                return assembly.place(operand)
            value = assembly.value(operand)
            return f"(uint32_t)({value})" if kind == "u" else value

        return re.sub(r"\{([pvub])(\d)\}", filled, text)

    return emit


def split(text: str) -> list[str]:
    """The parts between commas outside brackets and literals, without empty ones."""
    return [part for part in parts(text, ",") if part.strip()]


def parts(text: str, mark: str) -> list[str]:
    """What stands between the marks that are outside brackets and literals."""
    found, depth, position = [""], 0, 0
    while position < len(text):
        literal = LITERAL.match(text, position)
        piece = literal[0] if literal else text[position]
        depth += (piece in "([{") - (piece in ")]}")
        if piece == mark and depth == 0:
            found.append("")
        else:
            found[-1] += piece
        position += len(piece)
    return found


def plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def type_of(kind: str) -> str:
    """The C++ type of `f32` and the like."""
    if kind not in _TYPES:
        raise Unknown(f"type `.{kind}` is not emulated")
    return _TYPES[kind]
