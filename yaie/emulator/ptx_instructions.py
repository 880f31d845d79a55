"""What each instruction of inline PTX is in C++: an operator, or a call of emulator/ptx.h."""

import re

from yaie.emulator import ptx_hopper
from yaie.emulator.ptx_operands import PTX, Assembly, Emit, Unknown, form, type_of

_COMPARE = {
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    **{"lo": "<", "ls": "<=", "hi": ">", "hs": ">="},
}
_BINARY = {
    **{"add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "rem": "a % b"},
    **{"and": "a & b", "or": "a | b", "xor": "a ^ b"},
}
_UNARY = {"neg": "-a", "not": "~a"}
_CALLS = {  # functions of ptx.h on values of the instruction's type
    *("min", "max", "abs", "shl", "shr", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos"),
    *("tanh", "popc", "clz", "brev", "bfind", "bfe", "bfi", "prmt", "lop3", "fma", "copysign"),
}
# What changes a result, and is not emulated where it is not read below.
_MODIFIERS = {"cc", "NaN", "xorsign", "relu", "rz", "rm", "rp", "pack", "satfinite"}
_NOTHING = re.compile(r"prefetch|discard|applypriority|griddepcontrol|pragma|nanosleep")


def instruction(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    """C++ for one instruction; `parts` are its name and what follows it between dots."""
    name, kind = parts[0], parts[-1]
    whole = ".".join(parts)
    if name in ("bra", "brx"):
        return f"goto {assembly.label(operands[0].strip())}"
    if _NOTHING.match(name):
        return "__nanosleep(0)" if name == "nanosleep" else ""
    for pattern, emit in _TABLE:
        if pattern.fullmatch(whole):
            return emit(assembly, parts, operands)
    if name not in (*_BINARY, *_UNARY, *_CALLS):
        raise Unknown(f"`{whole}` is not emulated")
    _refuse(parts, _MODIFIERS | ({"sat"} if kind[0] in "us" else set()))
    sources = [assembly.typed(operand, kind) for operand in operands[1:]]
    if name in ("bfe", "bfi", "prmt", "lop3", "shl", "shr"):  # positions and counts have 32 bits
        whole_words = {"bfi": 2, "prmt": 3, "lop3": 3}.get(name, 1)
        sources[whole_words:] = [assembly.typed(o, "u32") for o in operands[1 + whole_words :]]
    if name in _CALLS:
        result = f"{PTX}{name}({', '.join(sources)})"
    else:
        expression = {**_BINARY, **_UNARY}[name]
        letters = dict(zip("ab", sources, strict=False))
        filled = re.sub(r"\b[ab]\b", lambda found: letters[found[0]], expression)
        result = f"({type_of(kind)})({filled})"
    if "ftz" in parts:
        result = f"{PTX}flushed({result})"
    if "sat" in parts:
        result = f"{PTX}saturated({result})"
    return f"{assembly.place(operands[0])} = {PTX}bits({result})"


def _refuse(parts: list[str], modifiers: set[str]) -> None:
    if modifiers & set(parts):
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")


def _move(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    target, source = operands
    width = int(re.sub(r"\D", "", parts[-1]) or 8)  # of a predicate: any
    if target.strip().startswith("{"):
        places = assembly.places(target)
        each = width // len(places)
        return f"{PTX}unpack<{each}>({assembly.value(source)}, {', '.join(places)})"
    if source.strip().startswith("{"):
        values = assembly.values(source)
        return f"{assembly.place(target)} = {PTX}pack<{width // len(values)}>({', '.join(values)})"
    return f"{assembly.place(target)} = {assembly.value(source)}"


def _convert(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    to, from_ = parts[-2:]
    packed = {"rz"} if to.endswith("x2") else {"relu"}
    _refuse(parts, {"pack", "satfinite", *packed})
    if to in ("f16x2", "bf16x2"):
        high, low = (assembly.typed(operand, from_) for operand in operands[1:])
        half = {"f16x2": "__half", "bf16x2": "__nv_bfloat16"}[to]
        result = f"{PTX}pair<{half}>({high}, {low}, {str('relu' in parts).lower()})"
        return f"{assembly.place(operands[0])} = {result}"
    rounding = next(
        (part for part in parts if part in ("rz", "rm", "rp", "rzi", "rmi", "rpi")), "rn"
    )
    value = assembly.typed(operands[1], from_)
    if "sat" in parts and to[0] in "us" and from_[0] in "us":
        _refuse(parts, {"sat"} if to[1:] == from_[1:] == "64" else set())  # beyond a double
        value = f"(double){value}"  # of which the nearest integer that there is is taken
    result = f"{PTX}convert<{type_of(to)}>({value}, '{rounding[1]}')"
    if to[0] == "s":
        result = f"(int64_t){result}"  # a wider register takes the sign too
    if "sat" in parts and to.startswith(("f", "bf")):
        result = f"{PTX}saturated({result})"
    return f"{assembly.place(operands[0])} = {PTX}bits({result})"


def _wide(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    """mul and mad of integers: the low or the high half, or a result of twice the width."""
    name, half, kind = parts[0], parts[1], parts[-1]
    a, b = (assembly.typed(operand, kind) for operand in operands[1:3])
    bits = int(kind[1:])
    result = f"{PTX}product({a}, {b})"
    if half == "hi":
        result = f"({result} >> {bits})"
    to = f"{kind[0]}{bits * 2}" if half == "wide" else kind
    if name == "mad":
        result = f"{result} + {assembly.typed(operands[3], to)}"
    return f"{assembly.place(operands[0])} = {PTX}bits(({type_of(to)})({result}))"


def _compare(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    kind, comparison = parts[-1], parts[1]
    unordered = kind.startswith(("f", "bf")) and comparison[-1] == "u" and comparison != "u"
    sign = _COMPARE.get(comparison[:-1] if unordered else comparison)
    if not sign:
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    if comparison in ("lo", "ls", "hi", "hs"):
        kind = f"u{kind[1:]}"
    a, b = (assembly.typed(operand, kind) for operand in operands[1:3])
    result = f"!({a} {_OPPOSITE[sign]} {b})" if unordered else f"({a} {sign} {b})"
    if comparison == "ne" and kind.startswith(("f", "bf")):
        result = f"({a} < {b} || {a} > {b})"  # of a NaN it is false
    combine = next((p for p in parts[2:] if p in ("and", "or", "xor")), "")
    first, _, second = operands[0].partition("|")
    lines = [f"const bool holds = {result}"]
    for place, fact in ((first, "holds"), (second, "!holds")):
        if place:
            if combine:
                fact = f"({fact} {_BINARY[combine][2]} (bool)({assembly.value(operands[3])}))"
            lines.append(f"{assembly.place(place)} = {fact}")
    return "; ".join(lines)


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _to_space(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    value, shared = assembly.value(operands[1]), any(p.startswith("shared") for p in parts)
    if shared:
        to = f"::emulator::to_shared((void*)({value}))"
        value = to if parts[1] == "to" else f"(uint64_t){PTX}shared({value})"
    return f"{assembly.place(operands[0])} = {value}"


def _access(parts: list[str]) -> tuple[int, int, bool]:
    """(bytes of an element, elements, whether other threads may access it meanwhile)."""
    count = int(next((part[1:] for part in parts if part in ("v2", "v4")), 1))
    watched = {"volatile", "relaxed", "acquire", "release", "mmio"} & set(parts)
    _refuse(parts, {"v8", "b128", "async", "bulk"})
    return int(re.sub(r"\D", "", parts[-1])) // 8, count, bool(watched)


def _load(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    size, count, watched = _access(parts)
    address, places = assembly.address(operands[1], parts), assembly.places(operands[0])
    signed = str(parts[-1].startswith("s")).lower()
    arguments = f"{size}, {str(watched).lower()}, {signed}"
    acquire = "; __threadfence()" if "acquire" in parts else ""
    return f"{PTX}load<{arguments}>({address}, {', '.join(places[:count])}){acquire}"


def _store(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    size, count, watched = _access(parts)
    address, values = assembly.address(operands[0], parts), assembly.values(operands[1])
    release = "__threadfence(); " if "release" in parts else ""
    arguments = f"{size}, {str(watched).lower()}"
    return f"{release}{PTX}store<{arguments}>({address}, {', '.join(values[:count])})"


def _atomic(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    names = {"exch": "Exch", "cas": "CAS", "inc": "Inc", "dec": "Dec"}
    names |= {name: name.title() for name in ("add", "min", "max", "and", "or", "xor")}
    _refuse(parts, {"async", "bulk"})
    operation = next((part for part in parts[1:] if part in names), None)
    if not operation:
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    result, operands = (operands[0], operands[1:]) if parts[0] == "atom" else ("", operands)
    kind = parts[-1]
    values = ", ".join(assembly.typed(operand, kind) for operand in operands[1:])
    target = type_of(kind).replace("int64_t", "long long").replace("ulong", "unsigned long")
    pointer = f"({target}*)({assembly.address(operands[0], parts)})"
    call = f"atomic{names[operation]}({pointer}, {values})"
    fence = "__threadfence(); " if {"release", "acq_rel"} & set(parts) else ""
    acquire = "; __threadfence()" if {"acquire", "acq_rel"} & set(parts) else ""
    return fence + (f"{assembly.place(result)} = {PTX}bits({call})" if result else call) + acquire


def _shuffle(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    value, lane, clamp, mask = (assembly.value(operand) for operand in operands[1:])
    target, _, inside = operands[0].partition("|")
    flag = assembly.place(inside or "_")
    kind = f"::emulator::Collective::shuffle{_SHUFFLES[parts[2]]}"
    call = f"{PTX}shuffle({kind}, {value}, {lane}, {clamp}, {mask}, {flag})"
    return f"{assembly.place(target)} = {call}"


_SHUFFLES = {"idx": "", "up": "_up", "down": "_down", "bfly": "_xor"}


def _vote(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    predicate, mask = assembly.value(operands[1]), assembly.value(operands[2])
    call = f"__{parts[2]}_sync((unsigned)({mask}), (int)({predicate}))"
    if parts[2] not in ("all", "any", "ballot"):
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    return f"{assembly.place(operands[0])} = (uint64_t){call}"


def _reduce(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    value, mask = assembly.typed(operands[1], parts[-1]), assembly.value(operands[2])
    call = f"__reduce_{parts[2]}_sync((unsigned)({mask}), {value})"
    return f"{assembly.place(operands[0])} = {PTX}bits({call})"


def _barrier(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    if "warp" in parts:
        return f"__syncwarp((unsigned)({assembly.value(operands[0])}))"
    if "cluster" in parts:
        if "sync" in parts:  # arrive and wait in one statement, see ptx.py
            return "emulator_sync_team(0)"
        return f"emulator_cluster_{parts[2]}({int('relaxed' not in parts)})"
    if not {"sync", "arrive"} & set(parts):
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    if [operand.strip() for operand in operands] == ["0"]:
        return "__syncthreads()"
    barrier, threads = [*(f"(int)({assembly.value(o)})" for o in operands), "0"][:2]
    return f"emulator_named_barrier({barrier}, {threads}, {int('sync' in parts)})"


def _fence(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    if "proxy" in parts:
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    return "__threadfence_block()" if parts[-1] == "cta" else "__threadfence()"


def _copy(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    to, from_ = assembly.address(operands[0], ["shared"]), assembly.address(operands[1], [])
    size = assembly.value(operands[2])
    hinted = any("cache_hint" in part for part in parts)  # then the policy is the last operand
    others = operands[3 : len(operands) - hinted]
    read = assembly.value(others[0]) if others else size
    if others and others[0].strip() in assembly.predicates:  # whether to ignore the source
        read = f"({read} ? 0 : {size})"
    return f"__pipeline_memcpy_async({to}, {from_}, {size}, {size} - {read})"


def _load_matrix(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    places, address = assembly.places(operands[0]), assembly.address(operands[1], ["shared"])
    turned = str("trans" in parts).lower()
    return f"{PTX}ldmatrix<{turned}>({address}, {', '.join(places)})"


_PRODUCTS = {
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "tf32": f"{PTX}Tf32",
    "s8": "int8_t",
    "u8": "uint8_t",
    "e4m3": "__nv_fp8_e4m3",
    "e5m2": "__nv_fp8_e5m2",
}


def _multiply(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    _refuse(parts, {"satfinite"})
    shape = next((part for part in parts if re.fullmatch(r"m\d+n\d+k\d+", part)), "")
    to, a, b, c = parts[-4:]
    if not shape.startswith("m16n8k") or a not in _PRODUCTS or b not in _PRODUCTS or to != c:
        raise Unknown(f"`{'.'.join(parts)}` is not emulated")
    places = assembly.places(operands[0])
    arrays = [", ".join(assembly.values(operand)) for operand in operands[1:]]
    names = [
        f"const uint64_t {n}[] = {{{values}}};" for n, values in zip("abc", arrays, strict=True)
    ]
    types = f"{_PRODUCTS[a]}, {_PRODUCTS[b]}, {type_of(to)}"
    assign = " ".join(f"{place} = d[{i}];" for i, place in enumerate(places))
    call = f"uint64_t d[{len(places)}]; {PTX}mma<{types}>(d, a, b, c);"
    return f"{' '.join(names)} {call} {assign}"


_SPACED = r"(?:\.[\w:]+)*"
_TABLE: list[tuple[re.Pattern[str], Emit]] = [
    (re.compile(pattern), emit)
    for pattern, emit in (
        *ptx_hopper.INSTRUCTIONS,
        (r"mov\.\w+", _move),
        (rf"cvt{_SPACED}", _convert),
        (rf"cvta{_SPACED}", _to_space),
        (r"(mul|mad)\.(lo|hi|wide)\.[us]\d+", _wide),
        (
            rf"mad{_SPACED}\.f\d+",
            lambda assembly, parts, operands: instruction(assembly, ["fma", *parts[1:]], operands),
        ),
        (rf"setp{_SPACED}", _compare),
        (r"selp\.\w+", form("{p0} = {v3} ? {v1} : {v2}")),
        (rf"(ld|ldu){_SPACED}", _load),
        (rf"st{_SPACED}", _store),
        (rf"(atom|red){_SPACED}", _atomic),
        (r"shfl\.sync\.(idx|up|down|bfly)\.b32", _shuffle),
        (r"vote\.sync\.\w+\.\w+", _vote),
        (r"redux\.sync\.(add|min|max|and|or|xor)\.[usb]32", _reduce),
        (r"activemask\.b32", form("{p0} = __activemask()")),
        (rf"(bar|barrier){_SPACED}", _barrier),
        (rf"(membar|fence){_SPACED}", _fence),
        (r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L[\w:]+)*", _copy),
        (r"cp\.async\.commit_group", form("__pipeline_commit()")),
        (r"cp\.async\.wait_group", form("__pipeline_wait_prior({v0})")),
        (r"cp\.async\.wait_all", form("__pipeline_commit(); __pipeline_wait_prior(0)")),
        (r"ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16", _load_matrix),
        (r"mma\.sync\.aligned(\.\w+)*\.row\.col(\.\w+)*", _multiply),
        (r"trap", form("__trap()")),
        (rf"createpolicy{_SPACED}", form("{p0} = 0")),
    )
]
