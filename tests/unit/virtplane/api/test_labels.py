"""The table of labels, annotations and finalizers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import virtplane
from virtplane.api import cdi_labels, labels

_ROOT = Path(virtplane.__file__).parent
_TABLES = (labels, cdi_labels)
_TABLE = {
    value: name
    for table in _TABLES
    for name, value in vars(table).items()
    if isinstance(value, str) and "/" in value and not (name.startswith("__") or value.endswith("/"))
}


def _texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_name_of_the_table_is_written_nowhere_else() -> None:
    """Tests write names out, so that a name that changes by mistake is noticed."""
    second = [
        f"{path.relative_to(_ROOT)}: {_TABLE[text]}"
        for path in sorted(_ROOT.rglob("*.py"))
        if path not in {Path(str(table.__file__)) for table in _TABLES}
        for text in _texts(path)
        if text in _TABLE
    ]
    assert second == []
