"""Build hook: puts the schemas of the built-in kinds into the wheel, made from ``kubernetes-validate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemasHook(BuildHookInterface[Any]):
    """Writes ``kindling/apiserver/kinds/schemas/definitions.bin`` before files are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the data file and add it to the wheel, although version control ignores it."""
        source = Path(self.root) / "src"
        sys.path.insert(0, str(source))
        try:
            from kindling.apiserver.kinds.schemas.definitions import write  # noqa: PLC0415 - importable only now

            target = write()
        finally:
            sys.path.remove(str(source))
        build_data["force_include"][str(target)] = str(target.relative_to(source))
