"""Schemas of the built-in kinds, taken from a published package and kept in one compressed file.

The Kubernetes OpenAPI definitions come from the PyPI package ``kubernetes-validate``, which carries every
recent release (some 100 MB). Users need one of them: ``python -m kindling.apiserver.kinds.schemas`` writes
it next to this module (package data of a wheel; generated, not committed). In a checkout whose environment
has the package, the file is made when it is first needed.

The package marks every optional field as nullable and pins apiVersion and kind, for the sake of JSON Schema
validators; both are undone here so that the definitions read like those a Kubernetes API server publishes.
What the definitions lack: the ``default: {}`` markers of OpenAPI v3, and internal kinds (Table, WatchEvent of
other groups). Which zero values survive on the wire is not in them either: see ``wire``.

File format: zlib over one JSON header line, then the JSON of all definitions, first without descriptions
(for use), then with them (for publishing). The header gives offsets, so that definitions are parsed one by
one when somebody asks for them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kubecore.json import JsonObject
from kubecore.schema.model import Schema, SchemaSet

KUBERNETES_RELEASE = "1.36"
"""The release whose definitions are served."""

DATA_FILE = Path(__file__).with_name("definitions.bin")
_FORMAT = 2
_PREFIX = "#/components/schemas/"


class SchemasMissing(Exception):
    """The data file is absent and the package to make it from is not installed."""


def source_directory() -> Path:
    """The directory of the release's definitions in the installed package. Raises SchemasMissing."""
    try:
        import kubernetes_validate  # type: ignore[import-untyped]  # noqa: PLC0415 - only where the file is made
    except ImportError as error:
        raise SchemasMissing(
            f"{DATA_FILE} does not exist. Install the package kubernetes-validate and run: "
            f"{sys.executable} -m kindling.apiserver.kinds.schemas"
        ) from error
    root = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    return root / f"v{KUBERNETES_RELEASE}.0-local"


def convert(node: Any, *, descriptions: bool) -> Any:
    """A definition of the package as Kubernetes publishes it (OpenAPI v3)."""
    if isinstance(node, list):
        return [convert(item, descriptions=descriptions) for item in node]
    if not isinstance(node, dict):
        return node
    converted: JsonObject = {}
    for key, value in node.items():
        if key == "description":
            if isinstance(value, str) and not descriptions:
                continue
            converted[key] = value if isinstance(value, str) else convert(value, descriptions=descriptions)
        elif key == "type" and isinstance(value, list):
            converted[key] = next(item for item in value if item != "null")
        elif key == "$ref":
            converted[key] = _PREFIX + value.rsplit("/", 1)[-1]
        elif key == "properties":
            converted[key] = {
                name: convert(_without_pin(name, child), descriptions=descriptions)
                for name, child in value.items()
            }
        else:
            converted[key] = convert(value, descriptions=descriptions)
    return converted


def _without_pin(name: str, child: JsonObject) -> JsonObject:
    if name in ("apiVersion", "kind") and "enum" in child:
        return {key: value for key, value in child.items() if key != "enum"}
    return child


def build(definitions: Mapping[str, JsonObject]) -> bytes:
    """The content of the data file for the package's `definitions`."""
    index: dict[str, list[int]] = {}
    kinds: dict[str, str] = {}
    plain: list[bytes] = []
    described: list[bytes] = []
    offset = 0
    converted = {name: _special(name, convert(raw, descriptions=True)) for name, raw in definitions.items()}
    for name, raw in converted.items():
        for kind in raw.get("x-kubernetes-group-version-kind") or ():
            kinds.setdefault(f"{kind['group']}/{kind['version']}/{kind['kind']}", name)
        encoded = orjson.dumps(convert(raw, descriptions=False))
        plain.append(encoded)
        index[name] = [offset, len(encoded)]
        offset += len(encoded)
    for name, raw in converted.items():
        encoded = orjson.dumps(raw)
        described.append(encoded)
        index[name] += [offset, len(encoded)]
        offset += len(encoded)
    header = orjson.dumps({"format": _FORMAT, "release": KUBERNETES_RELEASE, "index": index, "kinds": kinds})
    return zlib.compress(b"\n".join((header, b"".join(plain + described))), 6)


