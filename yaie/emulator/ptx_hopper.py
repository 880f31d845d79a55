"""Hopper's instructions of inline PTX (sm_90a): asynchronous copies, products, barriers.

Their meaning is in include/emulator/ptx_hopper.h and, of what goes on beside the threads, async.h.
"""

import re

from yaie.emulator.ptx_operands import PTX, Assembly, Emit, Unknown, form, split

_EMULATOR = "::emulator::"


def _barrier(assembly: Assembly, parts: list[str], operand: str) -> str:
    return f"{PTX}barrier_at({assembly.address(operand, parts)})"


def _arrive(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    """mbarrier.arrive and arrive_drop, which may name a state and a count, and expect_tx."""
    state = "" if parts[1] == "expect_tx" or operands[0].strip().startswith("[") else operands[0]
    operands = operands[1:] if state else operands
    given = f"(uint32_t)({assembly.value(operands[1])})" if len(operands) > 1 else "1"
    count, bytes_ = ("0", given) if parts[1] == "expect_tx" else (given, "0")
    if "expect_tx" in parts[2:]:
        count, bytes_ = "1", given
    drops = int(parts[1] == "arrive_drop")
    barrier = _barrier(assembly, parts, operands[0])
    call = f"emulator_mbarrier_arrive({barrier}, {count}, {bytes_}, {drops})"
    return f"{assembly.place(state)} = {call}" if state.strip(" _") else call


def _copy_box(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    """cp.async.bulk.tensor: its map and coordinates stand in one bracket, `[map, {x, y}]`."""
    is_store = parts.index("global") < next(
        i for i, p in enumerate(parts) if p.startswith("shared")
    )
    shared, tensor = (operands[1], operands[0]) if is_store else (operands[0], operands[1])
    barrier = "nullptr" if is_store else assembly.address(operands[2], ["shared"])
    map_, coordinates = split(tensor.strip()[1:-1])
    values = ", ".join(assembly.values(coordinates))
    if len(assembly.values(coordinates)) != int(parts[4][0]):
        raise Unknown(
            f"`{'.'.join(parts)}` with coordinates `{coordinates.strip()}` cannot be read"
        )
    place = assembly.address(shared, ["shared"])
    how = str(is_store).lower()
    if "multicast::cluster" in parts:
        how = f"(uint32_t)({assembly.value(operands[3])})"
    function = "multicast_box" if "multicast::cluster" in parts else "copy_box"
    return f"{PTX}{function}({assembly.value(map_)}, {place}, {how}, {barrier}, {values})"


def _copy_bytes(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    to, from_ = (assembly.address(o, [p]) for o, p in zip(operands, parts[3:5], strict=False))
    loads = "mbarrier::complete_tx::bytes" in parts
    barrier = assembly.address(operands[3], ["shared"]) if loads else "nullptr"
    return f"{PTX}copy_bytes({to}, {from_}, {assembly.value(operands[2])}, {barrier})"


def _multiply(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    """wgmma.mma_async: c, a (registers or a descriptor), b, whether to add, signs, what is MN."""
    n, kind = int(re.search(r"n(\d+)", parts[4])[1]), parts[-1]
    places = assembly.places(operands[0])
    if len(places) != n // 2 or n % 8 or not 8 <= n <= 256:
        raise Unknown(f"`{'.'.join(parts)}` with {len(places)} accumulators cannot be read")
    lines = [f"{_EMULATOR}ProductCall emulator_call = {{}}"]
    lines += [f"emulator_call.part.places[{i}] = &({place})" for i, place in enumerate(places)]
    if operands[1].strip().startswith("{"):
        registers = assembly.places(operands[1])
        lines += [
            f"{PTX}operand<decltype({place[1:-1]})>(emulator_call.part, {i}, {place})"
            for i, place in enumerate(registers)
        ]
        lines.append("emulator_call.part.product.a_in_registers = true")
        a_mn, *b_mn = "0", *operands[6:]
    else:
        lines.append(f"emulator_call.part.product.a = {assembly.value(operands[1])}")
        a_mn, *b_mn = operands[6:]
        a_mn = f"(bool)({assembly.value(a_mn)})"
    lines.append(f"emulator_call.part.product.b = {assembly.value(operands[2])}")
    add, *signs = (assembly.value(operand) for operand in operands[3:6])
    given = [f"(bool)({add})", *(f"(int)({sign})" for sign in signs), a_mn]
    given.append(f"(bool)({assembly.value(b_mn[0])})")
    is_bfloat16 = str(kind == "bf16").lower()
    return "; ".join([*lines, f"{PTX}wgmma(emulator_call, {n}, {is_bfloat16}, {', '.join(given)})"])


def _store_matrix(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    address, values = assembly.address(operands[0], ["shared"]), assembly.values(operands[1])
    return f"{PTX}stmatrix<{str('trans' in parts).lower()}>({address}, {', '.join(values)})"


def _elect(assembly: Assembly, parts: list[str], operands: list[str]) -> str:
    lane, _, chosen = operands[0].partition("|")
    call = f"{PTX}elect((uint32_t)({assembly.value(operands[1])}), {assembly.place(chosen)})"
    return f"{assembly.place(lane)} = {call}"


_SPACE = r"(\.shared(::cta|::cluster)?)?"
_SCOPE = r"(\.(release|acquire|relaxed)(\.(cta|cluster))?)?"
_WAIT = r"mbarrier\.(test|try)_wait"
_COPIES = r"cp\.async\.mbarrier\.arrive"
_TENSOR = r"cp\.async\.bulk\.tensor\.[1-5]d"
_BYTES = r"\.mbarrier::complete_tx::bytes"
_HINT = r"(\.L2::cache_hint)?"
INSTRUCTIONS: list[tuple[str, Emit]] = [
    (rf"mbarrier\.init{_SPACE}\.b64", form("emulator_mbarrier_init({b0}, {u1})")),
    (rf"mbarrier\.inval{_SPACE}\.b64", form("emulator_mbarrier_inval({b0})")),
    (rf"mbarrier\.(arrive|arrive_drop)(\.expect_tx)?{_SCOPE}{_SPACE}\.b64", _arrive),
    (rf"mbarrier\.expect_tx{_SCOPE}{_SPACE}\.b64", _arrive),
    (
        rf"mbarrier\.complete_tx{_SCOPE}{_SPACE}\.b64",
        form("emulator_mbarrier_complete({b0}, {u1})"),
    ),
    (rf"{_WAIT}{_SCOPE}{_SPACE}\.b64", form("{p0} = emulator_mbarrier_wait({b1}, {v2}, 0) != 0")),
    (
        rf"{_WAIT}\.parity{_SCOPE}{_SPACE}\.b64",
        form("{p0} = emulator_mbarrier_wait({b1}, {v2}, 1) != 0"),
    ),
    (rf"{_COPIES}{_SPACE}\.b64", form("emulator_copies_arrive({b0}, 1)")),
    (rf"{_COPIES}\.noinc{_SPACE}\.b64", form("emulator_copies_arrive({b0}, 0)")),
    (
        rf"{_TENSOR}\.shared::(cluster|cta)\.global(\.tile)?{_BYTES}(\.multicast::cluster)?{_HINT}",
        _copy_box,
    ),
    (rf"{_TENSOR}\.global\.shared::cta(\.tile)?\.bulk_group{_HINT}", _copy_box),
    (rf"cp\.async\.bulk\.shared::(cluster|cta)\.(global|shared::cta){_BYTES}{_HINT}", _copy_bytes),
    (rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}", _copy_bytes),
    (r"cp\.async\.bulk\.commit_group", form("emulator_bulk_commit()")),
    (r"cp\.async\.bulk\.wait_group", form("emulator_bulk_wait({v0}, 0)")),
    (r"cp\.async\.bulk\.wait_group\.read", form("emulator_bulk_wait({v0}, 1)")),
    (r"wgmma\.fence\.sync\.aligned", form("emulator_product_fence()")),
    (r"wgmma\.commit_group\.sync\.aligned", form("emulator_product_commit()")),
    (r"wgmma\.wait_group\.sync\.aligned", form("emulator_product_wait({v0})")),
    (r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.(f16\.f16|bf16\.bf16)", _multiply),
    (r"setmaxnreg\.inc\.sync\.aligned\.u32", form("emulator_set_registers(1, (int)({v0}))")),
    (r"setmaxnreg\.dec\.sync\.aligned\.u32", form("emulator_set_registers(0, (int)({v0}))")),
    (r"fence\.proxy\.async", form("emulator_fence_async(3)")),
    (r"fence\.proxy\.async\.shared::(cta|cluster)", form("emulator_fence_async(1)")),
    (r"fence\.proxy\.async\.global", form("emulator_fence_async(2)")),
    (r"fence\.mbarrier_init\.release\.cluster", form("emulator_fence_async(4)")),
    (r"stmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16", _store_matrix),
    (r"elect\.sync", _elect),
    # Of an address in shared memory, or of a pointer.
    (r"mapa\.shared::cluster\.u(32|64)", form(f"{{p0}} = {PTX}map_shared({{v1}}, {{v2}})")),
    (r"mapa\.u(32|64)", form(f"{{p0}} = {PTX}map_pointer({{v1}}, {{v2}})")),
    (
        r"getctarank\.shared::cluster\.u(32|64)",
        form(f"{{p0}} = emulator_shared_rank({PTX}shared({{v1}}))"),
    ),
    (r"getctarank\.u(32|64)", form(f"{{p0}} = emulator_shared_rank({PTX}generic({{v1}}))")),
]
