"""VMs with their instance type and preference applied, for users who want to see what would run."""

from __future__ import annotations

from collections.abc import Callable

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api.config import ClusterConfig
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetype
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreference
from virtplane.compute.apiserver.admission.request_schema import Unreadable, schema_causes, write_typed
from virtplane.instancetypes import references
from virtplane.instancetypes.apply import Conflicts
from virtplane.instancetypes.defaults import DefaultingError
from virtplane.instancetypes.expansion import expand


class Expander:
    """Finds instance types and preferences and applies them to VMs."""

    def __init__(self, client: Client, config: Callable[[], ClusterConfig]) -> None:
        self._client = client
        self._config = config

    async def expand(self, vm: JsonObject) -> JsonObject:
        """The VM without references. Raises StatusError where something is missing or contradicts itself."""
        result = typed(vm)
        found = {name: await self._find(vm, name) for name in references.FIELDS}
        if not any(found.values()):
            return _written(result)
        template = result["spec"]["template"]
        kind, preference = found["instancetype"], found["preference"]
        try:
            expand(
                template,
                decode(VirtualMachineInstancetype, kind).spec if kind else None,
                decode(VirtualMachinePreference, preference).spec if preference else None,
                self._config(),
            )
        except Conflicts as error:
            text = f"VM field(s) {', '.join(error.fields)} conflicts with selected instance type"
            raise errors.bad_request(text) from error
        except (DefaultingError, UnfitDocument) as error:
            raise errors.bad_request(str(error)) from error
        for name in references.FIELDS:
            result["spec"].pop(name, None)
        return _written(result)

    async def _find(self, vm: JsonObject, name: str) -> JsonObject | None:
        namespace = meta.namespace(vm)
        try:
            reference = references.reference(decode(references.Referring, vm), name)
            if reference is None:
                return None
            kind = reference.kind
        except (references.UnexpectedKind, UnfitDocument) as error:
            raise errors.bad_request(str(error)) from error
        pinned = reference.pinned_revision
        if pinned:
            revision = await self._client.get(resources.CONTROLLER_REVISIONS, pinned, namespace)
            return get_object(revision, "data")
        scope = namespace if kind.namespaced else None
        return await self._client.get(kind, reference.name, scope)

    def problems(self, document: JsonObject) -> list[str]:
        """Why a document is no VM at all; empty when it is one."""
        return [cause.message for cause in schema_causes("VirtualMachine", document)]


def _written(vm: JsonObject) -> JsonObject:
    """`vm` as KubeVirt's types write it down. Raises StatusError where they cannot hold it."""
    try:
        write_typed("VirtualMachine", vm)
    except Unreadable as error:
        raise errors.bad_request(str(error)) from error
    return vm


def typed(vm: JsonObject) -> JsonObject:
    """The VM with the parts that answers always show, empty or not."""
    result = deep_copy(vm)
    _part(result, "status")
    result.setdefault("kind", "VirtualMachine")
    template = _part(_part(result, "spec"), "template")
    _part(template, "metadata")
    domain = _part(_part(template, "spec"), "domain")
    _part(domain, "resources")
    _part(domain, "devices")
    return result


def _part(parent: JsonObject, name: str) -> JsonObject:
    """The object `name` of `parent`, made where it is missing or null."""
    parent[name] = parent.get(name) or {}
    found: JsonObject = parent[name]
    return found
