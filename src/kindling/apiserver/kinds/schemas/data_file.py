"""Reading the file of definitions (see ``definitions``, which makes it).

Its first line is a JSON header with the places of all definitions; they follow as JSON, first without
descriptions (for use), then with them (for publishing). The file is mapped into memory: a server's memory
holds only the parts in use, and several servers share them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import orjson

from kubecore.json import JsonObject

KUBERNETES_RELEASE = "1.36"
"""The release whose definitions are served."""

DATA_FILE = Path(__file__).with_name("definitions.bin")
FORMAT = 4
PREFIX = "#/components/schemas/"
"""How definitions refer to each other."""


class SchemasMissing(Exception):
    """The data file is absent and the package to make it from is not installed."""


class DataFile:
    """The definitions by name; each look-up parses the definition again."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        """Raises SchemasMissing when `content` is not of this release and format."""
        end = content.find(b"\n")
        try:
            header = orjson.loads(content[: max(end, 0)])
        except orjson.JSONDecodeError:
            header = {}
        if (header.get("format"), header.get("release")) != (FORMAT, KUBERNETES_RELEASE):
            raise SchemasMissing(f"{DATA_FILE} is of another release; remove it and make it again")
        self.kinds: dict[str, str] = header["kinds"]
        """Names of definitions by ``group/version/kind``."""
        self._places: dict[str, list[int]] = header["index"]
        self._body = memoryview(content)[end + 1 :]

    @classmethod
    def open(cls, path: Path = DATA_FILE) -> Self:
        """Map the file. Raises OSError, SchemasMissing."""
        with path.open("rb") as file:
            try:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # the file is empty
                raise SchemasMissing(f"{path} is empty; remove it and make it again") from error
        return cls(content)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def plain(self, name: str) -> JsonObject:
        """The definition without descriptions (KeyError when there is none)."""
        return self._parse(*self._places[name][:2])

    def described(self, name: str) -> JsonObject:
        """The definition with its descriptions (KeyError when there is none)."""
        return self._parse(*self._places[name][2:])

    def _parse(self, offset: int, length: int) -> JsonObject:
        raw: JsonObject = orjson.loads(self._body[offset : offset + length])
        return raw
