"""A fault in a sentence: what happened, to which element, by which threads, in which lines."""

import re
from collections.abc import Sequence

from yaie.emulator import runtime
from yaie.emulator.elements import DYNAMIC, FREE, Memory, element, indexed, name_of
from yaie.emulator.lines import Place
from yaie.emulator.text import hide


def sentence(
    raw: runtime.RawFailure, here: Place, there: Place, memories: Sequence[Memory], source: str
) -> str:
    """What a finding is called in a report."""
    kind = runtime.KINDS[raw.kind]
    often = f" ({raw.count:,} times)" if raw.count > 1 else ""
    if kind == "refused":
        return f"{here}: {_text(raw)}"
    if kind == "launcher_fault" or (kind in _ANYWHERE and not raw.in_kernel):
        return f"{here}, in the launcher: {_WORDS[kind](raw, here, there, memories)}"
    if kind == "race":
        return f"{_race(raw, here, there, memories, source)}{often}."
    if kind == "same_value":
        return f"{_race(raw, here, there, memories, source)}, the same value{often}."
    if kind in _BETWEEN:
        return f"{_BETWEEN[kind](raw, here, there, memories, source)}{often}."
    if kind == "uninitialized":
        words = _uninitialized(raw, memories, source)
    elif kind == "out_of_bounds" and raw.text:
        words = indexed(raw, here, source)
    elif kind in _ABOUT or (kind in ("deadlock", "misaligned") and raw.text):
        words = _about(raw, here, there, memories, source)
    else:
        words = _WORDS[kind](raw, here, there, memories)
    return f"{here}: {words}; thread block {raw.block}, thread {raw.thread}{often}"


# ------------------------------------------------------------------------------------------ races

_DOES = {"load": "reads", "store": "writes", "atomic": "changes atomically"}


def _race(raw, here: Place, there: Place, memories, source: str) -> str:
    """In line 12 thread 5 reads partial[3], which thread 37 writes in line 14, and …"""
    names = _numbers("thread", raw.thread, raw.other_thread)
    across = str(raw.block) != str(raw.other_block)
    if across:
        blocks = _numbers("thread block", raw.block, raw.other_block)
        names = [f"{thread} of {block}" for thread, block in zip(names, blocks, strict=True)]
    kinds = [runtime.ACCESSES[raw.access], runtime.ACCESSES[raw.other_access]]
    what = element(raw, memories, source)
    if raw.text and across:
        return (
            f"In {here} {names[0]} reads and writes {what}, as {names[1]} does in {there}: thread "
            "blocks run in no order, and an update may be lost"
        )
    if raw.text:
        return (
            f"In {here} {names[0]} writes {what}, which {names[1]} has written in {there} after "
            f"{names[0]} has read it: an update is lost"
        )
    if kinds == ["store", "store"] and here == there:
        return f"In {here} {names[0]} and {names[1]} both write {what}"
    sides = list(zip(names, kinds, (here, there), strict=True))
    sides.sort(key=lambda side: ("load", "store", "atomic").index(side[1]))
    (one, does, line), (other, too, other_line) = sides
    also = "also " if does == too else ""
    unordered = across and runtime.MEMORIES[raw.memory] == "global"
    why = "thread blocks run in no order" if unordered else "no barrier stands between the two"
    return (
        f"In {line} {one} {_DOES[does]} {what}, which {other} {also}{_DOES[too]} in {other_line}, "
        f"and {why}"
    )


def _pending_copy(raw, here: Place, there: Place, memories, source: str) -> str:
    """In line 12 thread 5 reads tile[3] before the asynchronous copy to it, which thread 4 …"""
    one, other = _numbers("thread", raw.thread, raw.other_thread)
    name = element(raw, memories, source)
    if _text(raw) == "left":
        return (
            f"In {here} {one} starts a copy from {name}, and the thread block ends without a wait"
        )
    if _text(raw) == "end":
        return (
            f"The copies that {one} starts in {here} complete on {name}, for which no thread waits"
        )
    does = _DOES[runtime.ACCESSES[raw.access]]
    way = "from" if runtime.ACCESSES[raw.other_access] == "load" else "to"
    operation = "wgmma that reads" if _text(raw) == "wgmma" else f"asynchronous copy {way}"
    who = "it" if one == other else other
    return (
        f"In {here} {one} {does} {name} before the {operation} it, which "
        f"{who} started in {there}, has been waited for"
    )


