"""Macros that spell inline PTX: a name in its text, its operands, or the whole statement.

PTX becomes C++ before the compiler runs, so before macros are replaced. Those that inline PTX needs
are replaced here. A name with two definitions is left alone: only the compiler knows which counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from yaie.emulator.ptx_operands import parts

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\\\n]|\\[^\n]|\\\n)*", re.M)
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^()]*)\))?(.*)", re.S)
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__)\b")
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+'|\.?\d[\w.]*|[A-Za-z_]\w*|##|\s+|.", re.S
)


@dataclass(frozen=True)
class _Macro:
    parameters: tuple[str, ...] | None  # None: it is used without brackets
    body: str


FrozenMacros = tuple[tuple[tuple[str, _Macro | None], ...], frozenset[str]]


@dataclass
class Macros:
    """The macros of a source and its headers, in the order in which they are read."""

    known: dict[str, _Macro | None] = field(default_factory=dict)  # None: several definitions
    assembling: set[str] = field(default_factory=set)  # those that make whole `asm` statements

    def frozen(self) -> FrozenMacros:
        """All of it as a value that a cache can be asked with."""
        return tuple(self.known.items()), frozenset(self.assembling)

    @classmethod
    def thawed(cls, frozen: FrozenMacros) -> Macros:
        return cls(dict(frozen[0]), set(frozen[1]))

    def read(self, source: str) -> None:
        """Take the definitions of a text without comments."""
        for directive in _DIRECTIVE.finditer(source):
            if not (found := _DEFINE.fullmatch(directive[0])):
                continue
            name, given, body = found[1], found[2], found[3].replace("\\\n", " ").strip()
            body = re.sub(r"\s*##\s*", "##", body)
            parameters = None if given is None else tuple(p.strip() for p in given.split(","))
            macro = _Macro(parameters, body)
            self.known[name] = macro if self.known.get(name, macro) == macro else None
            if _ASSEMBLY.search(body) or self.assembling & set(_TOKEN.findall(body)):
                self.assembling.add(name)

    def expand(self, text: str, busy: frozenset[str] = frozenset()) -> str:
        """A text with all macros replaced but those in `busy`."""
        tokens, out, i = _TOKEN.findall(text), [], 0
        while i < len(tokens):
            macro = None if tokens[i] in busy else self.known.get(tokens[i])
            end = i + 1
            if macro and macro.parameters is not None:
                end = _closed(tokens, i + 1)
            if macro is None or end is None:
                out.append(tokens[i])
                i += 1
                continue
            inside = "".join(tokens[i + 1 : end]).strip()[1:-1]
            body = self._filled(macro, inside, busy) if macro.parameters else macro.body
            out.append(self.expand(body, busy | {tokens[i]}))
            i = end
        return "".join(out)

    def _filled(self, macro: _Macro, inside: str, busy: frozenset[str]) -> str:
        """The body of a macro with its arguments in place of its parameters."""
        names, values = list(macro.parameters), [value.strip() for value in parts(inside, ",")]
        if names[-1] == "...":
            names[-1] = "__VA_ARGS__"
            values[len(names) - 1 :] = [", ".join(values[len(names) - 1 :])]
        given = dict(zip(names, values, strict=False))
        tokens, out = ["", *_TOKEN.findall(macro.body), ""], []
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if token == "#" and after in given:
                continue
            if token not in given:
                out.append(token)
            elif before == "#":
                out.append('"' + given[token].replace("\\", "\\\\").replace('"', '\\"') + '"')
            else:
                joined = "##" in (before, after)
                out.append(given[token] if joined else self.expand(given[token], busy))
        return "".join(out).replace("##", "")

    def expand_assembly(self, source: str, hidden: str) -> str:
        """A text in which the macros that make `asm` statements are replaced, on as many lines.

        `hidden` is the text without comments and literals, of the same length.
        """
        names = [name for name in self.assembling if self.known[name]]
        if not names:
            return source
        directives = [found.span() for found in _DIRECTIVE.finditer(hidden)]
        pieces, end = [], 0
        for found in re.finditer(rf"\b(?:{'|'.join(names)})\b", hidden):
            if found.start() < end or any(a <= found.start() < b for a, b in directives):
                continue
            last = found.end()
            if self.known[found[0]].parameters is not None:
                tokens = _TOKEN.findall(source[found.end() :])
                if (count := _closed(tokens, 0)) is None:
                    continue
                last += sum(map(len, tokens[:count]))
            written = source[found.start() : last]
            lines = "\n" * written.count("\n")
            pieces += [source[end : found.start()], self.expand(written.replace("\n", " ")), lines]
            end = last
        return "".join([*pieces, source[end:]])


def _closed(tokens: list[str], start: int) -> int | None:
    """The index past the bracket that closes the one that comes next; None if none comes next."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i] == "(") - (tokens[i] == ")")
        if depth == 0 and tokens[i].strip():
            return i + 1 if tokens[i] == ")" else None
    return None
