"""``Object{...}`` and ``JSONPatch{...}`` in expressions of mutating policies.

They name types that exist for one schema only. As JSON they are plain maps, so the literals are written as
maps before compiling: ``Object.metadata{labels: x}`` becomes ``{'labels': x}``.
"""

from __future__ import annotations

import re

_TYPED = re.compile(r"(?<![\w.])(?:Object(?:\.[A-Za-z_]\w*)*|JSONPatch)\s*\{")
_FIELD = re.compile(r"\s*(\??)\s*(?:([A-Za-z_]\w*)|`([^`]*)`)\s*:")
_STRING = re.compile(
    r"[rRbB]{0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")", re.DOTALL
)


def plain_maps(text: str) -> str:
    """The expression with typed literals written as maps."""
    made: list[str] = []
    open_brackets: list[str] = []
    position, at_key = 0, False
    while position < len(text):
        if at_key and (found := _FIELD.match(text, position)):
            made.append(f"{found[1]}'{found[2] or found[3]}':")
            position, at_key = found.end(), False
        elif found := _STRING.match(text, position):
            made.append(found[0])
            position, at_key = found.end(), False
        elif found := _TYPED.match(text, position):
            made.append("{")
            open_brackets.append("typed")
            position, at_key = found.end(), True
        else:
            char = text[position]
            if char in "([{":
                open_brackets.append(char)
            elif char in ")]}" and open_brackets:
                open_brackets.pop()
            if char == ",":
                at_key = bool(open_brackets) and open_brackets[-1] == "typed"
            elif not char.isspace():
                at_key = False
            made.append(char)
            position += 1
    return "".join(made)
