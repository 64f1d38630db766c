"""JSON merge patch (RFC 7386): objects merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects.goformat import json_type


def decode_merge_patch(value: Any) -> JsonObject:
    """The patch in a request body, which must be an object. Raises `StatusError`."""
    if value is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(value, dict):
        prefix = f"error decoding patch: json: cannot unmarshal {json_type(value)}"
        raise errors.bad_request(f"{prefix} into Go value of type map[string]interface {{}}")
    return value


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """The document after the patch. The document is not changed; unpatched parts are shared with it."""
    if not isinstance(patch, dict):
        return patch
    merged: JsonObject = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged
