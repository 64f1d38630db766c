"""Escaping of property names that are not CEL identifiers."""

from __future__ import annotations

from typing import Final

RESERVED: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"}
    | {"import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}
)


def cel_name(name: str) -> str:
    """The escaped property name: ``__namespace__`` for reserved words, ``a__dash__b``."""
    if name in RESERVED:
        return f"__{name}__"
    escaped = name.replace("__", "__underscores__")
    for char, word in ((".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        escaped = escaped.replace(char, word)
    return escaped
