"""The file of definitions of the built-in kinds: taken from a published package, made once.

The Kubernetes OpenAPI definitions come from the PyPI package ``kubernetes-validate``, which carries every
recent release (some 100 MB). Users need one of them:
``python -m kindling.apiserver.kinds.schemas.definitions`` writes
it next to this module, downloading the package for the moment where it is not installed. The file is
generated and not committed, and package data of a wheel (see ``build_hooks/schemas.py``). In a checkout whose
environment has the package, it is also made when it is first needed.

The package marks every optional field as nullable and pins apiVersion and kind, for the sake of JSON Schema
validators; both are undone here so that the definitions read like those a Kubernetes API server publishes.
What the definitions lack: the ``default: {}`` markers of OpenAPI v3, and internal kinds (Table, WatchEvent of
other groups). Which zero values survive on the wire is not in them either: see ``wire``.

Definitions of alpha and beta versions are left out; none of them is served. File format: see ``data_file``.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from kubecore.json import JsonObject

from .data_file import DATA_FILE, FORMAT, KUBERNETES_RELEASE, PREFIX, SchemasMissing

SOURCE_PACKAGE = "kubernetes-validate==1.37.0"
"""What carries the definitions (of this release among others)."""
GO_TYPES = Path(__file__).with_name("go_types.txt")
"""What the definitions do not say about Go types: ``x-go-type`` and ``x-go-embedded`` of those for use."""
_UNSTABLE = re.compile(r"\.v[0-9]+(alpha|beta)[0-9]+\.")
_MEMBER = f"kubernetes-json-schema/v{KUBERNETES_RELEASE}.0-local/_definitions.json"


def installed_definitions() -> bytes:
    """The release's definitions from the installed package. Raises SchemasMissing."""
    try:
        import kubernetes_validate  # type: ignore[import-untyped]  # noqa: PLC0415 - only where the file is made
    except ImportError as error:
        raise SchemasMissing(
            f"{DATA_FILE} does not exist. Make it by: "
            f"{sys.executable} -m kindling.apiserver.kinds.schemas.definitions"
        ) from error
    return (Path(kubernetes_validate.__file__).parent / _MEMBER).read_bytes()


def wheel_definitions(wheel: Path) -> bytes:
    """The release's definitions from a wheel file of the package. Raises OSError, KeyError, BadZipFile."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"kubernetes_validate/{_MEMBER}")


def downloaded_definitions() -> bytes:
    """The release's definitions from the package index, by pip, without keeping the package.

    Raises SchemasMissing with pip's last words.
    """
    with tempfile.TemporaryDirectory(prefix="kindling-schemas-") as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", directory, SOURCE_PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            raise SchemasMissing(f"pip could not download {SOURCE_PACKAGE}: {done.stderr.strip()[-500:]}")
        return wheel_definitions(wheels[0])


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
            converted[key] = PREFIX + value.rsplit("/", 1)[-1]
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
    converted = {
        name: _special(name, convert(raw, descriptions=True))
        for name, raw in definitions.items()
        if not _UNSTABLE.search(name)
    }
    go_types = dict(line.split(" ", 1) for line in GO_TYPES.read_text().splitlines() if line[0] != "#")
    for name, raw in converted.items():
        for kind in raw.get("x-kubernetes-group-version-kind") or ():
            kinds.setdefault(f"{kind['group']}/{kind['version']}/{kind['kind']}", name)
        bare = convert(raw, descriptions=False)
        _add_go_types(bare, go_types.get(name, "").split())
        encoded = orjson.dumps(bare)
        plain.append(encoded)
        index[name] = [offset, len(encoded)]
        offset += len(encoded)
    for name, raw in converted.items():
        encoded = orjson.dumps(raw)
        described.append(encoded)
        index[name] += [offset, len(encoded)]
        offset += len(encoded)
    header = orjson.dumps({"format": FORMAT, "release": KUBERNETES_RELEASE, "index": index, "kinds": kinds})
    return b"\n".join((header, b"".join(plain + described)))


def _add_go_types(raw: JsonObject, words: Sequence[str]) -> None:
    """Note the Go types of a definition's fields (`words`: a line of the file `GO_TYPES`) in its schema."""
    embedded = ""
    for word in words:
        if word.endswith(":"):
            embedded = word[:-1]
            continue
        field, _, go_type = word.partition("=")
        node = raw.get("properties", {}).get(field)
        if node is None:  # a field of another release
            continue
        if embedded:
            raw.setdefault("x-go-embedded", {})[field] = embedded
        while go_type.startswith(("[]", "map[")):
            node = node["items"] if go_type.startswith("[]") else node["additionalProperties"]
            go_type = go_type.partition("]")[2]
        if go_type:
            node["x-go-type"] = go_type


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


def write(target: Path = DATA_FILE, *, source: bytes | None = None) -> Path:
    """Make the data file from `source` (default: the installed package). Raises SchemasMissing, OSError."""
    content = build(orjson.loads(source if source is not None else installed_definitions())["$defs"])
    # Several processes may find the file missing at once; each replaces it by an equal one.
    with tempfile.TemporaryDirectory(
        prefix=f"{target.stem}.", suffix=".partial", dir=target.parent
    ) as directory:
        partial = Path(directory) / target.name
        partial.write_bytes(content)
        partial.chmod(0o644)  # components run as users of their own
        partial.replace(target)
    return target


def main(argv: Sequence[str] | None = None) -> int:
    """Write the data file and say where it is; the package is downloaded for it unless it is at hand."""
    flags = argparse.ArgumentParser(
        prog="python -m kindling.apiserver.kinds.schemas.definitions", description=main.__doc__
    )
    flags.add_argument("--wheel", type=Path, help="a wheel file of kubernetes-validate to take them from")
    arguments = flags.parse_args(argv)
    try:
        if arguments.wheel is not None:
            target = write(source=wheel_definitions(arguments.wheel))
        elif importlib.util.find_spec("kubernetes_validate") is not None:
            target = write()
        else:
            target = write(source=downloaded_definitions())
    except (SchemasMissing, OSError, KeyError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"The schemas of the built-in kinds cannot be made: {error}\n")
        return 1
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
