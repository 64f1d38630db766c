"""Discovery documents of the in-memory API server."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from kubecore.resources import ResourceType

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(path: str, types: Sequence[ResourceType]) -> JsonObject | None:
    """The discovery document at `path`, or None."""
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


def aggregated(path: str, types: Sequence[ResourceType]) -> JsonObject | None:
    """The aggregated discovery document."""
    if path not in ("/api", "/apis"):
        return None
    groups: dict[str, dict[str, list[JsonObject]]] = {}
    for resource in types:
        if (resource.group != "") == (path == "/apis"):
            versions = groups.setdefault(resource.group, {})
            versions.setdefault(resource.version, []).append(
                {
                    "resource": resource.plural,
                    "responseKind": {
                        "group": resource.group,
                        "version": resource.version,
                        "kind": resource.kind,
                    },
                    "scope": "Namespaced" if resource.namespaced else "Cluster",
                    "verbs": _VERBS,
                }
            )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [
            {
                "metadata": {"name": name},
                "versions": [
                    {"version": version, "resources": found, "freshness": "Current"}
                    for version, found in versions.items()
                ],
            }
            for name, versions in groups.items()
        ],
    }


def _group(name: str, versions: Sequence[str]) -> JsonObject:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}
