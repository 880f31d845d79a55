"""What is said where no launcher is found."""

import re

from yaie.emulator.signature import find_launchers
from yaie.emulator.text import hide

# A definition of a function: what stands before its name, and its name.
_FUNCTION = re.compile(r"^[ \t]*((?:[\w:*&<>,]+\s+)+)\*?(\w+)\s*\([^(){};]*\)\s*\{", re.M)


def no_launcher(source: str, name: str = "") -> str:
    """What is said of a source that has no launcher of that name, or none at all, and why."""
    why = _reason(source, name)
    if not name:
        return f"has no launcher: {why}"
    there = f"has no launcher {name!r}, but {', '.join(find_launchers(source))}"
    return f"{there}: {why}" if why else there


def _reason(source: str, name: str) -> str:
    """Why a name is no launcher, or nothing is; "" if the source does not have the name."""
    hidden = hide(source)
    found = _FUNCTION.finditer(hidden)
    functions = [(f[1].split(), f[2]) for f in found]
    if not name:  # what was probably meant to be one
        likely = [f for f in functions if "__global__" not in f[0] and "__device__" not in f[0]]
        name = next((f[1] for f in likely if "extern" in f[0] or "cudaError_t" in f[0]), "")
    rule = 'a launcher begins with extern "C" cudaError_t {}(...) {{'.format
    if not name:
        return rule("name")
    for words, function in functions:
        if function != name:
            continue
        if "__global__" in words:
            return f"{name} is a kernel, and Python calls what launches it; {rule('name')}"
        if "cudaError_t" not in words:
            kind = " ".join(word for word in words if word != "extern")
            return f"{name} is there, but returns {kind}; {rule(name)}"
        return f'{name} is there, but without extern "C"; {rule(name)}'
    if re.search(rf"\b{re.escape(name)}\b", hidden):
        return f"{name} is there, but not written out, as when a macro makes it; {rule(name)}"
    return ""
