"""The catalog of all resources served now: built-in and custom ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubecore.resources import ResourceType

from .definition import ResourceDefinition


class Catalog:
    """Resource definitions by owner; every change counts up `generation`, which caches compare."""

    def __init__(self) -> None:
        self._owned: dict[str, list[ResourceDefinition]] = {}
        self._by_path: dict[tuple[str, str, str], ResourceDefinition] = {}
        self._by_resource: dict[tuple[str, str], ResourceDefinition] = {}
        self._by_storage: dict[str, list[ResourceDefinition]] = {}
        self._versions: dict[str, list[str]] = {}
        self.generation = 0

    def replace(self, owner: str, definitions: Iterable[ResourceDefinition]) -> None:
        """Replace the definitions of `owner` (``built-in``, or a custom resource definition's name)."""
        new = list(definitions)
        if new:
            self._owned[owner] = new
        elif owner in self._owned:
            del self._owned[owner]
        self._by_path = {}
        self._by_resource = {}
        self._by_storage = {}
        self._versions = {}
        for definition in self.all():
            resource = definition.resource
            self._by_path[resource.group, resource.version, resource.plural] = definition
            self._by_resource.setdefault((resource.group, resource.plural), definition)
            if resource.api_version == definition.storage_version:
                self._by_resource[resource.group, resource.plural] = definition
            self._by_storage.setdefault(definition.storage_prefix, []).append(definition)
            versions = self._versions.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        self.generation += 1

    def all(self) -> Sequence[ResourceDefinition]:
        """All resources in every served version."""
        return [definition for owned in self._owned.values() for definition in owned]

    def equivalents(self, definition: ResourceDefinition) -> Sequence[ResourceDefinition]:
        """The resources that serve the same stored objects, `definition` and those of its other versions."""
        return self._by_storage.get(definition.storage_prefix, ())

    def find(self, group: str, version: str, plural: str) -> ResourceDefinition | None:
        """The resource as a URL names it."""
        return self._by_path.get((group, version, plural))

    def of(self, resource: ResourceType) -> ResourceDefinition | None:
        """The resource in exactly that version, or else in the version it is stored in."""
        return self._by_path.get((resource.group, resource.version, resource.plural)) or (
            self._by_resource.get((resource.group, resource.plural))
        )

    def by_kind(self, group: str, version: str, kind: str) -> ResourceDefinition | None:
        """The resource that serves a kind."""
        for definition in self.all():
            resource = definition.resource
            if (resource.group, resource.version, resource.kind) == (group, version, kind):
                return definition
        return None

    def groups(self) -> Sequence[str]:
        """All groups in the order they came; the core group is the empty string."""
        return list(self._versions)

    def versions(self, group: str) -> Sequence[str]:
        """Served versions of a group in the order they came."""
        return self._versions.get(group, ())

    def in_group(self, group: str) -> Sequence[ResourceDefinition]:
        """The resources of one group, in all versions."""
        return [definition for definition in self.all() if definition.resource.group == group]

    def in_group_version(self, group: str, version: str) -> Sequence[ResourceDefinition]:
        """The resources of one group and version."""
        return [
            definition
            for definition in self.all()
            if definition.resource.group == group and definition.resource.version == version
        ]