def _missing_fence(raw, here: Place, there: Place, memories, source: str) -> str:
    """In line 12 thread 0 starts to read tile[3] asynchronously, which thread 4 wrote in …"""
    one, other = _numbers("thread", raw.thread, raw.other_thread)
    what = _text(raw)
    if what == "init":
        name = element(raw, memories, source)
        return (
            f"In {here} {one} starts a copy that completes on {name}, and neither "
            f"fence.mbarrier_init nor fence.proxy.async follows its initialization in {there}"
        )
    if what and not there.line:
        return f"In {here} {one} issues its first wgmma, and no wgmma.fence stands before it"
    if what:
        also = f"no wgmma.fence follows {there}, which writes its {what}"
        return f"In {here} {one} issues a wgmma, and {also}"
    does = _DOES[runtime.ACCESSES[raw.access]]
    space = " of global memory" if runtime.MEMORIES[raw.memory] == "global" else ""
    return (
        f"In {here} {one} asynchronously {does} {element(raw, memories, source)}, which {other} "
        f"writes in {there}, and no fence.proxy.async{space} stands between the two"
    )


def _pending_registers(raw, here: Place, there: Place, memories, source: str) -> str:
    """In line 12 thread 5 reads accumulators of the wgmma of line 8 before it has been …"""
    (one,) = _numbers("thread", raw.thread)
    if _text(raw) == "end":
        return f"The wgmma of {here} still runs when {one} ends: it has not been waited for"
    does = _DOES[runtime.ACCESSES[raw.access]]
    return (
        f"In {here} {one} {does} {_text(raw)} of the wgmma of {there} before it has been waited for"
    )


def _numbers(what: str, *indices: runtime.Index) -> list[str]:
    """`thread 5`, or `thread (5, 2)` where one of them has a row, all written alike."""
    used = max(3 if i.z else 2 if i.y else 1 for i in indices)
    return [f"{what} {i.x}" if used == 1 else f"{what} {(i.x, i.y, i.z)[:used]}" for i in indices]


# ---------------------------------------------------------------------------------- other faults


_THIRD = "the third argument of <<<grid, thread_block, bytes>>> is their number"


def _verb(raw: runtime.RawFailure) -> str:
    access = runtime.ACCESSES[raw.access]
    what = "an atomic operation" if access == "atomic" else f"a {access}"
    if not raw.size:  # of an access that the processor refused
        return what
    return f"{what} of {raw.size} byte{'s' * (raw.size != 1)}"


def _out_of_bounds(raw, here: Place, there: Place, memories) -> str:
    if raw.address < 4096:
        return f"{_verb(raw)} through a null pointer"
    if raw.range == -1:
        return (
            f"{_verb(raw)} outside every argument: a host pointer, one kept from an earlier "
            "call, or an index far off"
        )
    name = name_of(raw.range, memories)
    if raw.range == FREE:
        return f"{_verb(raw)} in {name}"
    if raw.range == DYNAMIC and not raw.extent:
        return f"{_verb(raw)} in {name}, of which the launch gives 0 bytes: {_THIRD}"
    if raw.offset < 0:
        return f"{_verb(raw)}, {-raw.offset:,} bytes before {name}"
    size = memories[raw.range].size if 0 <= raw.range < len(memories) else None
    size = raw.extent if raw.range == DYNAMIC else size
    if size is None:
        return f"{_verb(raw)} past the end of {name}, {raw.offset:,} bytes from its beginning"
    past, what = raw.offset - size, f"the end of {name} ({size:,} bytes)"
    if past < 0:
        return f"{_verb(raw)} that begins inside and ends {past + raw.size:,} bytes past {what}"
    return f"{_verb(raw)}, {past:,} bytes past {what}"


def _launcher_fault(raw, here, there, memories) -> str:
    if raw.text:
        return _text(raw)
    return (
        f"{_verb(raw)} in {name_of(raw.range, memories)}, memory of the device, which the host "
        "reaches by cudaMemcpy and cudaMemset"
    )


def _misaligned(raw, here, there, memories) -> str:
    name = name_of(raw.range, memories)
    where = f"byte {raw.offset:,} of {name}"
    return f"{_verb(raw)} at an address that is no multiple of {raw.size}, {where}"


def _divergent_barrier(raw, here, there: Place, memories) -> str:
    if there.line:
        return f"not all threads reach this barrier: thread {raw.other_thread} is at {there}"
    return f"not all threads reach this barrier: thread {raw.other_thread} has returned"


def _mbarrier(raw: runtime.RawFailure, memories: Sequence[Memory], source: str) -> str:
    """`full[1]`, as the file declares it, if its memory is known: in checked mode."""
    return "an mbarrier" if raw.range == -1 else element(raw, memories, source)


def _about(raw, here, there: Place, memories, source: str) -> str:
    """A fault of mbarriers, whose words the runtime has chosen."""
    kind, name = runtime.KINDS[raw.kind], _mbarrier(raw, memories, source)
    also = f"; thread {raw.other_thread} waits in {there}" if there.line else ""
    if also and kind == "deadlock" and str(raw.other_block) != str(raw.block):
        also = also.replace(" waits", f" of thread block {raw.other_block} waits")
    if kind == "deadlock" and raw.address:
        return f"deadlock: waits for {name}, whose {_text(raw)}{also}"
    if kind == "deadlock":
        return f"deadlock: waits for {_text(raw)}{also}"
    if kind == "warp_group" and there.line:
        return f"{_text(raw)}: thread {raw.other_thread} is at {there}"
    if kind == "barrier_count" and there.line:
        return f"{_text(raw)}, {there}"
    return f"{name} {_text(raw)}" if raw.address else _text(raw)


