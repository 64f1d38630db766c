"""Discovery: all resource types of a server with their versions and verbs.

With aggregated discovery this takes two requests, otherwise one for each group version.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kubecore.client.client import Client
from kubecore.client.transport import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import ResourceType

_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One resource type in one version, and the verbs it supports. Subresources are not listed."""

    resource: ResourceType
    verbs: frozenset[str]
    short_names: tuple[str, ...] = ()
    singular: str = ""

    def supports(self, *verbs: str) -> bool:
        """Whether all of `verbs` are supported."""
        return self.verbs.issuperset(verbs)


@dataclass(slots=True)
class Discovery:
    """The result of discovery. `resources` has every version of every resource in the server's order of
    preference; `failures` maps group versions that could not be discovered to the reason.
    """

    resources: list[ServedResource] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def preferred(self) -> list[ServedResource]:
        """Each resource once, in its preferred version."""
        chosen: dict[tuple[str, str], ServedResource] = {}
        for served in self.resources:
            chosen.setdefault((served.resource.group, served.resource.plural), served)
        return list(chosen.values())


async def discover(client: Client) -> Discovery:
    """Discover all resources of the server. Raises StatusError or ConnectionFailed when the list of groups
    cannot be read.
    """
    found = Discovery()
    for path in ("/api", "/apis"):
        response = await client.request("GET", path, headers={"Accept": _AGGREGATED})
        document = response.json()
        if get_str(document, "kind") == "APIGroupDiscoveryList":
            _read_aggregated(document, found)
        else:
            await _read_groups(client, path, document, found)
    return found


def _read_aggregated(document: JsonObject, found: Discovery) -> None:
    for group in get_list(document, "items"):
        name = get_str(group, "metadata", "name")
        for version in get_list(group, "versions"):
            version_name = get_str(version, "version")
            if get_str(version, "freshness") == "Stale":
                found.failures[f"{name}/{version_name}"] = "stale GroupVersion discovery"
            for entry in get_list(version, "resources"):
                # What a server says of the kind's group is not believed: it would speak for other servers.
                resource = ResourceType(
                    name,
                    version_name,
                    get_str(entry, "resource"),
                    get_str(entry, "responseKind", "kind"),
                    get_str(entry, "scope") == "Namespaced",
                )
                found.resources.append(
                    ServedResource(
                        resource,
                        frozenset(get_list(entry, "verbs")),
                        tuple(get_list(entry, "shortNames")),
                        get_str(entry, "singularResource"),
                    )
                )


async def _read_groups(client: Client, path: str, document: JsonObject, found: Discovery) -> None:
    if path == "/api":
        group_versions = [("", version) for version in get_list(document, "versions")]
    else:
        group_versions = [
            (get_str(group, "name"), get_str(version, "version"))
            for group in get_list(document, "groups")
            for version in _by_preference(group)
        ]
    answers = await asyncio.gather(*(_resource_list(client, *entry) for entry in group_versions))
    for (group_name, version_name), answer in zip(group_versions, answers, strict=True):
        if isinstance(answer, str):
            found.failures[f"{group_name}/{version_name}"] = answer
            continue
        for entry in get_list(answer, "resources"):
            if "/" in get_str(entry, "name"):
                continue
            found.resources.append(_read_entry(entry, group_name, version_name))


def _read_entry(entry: JsonObject, group: str, version: str) -> ServedResource:
    resource = ResourceType(
        group, version, get_str(entry, "name"), get_str(entry, "kind"), entry.get("namespaced") is True
    )
    return ServedResource(
        resource,
        frozenset(get_list(entry, "verbs")),
        tuple(get_list(entry, "shortNames")),
        get_str(entry, "singularName"),
    )


def _by_preference(group: JsonObject) -> list[JsonObject]:
    preferred = get_str(get_object(group, "preferredVersion"), "version")
    return sorted(get_list(group, "versions"), key=lambda version: get_str(version, "version") != preferred)


async def _resource_list(client: Client, group: str, version: str) -> JsonObject | str:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer: JsonObject = (await client.request("GET", path)).json()
    except (StatusError, ConnectionFailed) as error:
        return str(error)
    return answer
