"""The fields of the API's types, and their entries."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from virtplane.api import cdi_crds
from virtplane.api.crds import DEFINITIONS, HOSTPATH_PROVISIONER
from virtplane.api.fields.state import Field, Table
from virtplane.api.markers import ApiStruct

KNOWN = (*DEFINITIONS, HOSTPATH_PROVISIONER, *cdi_crds.DEFINITIONS, cdi_crds.CDI)
"""The kinds whose fields the table may have."""


def struct_of(kind: str) -> type[ApiStruct]:
    """The type of a kind's spec."""
    (root,) = (each.struct for each in KNOWN if each.resource.kind == kind)
    spec, _ = _inside(typing.get_type_hints(root, include_extras=True)["spec"])
    assert spec is not None
    return spec


def paths(struct: type[ApiStruct], prefix: str = "") -> Iterator[str]:
    """Every field of a type, by path; objects without members, lists and maps of values are fields."""
    hints = typing.get_type_hints(struct, include_extras=True)
    for declared in msgspec.structs.fields(struct):
        path = f"{prefix}.{declared.encode_name}" if prefix else declared.encode_name
        inner, is_list = _inside(hints[declared.name])
        members = list(paths(inner, f"{path}[]" if is_list else path)) if inner is not None else []
        yield from members or [path]


def _inside(hint: Any) -> tuple[type[ApiStruct] | None, bool]:
    """The struct that a field contains, if any, and whether the field is a list of it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _inside(arguments[0])
    if origin in (types.UnionType, typing.Union):
        rest = [argument for argument in arguments if argument is not type(None)]
        return _inside(rest[0]) if len(rest) == 1 else (None, False)
    if origin in (tuple, list):
        return _inside(arguments[0])[0], True
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        return hint, False
    return None, False


def entry_of(table: Table, path: str) -> Field | None:
    """The entry for a field: its own, or that of an enclosing object."""
    own = table.get(path)
    if own is not None:
        return own
    for outer in around(path):
        found = table.get(outer)
        if found is not None and found.whole:
            return found
    return None


def around(path: str) -> Iterator[str]:
    """The paths of the objects and lists that contain a field, innermost first."""
    while "." in path:
        path = path.rpartition(".")[0].removesuffix("[]")
        yield path