def _deadlock(raw, here, there: Place, memories) -> str:
    if there.line:
        return f"deadlock: waits here for thread {raw.other_thread}, which waits at {there}"
    return "deadlock: waits here for lanes that never come"


def _inactive_lane(raw, here, there, memories) -> str:
    if raw.address >> raw.offset & 1:
        why = "has returned, or is not at this call"
    else:
        why = f"is not in the mask 0x{raw.address:08x}"
    return f"a shuffle reads lane {raw.offset}, which {why}"


def _text(raw: runtime.RawFailure) -> str:
    return raw.text.decode(errors="replace")


def _plain(raw: runtime.RawFailure) -> str:
    return _text(raw).replace("'", "")


def _uninitialized(raw, memories, source: str) -> str:
    if not raw.text:
        what = element(raw, memories, source)
        if runtime.MEMORIES[raw.memory] == "global":
            return f"reads {what}, which neither a kernel nor a copy has written"
        return f"reads {what}, which no thread of the thread block has written"
    name = _text(raw)
    if raw.extent > raw.size:
        flat = _is_flat(name, source)
        name = f"{name}[{raw.offset // raw.size}]" if flat else f"an element of {name}"
    return f"reads {name}, to which the thread has given no value"


def _is_flat(name: str, source: str) -> bool:
    return not re.search(rf"\b{name}\s*\[[^\]]*\]\s*\[", hide(source))


def _cluster(raw, here: Place, there: Place, memories, source: str) -> str:
    """In line 12 thread 5 reads tile[3] of its cluster's thread block 1, which may not have …"""
    what = _text(raw)
    if what not in ("start", "end"):
        return f"In {here} thread {raw.thread} of thread block {raw.block} {what}"
    (one,), (block,) = _numbers("thread", raw.thread), _numbers("thread block", raw.block)
    does = _DOES[runtime.ACCESSES[raw.access]]
    why = (
        "which may not have started: no barrier of the cluster stands before"
        if what == "start"
        else "which may have ended: it waits for nothing that follows"
    )
    return f"In {here} {one} of {block} {does} {element(raw, memories, source)}, {why}"


_BETWEEN = {
    "cluster": _cluster,
    "pending_copy": _pending_copy,
    "missing_fence": _missing_fence,
    "pending_registers": _pending_registers,
}
_ABOUT = (*("mbarrier", "barrier_count", "transaction_bytes", "warp_group", "register_budget"),)
_ANYWHERE = ("assertion", "interrupted", "missing_return", "time_limit")  # in host code as well
_WORDS = {
    "out_of_bounds": _out_of_bounds,
    "misaligned": _misaligned,
    "divergent_barrier": _divergent_barrier,
    "deadlock": _deadlock,
    "inactive_lane": _inactive_lane,
    "wrong_mask": lambda raw, *_: f"lane {raw.offset} is not in the mask that it passes",
    "divergent_collective": lambda raw, here, there, _: (
        f"lanes of one warp meet at different calls: thread {raw.other_thread} is at {there}"
    ),
    "segmentation_fault": lambda raw, *_: (
        f"segmentation fault at address 0x{raw.address:x}: a pointer that leads nowhere"
    ),
    "stack_overflow": lambda *_: "stack overflow: local arrays too large, or recursion",
    "division": lambda *_: "integer division by zero",
    "time_limit": lambda raw, *_: (
        "still running when the time limit was over: an endless loop"
        + ", or a wait for a thread block that has yet to run: they have no order" * bool(raw.text)
    ),
    "assertion": lambda raw, *_: f"assertion failed: {_text(raw)}",
    "trap": lambda raw, *_: f"{_text(raw) or '__trap()'} was called",
    "interrupted": lambda *_: "interrupted",
    "launcher_fault": _launcher_fault,
    "refused": lambda raw, *_: _text(raw),
    "missing_return": lambda *_: (
        "the function that begins here reaches its end without a return statement; a launcher "
        "returns cudaGetLastError()"
    ),
    "conversion": lambda raw, *_: (
        f"converts {_plain(raw)}, which does not fit: a GPU takes the nearest value that does, 0 "
        "for NaN; a CPU takes another, unless the conversion is written as a cast"
    ),
    "shift": lambda raw, *_: (
        f"shifts {_plain(raw)}: C++ leaves undefined what a shift by all bits or more gives"
    ),
}
