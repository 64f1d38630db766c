"""The parser of the language. Importing it is expensive: it takes 20 MiB."""

from __future__ import annotations

from functools import cache
from typing import Any

from cel_expr_python import cel

_EXTENSIONS = ("two-var-comprehensions", "lists", "strings", "optional", "sets")
"""Those whose macros Kubernetes has."""


@cache
def _parser() -> Any:
    """Knows the macros that expressions may use, and nothing else."""
    names = "".join(f"- name: {name}\n" for name in _EXTENSIONS)
    config = cel.NewEnvConfigFromYaml(f"name: kubernetes\nextensions:\n{names}")
    return cel.NewEnv(config=config)


def parse_only(text: str) -> bytes:
    """The serialized tree of `text` (see ``syntax``). Raises ValueError with the parser's messages."""
    try:
        made: bytes = _parser().compile(text, disable_check=True).serialize()
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return made
