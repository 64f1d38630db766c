"""What the in-memory API server says about the resources it serves."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from kubecore.resources import ResourceType

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(path: str, types: Sequence[ResourceType]) -> JsonObject | None:
    """What discovery says at `path`; None where nothing is to discover."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups: dict[str, list[str]] = {}
        for resource in types:
            if resource.group and resource.version not in groups.setdefault(resource.group, []):
                groups[resource.group].append(resource.version)
        return {"kind": "APIGroupList", "groups": [_group(name, found) for name, found in groups.items()]}
    parts = path.strip("/").split("/")
    group_version = "/".join(parts[1:])
    if parts[0] not in ("api", "apis") or len(parts) != (2 if parts[0] == "api" else 3):
        return None
    return {
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": [
            {
                "name": resource.plural,
                "kind": resource.kind,
                "namespaced": resource.namespaced,
                "verbs": _VERBS,
            }
            for resource in types
            if resource.api_version == group_version
        ],
    }


def _group(name: str, versions: Sequence[str]) -> JsonObject:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}
