"""Bodies of patches that cannot be read, and one that says nothing."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.patches import patched_document
from kubecore.errors import StatusError
from kubecore.json import JsonObject

_OBJECT: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
_END = "unexpected end of JSON input"


def _patched(kind: str, body: bytes) -> JsonObject:
    definitions = {each.resource.plural: each for each in builtin_definitions()}
    return patched_document(kind, body, _OBJECT, definitions["configmaps"])


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("json", b"[", _END),
        ("json", b"", _END),
        ("strategic", b"{", _END),
        ("merge", b"{", f"error decoding patch: {_END}"),
        ("json", b"x", "error decoding patch: invalid character 'x' looking for beginning of value"),
    ],
)
def test_what_cannot_be_read_is_told_as_kubernetes_does(kind: str, body: bytes, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        _patched(kind, body)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_a_json_patch_of_nothing_changes_nothing() -> None:
    assert _patched("json", b"null") == _OBJECT