def _special(name: str, raw: JsonObject) -> JsonObject:
    """Scalar unions, written as Kubernetes' OpenAPI v3 documents do."""
    if name.endswith(".IntOrString"):
        return {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}
    if name.endswith(".Quantity"):
        return {
            "oneOf": [{"type": "string"}, {"type": "number"}],
            **{k: raw[k] for k in raw if k == "description"},
        }
    return raw


def write(target: Path = DATA_FILE) -> Path:
    """Make the data file. Raises SchemasMissing, OSError."""
    source = orjson.loads((source_directory() / "_definitions.json").read_bytes())["$defs"]
    partial = target.with_suffix(".partial")
    partial.write_bytes(build(source))
    partial.replace(target)
    return target


class _LazyDefinitions(dict[str, JsonObject]):
    """Definitions parsed when they are first asked for."""

    def __init__(self, content: memoryview, index: Mapping[str, list[int]]) -> None:
        super().__init__()
        self._content = content
        self._index = index

    def __missing__(self, name: str) -> JsonObject:
        offset, length = self._index[name][:2]
        raw: JsonObject = orjson.loads(self._content[offset : offset + length])
        self[name] = raw
        return raw

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


class PublishedDefinitions(Mapping[str, JsonObject]):
    """Described definitions for OpenAPI documents: some root definitions and all they refer to.

    Nothing is kept: each look-up parses anew; documents are made once and cached by whoever makes them.
    """

    def __init__(self, schemas: BuiltinSchemas, roots: tuple[str, ...]) -> None:
        self._schemas = schemas
        self._roots = roots
        self._names: tuple[str, ...] | None = None

    def __getitem__(self, name: str) -> JsonObject:
        return self._schemas.described(name)

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = self._schemas.closure(self._roots)
        return iter(self._names)

    def __len__(self) -> int:
        return len(tuple(iter(self)))


class BuiltinSchemas(SchemaSet):
    """The definitions of the data file: views for use (without descriptions), raw ones for publishing."""

    def __init__(self, content: bytes) -> None:
        super().__init__({})
        header, _, body = zlib.decompress(content).partition(b"\n")
        parsed = orjson.loads(header)
        if parsed["format"] != _FORMAT or parsed["release"] != KUBERNETES_RELEASE:
            raise SchemasMissing(f"{DATA_FILE} is of another release; remove it and make it again")
        self._index: dict[str, list[int]] = parsed["index"]
        self._kinds: dict[str, str] = parsed["kinds"]
        self._body = memoryview(body)
        self._definitions = _LazyDefinitions(self._body, self._index)

    def schema(self, name: str) -> Schema:
        """The one shared view of the definition called `name`, which knows its name (KeyError when none)."""
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = Schema({"$ref": _PREFIX + name}, self)
        return found

    def name_of(self, group: str, version: str, kind: str) -> str:
        """The definition of a kind (KeyError when there is none)."""
        return self._kinds[f"{group}/{version}/{kind}"]

    def kind(self, group: str, version: str, kind: str) -> Schema:
        """The schema of a kind (KeyError when there is none)."""
        return self.schema(self.name_of(group, version, kind))

    def described(self, name: str) -> JsonObject:
        """A fresh copy of the definition with its descriptions."""
        offset, length = self._index[name][2:]
        raw: JsonObject = orjson.loads(self._body[offset : offset + length])
        return raw

    def closure(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """`roots` and all definitions which they refer to, in the order they are reached."""
        found: dict[str, None] = {}
        pending = list(reversed(roots))
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = None
                pending.extend(_references(self._index_raw(name)))
        return tuple(found)

    def _index_raw(self, name: str) -> JsonObject:
        offset, length = self._index[name][:2]
        raw: JsonObject = orjson.loads(self._body[offset : offset + length])
        return raw

    def published(self, *roots: str) -> PublishedDefinitions:
        """The described definitions of `roots` and of all they refer to."""
        return PublishedDefinitions(self, roots)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str):
            yield target.rsplit("/", 1)[-1]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


@cache
def builtin_schemas() -> BuiltinSchemas:
    """The definitions of this installation; the data file is made when absent. Raises SchemasMissing."""
    if not DATA_FILE.exists():
        write()
    try:
        return BuiltinSchemas(DATA_FILE.read_bytes())
    except SchemasMissing:
        write()
        return BuiltinSchemas(DATA_FILE.read_bytes())


def main() -> int:
    """Write the data file and say where it is."""
    sys.stdout.write(f"{write()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
