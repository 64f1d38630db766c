"""Discovery documents, made from the catalog (pure)."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject

from ..registry.catalog import Catalog
from ..registry.definition import ResourceDefinition, Subresource

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sorts versions by stability, then number, best last (reverse to prefer)."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0, version)
    major, stage, minor = match.groups()
    return (_STAGES[stage or ""], int(major), int(minor or 0), "")


def ordered_versions(versions: Sequence[str]) -> list[str]:
    """Versions of a group, the preferred one first."""
    return sorted(versions, key=version_priority, reverse=True)


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def legacy_root(addresses: Sequence[JsonObject]) -> JsonObject:
    """``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": list(addresses),
    }


def api_group(group: str, versions: Sequence[str]) -> JsonObject:
    """``/apis/GROUP`` (without kind and apiVersion)."""
    listed = [{"groupVersion": _group_version(group, version), "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def group_list(groups: Mapping[str, Sequence[str]]) -> JsonObject:
    """``/apis``: `groups` maps names to versions, both in order."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [api_group(group, versions) for group, versions in groups.items()],
    }


def _storage_version_hash(definition: ResourceDefinition) -> str:
    stored = definition.storage_version
    text = f"{stored if '/' in stored else '/' + stored}/{definition.resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def verbs_of(definition: ResourceDefinition) -> list[str]:
    """In the order of the alphabet; custom resources in their own."""
    return list(definition.verbs) if definition.custom else sorted(definition.verbs)


def _sorted_subresources(definition: ResourceDefinition) -> list[Subresource]:
    found = list(definition.subresources.values())
    return found if definition.custom else sorted(found, key=lambda sub: sub.name)


def resource_list(group: str, version: str, definitions: Sequence[ResourceDefinition]) -> JsonObject:
    """``/api/v1`` or ``/apis/GROUP/VERSION``."""
    resources: list[JsonObject] = []
    for definition in sorted(definitions, key=lambda found: found.resource.plural):
        resource = definition.resource
        entry: JsonObject = {
            "name": resource.plural,
            "singularName": definition.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs_of(definition),
        }
        if definition.short_names:
            entry["shortNames"] = list(definition.short_names)
        if definition.categories:
            entry["categories"] = list(definition.categories)
        if definition.virtual is None and "list" in definition.verbs:
            entry["storageVersionHash"] = _storage_version_hash(definition)
        resources.append(entry)
        for sub in _sorted_subresources(definition):
            child: JsonObject = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sorted(sub.verbs),
            }
            if sub.version:
                child["group"], child["version"] = sub.group, sub.version
                if not sub.group:
                    del child["group"]
            resources.append(child)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _group_version(group, version),
        "resources": resources,
    }


def _aggregated_resource(definition: ResourceDefinition) -> JsonObject:
    resource = definition.resource
    # Built-in kinds omit the group and version of their own kind; custom ones have them.
    group, version = (resource.group, resource.version) if definition.custom else ("", "")
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": definition.singular,
        "verbs": verbs_of(definition),
    }
    if definition.short_names:
        entry["shortNames"] = list(definition.short_names)
    if definition.categories:
        entry["categories"] = list(definition.categories)
    if definition.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or group,
                    "version": sub.version or version,
                    "kind": sub.kind,
                },
                "verbs": sorted(sub.verbs),
            }
            for sub in _sorted_subresources(definition)
        ]
    return entry


def aggregated_group(catalog: Catalog, group: str, versions: Sequence[str]) -> JsonObject:
    """One item of an aggregated discovery document."""
    metadata: JsonObject = {"name": group} if group else {}
    return {
        "metadata": metadata,
        "versions": [
            {
                "version": version,
                "resources": [
                    _aggregated_resource(definition)
                    for definition in sorted(
                        catalog.in_group_version(group, version), key=lambda found: found.resource.plural
                    )
                ],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def aggregated_list(items: Sequence[JsonObject]) -> JsonObject:
    """An APIGroupDiscoveryList."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": list(items),
    }
