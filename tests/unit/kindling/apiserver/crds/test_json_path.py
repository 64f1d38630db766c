"""JSONPath of printer columns."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.crds.json_path import JsonPath, JsonPathError

DOC: dict[str, Any] = {
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
    "spec": {"list": ["a", "b", "c"], "n": 5},
    "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.n", [5]),
        (".spec.none.deeper", []),
        (".spec.list[2]", ["c"]),
        (".spec.list[-1]", ["c"]),
        (".spec.list[7]", []),
        (".spec.list[0:2]", ["a", "b"]),
        (".spec.list[0,2]", ["a", "c"]),
        (".spec.list[*]", ["a", "b", "c"]),
        ("['spec']['n']", [5]),
        ("{.spec.n}", [5]),
        (r".metadata.labels.app\.kubernetes\.io/name", ["web"]),
        (".metadata.labels['app.kubernetes.io/name']", ["web"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        (".status.conditions[?(@.none)].status", []),
        ("..status", [DOC["status"], "x", "True"]),
    ],
)
def test_a_path_finds_values_in_document_order(path: str, expected: list[Any]) -> None:
    assert JsonPath(path).find(DOC) == expected


@pytest.mark.parametrize("path", [".spec[", ".a[x]", ".a[?(@.b==nothing)]"])
def test_other_texts_are_no_paths(path: str) -> None:
    with pytest.raises(JsonPathError):
        JsonPath(path)
