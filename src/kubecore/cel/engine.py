"""The CEL interpreter: variable types and environments. Importing it is expensive."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pool

from .functions import config, extensions
from .opaque_types import pool

TYPES: Mapping[str, Any] = {
    "bool": cel.Type.BOOL,
    "bytes": cel.Type.BYTES,
    "double": cel.Type.DOUBLE,
    "duration": cel.Type.DURATION,
    "dyn": cel.Type.DYN,
    "int": cel.Type.INT,
    "list": cel.Type.List(cel.Type.DYN),
    "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    "string": cel.Type.STRING,
    "timestamp": cel.Type.TIMESTAMP,
}
"""Types of variables by name; other names are those of opaque types."""

ERROR = cel.Type.ERROR
"""The type of what an expression without a value gives."""


def new_environment(
    variables: Mapping[str, Any], descriptors: descriptor_pool.DescriptorPool | None = None
) -> Any:
    """The compiler for these variables; a type is a name (see ``TYPES``) or the compiler's own type."""
    declared = {name: _type(kind) for name, kind in variables.items()}
    return cel.NewEnv(
        config=config(),
        descriptor_pool=descriptors or pool(),
        variables=declared,
        extensions=list(extensions()),
    )


@cache
def _parser() -> Any:
    """Knows the macros that expressions may use, and nothing else."""
    return cel.NewEnv(config=config())


def parse_only(text: str) -> bytes:
    """The serialized tree of `text` (see ``syntax``). Raises ValueError with the parser's messages."""
    try:
        made: bytes = _parser().compile(text, disable_check=True).serialize()
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return made


def _type(kind: Any) -> Any:
    if not isinstance(kind, str):
        return kind
    return TYPES.get(kind) or cel.Type(kind)
